"""What `import torch` and `import flashinfer` ask for and load, told by a child of the examined interpreter."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from fi_doctor import sandbox
from fi_doctor.facts.packages import find_interpreter
from fi_doctor.model import Data

PACKAGES = ("torch", "flashinfer")  # in this order: what the second loads is what it loads beyond the first

_SCRIPT = Path(__file__).resolve().parent.parent / "inside" / "loads.py"
_TIMEOUT_S = 180.0  # as the probes of the imports have


class Loaded(Data, frozen=True):
    """One import, with what was loaded before it."""

    name: str
    asked: frozenset[str]  # modules that were looked for, found or not
    files: dict[str, str]  # module -> its file
    inner: frozenset[str]  # modules that are part of the interpreter itself
    mapped: frozenset[str]  # libraries in the memory of the process
    variables: frozenset[str]  # of the environment, that Python code asked for
    lacking: frozenset[str]  # those of them that were not set
    error: str  # why it failed; "" where it did not


class Imports(Data, frozen=True):
    """All of them."""

    sys_path: tuple[str, ...]
    standard: tuple[str, ...]  # the folders of the standard library
    loaded: tuple[Loaded, ...]  # none where the interpreter gave no answer at all


class _Line(msgspec.Struct):
    """A line of inside/loads.py."""

    began: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    stage: str = ""
    asked: str = ""
    files: dict[str, str] = {}
    inner: frozenset[str] = frozenset()
    mapped: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    ended: str | None = None


def read_imports(python: str, environ: Mapping[str, str]) -> Imports:
    """Import the packages there and tell what that took; it is a few seconds' work.

    Errors: TargetError where there is no such interpreter.
    """
    with tempfile.NamedTemporaryFile() as told:
        result = sandbox.run(
            [find_interpreter(python, environ), str(_SCRIPT), told.name, *PACKAGES],
            timeout_s=_TIMEOUT_S,
            env={**environ, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        return parse(told.read(), _end(result))


def parse(text: bytes, end: str) -> Imports:
    """The lines as they were written down. end: what ended the process, said of an import that did not end itself."""
    lines = list(_lines(text.splitlines()))
    first = next((line.began for line in lines if line.began), ((), ()))
    stages: list[list[_Line]] = []
    for line in lines:
        if line.stage:
            stages.append([])
        if stages:
            stages[-1].append(line)
    found = tuple(_loaded(stage, end) for stage in stages)
    return Imports(sys_path=first[0], standard=first[1], loaded=found)


def _lines(texts: Iterable[bytes]) -> Iterator[_Line]:
    for text in texts:
        with contextlib.suppress(
            msgspec.MsgspecError, UnicodeDecodeError, RecursionError
        ):  # the last one of a process that was ended
            yield msgspec.json.decode(text, type=_Line)


def _loaded(lines: list[_Line], end: str) -> Loaded:
    return Loaded(
        name=lines[0].stage,
        asked=frozenset(line.asked for line in lines if line.asked),
        files={name: path for line in lines for name, path in line.files.items()},
        inner=frozenset().union(*(line.inner for line in lines)),
        mapped=frozenset().union(*(line.mapped for line in lines)),
        variables=frozenset().union(*(line.variables for line in lines)),
        lacking=frozenset().union(*(line.lacking for line in lines)),
        error=next((line.ended for line in lines if line.ended is not None), end),
    )


def _end(result: sandbox.Result) -> str:
    if result.error:
        return result.error
    if result.timed_out:
        return f"it did not end within {_TIMEOUT_S:.0f} s"
    return f"signal {result.signal} ended it" if result.signal is not None else "it left without a word"
