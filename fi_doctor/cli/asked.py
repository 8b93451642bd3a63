"""What `check`, `report` and `warm` were asked for, as typed, and the earliest moment at which reading can begin."""

from __future__ import annotations

import sys

import msgspec

from fi_doctor.cli import emit, parse
from fi_doctor.errors import UsageError
from fi_doctor.facts import Gathering
from fi_doctor.model import Depth
from fi_doctor.reports import FORMATS


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `check` and `report` as they were typed."""

    python: str | None = None
    from_file: str | None = None
    example: str | None = None
    as_recorded: bool = False
    depth: str | None = None
    budget: str = "10m"
    features: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    jobs: int = 0
    memory: str = "auto"
    fresh_cache: bool = False
    format: str = "console"
    output: str | None = None
    quiet: bool = False


class AskedWarm(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `warm` as they were typed."""

    python: str | None = None
    features: tuple[str, ...] = ()
    is_all: bool = False
    jobs: int = 0
    memory: str = "auto"
    budget: str = "8h"
    is_dry: bool = False
    is_forced: bool = False
    is_json: bool = False
    quiet: bool = False


def begin_warm(asked: AskedWarm) -> Gathering:
    """Check the words of `warm`, then begin to read this machine."""
    if asked.is_all and asked.features:
        raise UsageError("--all and --feature: all rows or some of them", todo="fi-doctor warm --all")
    _check_python(asked.python, "warm")
    return Gathering(sys.executable if asked.python is None else asked.python)


def begin(asked: Asked) -> Gathering | None:
    """Check the words, then begin to read this machine; None where a recording is judged.

    Apart from the commands, because reading waits for children (the examined interpreter, nvcc) while everything else
    is imported and loaded: a third of a static check.
    """
    _check(asked)
    if asked.from_file is not None or asked.example is not None:
        return None
    return Gathering(sys.executable if asked.python is None else asked.python)


def format_of(output: str | None) -> str:
    """The format that the name of a file asks for: report.yaml, report.json; else console."""
    ending = "" if output is None else output.rpartition(".")[2].lower()
    return {"json": "json", "yaml": "yaml", "yml": "yaml"}.get(ending, "console")


def report_format(*, yaml: bool, json: bool) -> str:
    """The one format that the two flags of `report` ask for."""
    if yaml and json:
        raise UsageError("--yaml and --json: a report has one format", todo="fi-doctor report --yaml")
    return "json" if json else "yaml"


def _check(asked: Asked) -> None:
    parse.choice(asked.format, FORMATS, "--format")
    if asked.depth is not None:
        parse.choice(asked.depth, [depth.value for depth in Depth], "--depth")
    if asked.output is not None:
        emit.check_writable(asked.output)
    recorded = [
        name for name, value in (("--from", asked.from_file), ("--example", asked.example)) if value is not None
    ]
    _check_python(asked.python, "check")
    if len(recorded) > 1:
        raise UsageError("--from and --example: one recording at a time", todo="fi-doctor check --example NAME")
    if recorded and asked.python is not None:
        raise UsageError(f"--python: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if asked.as_recorded and not recorded:
        raise UsageError(
            "--as-recorded: there is no recording", todo="fi-doctor check --from report.yaml --as-recorded"
        )


def _check_python(python: str | None, command: str) -> None:
    if python == "":
        raise UsageError(
            "--python: '' names no interpreter", todo=f'fi-doctor {command} --python "$(command -v python3)"'
        )
