"""A difference in words, short enough that two lines tell what sets a node apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from fi_doctor.diagnosis import fact_changes
from fi_doctor.diagnosis.fact_changes import Told
from fi_doctor.fleet.comparing import ABSENT, Apart
from fi_doctor.reports.text import clean, wrap

_LONGEST = 44  # characters of a value
_LENGTHS = (_LONGEST, 30, 20, 14, 9)
MOST_LINES = 2
_OF_LIBRARY = 16  # characters of libcudart.so.12, which says nothing when it is cut
_UNKNOWN = "not known: "
# What a fact is called; {} stands for what follows its table.
_CALLED = {
    "gpus.driver.version": "driver",
    "gpus.driver": "driver",
    "gpus.count": "GPUs:",
    "gpus.sm": "SM",
    "gpus.name": "GPU",
    "gpus.mig": "MIG:",
    "gpus.nvlinks": "NVLink:",
    "gpus.peers": "paths between GPUs:",
    "gpus.acs_bridges": "PCI bridges with ACS above a GPU:",
    "gpus.compute_mode": "compute mode",
    "gpus.cuda_sees": "GPUs that CUDA sees:",
    "gpus.memory_total_mib": "GPU memory in MiB:",
    "toolkit.jit.nvcc.version": "nvcc",
    "toolkit.jit.nvcc": "nvcc",
    "toolkit.jit.cuda_home": "CUDA toolkit",
    "toolkit.jit": "CUDA toolkit",
    "toolkit.host_compiler_version": "host compiler",
    "toolkit.host_compiler": "host compiler",
    "toolkit.ninja": "ninja",
    "system.libc": "C library",
    "system.os": "system",
    "system.kernel": "kernel",
    "system.shm_mib": "/dev/shm",  # noqa: S108 - what it is called
    "system.memory_total_mib": "memory",
    "system.memory_limit_mib": "memory limit in MiB:",
    "system.cpus": "CPUs:",
    "interpreter.version": "Python",
    "interpreter.executable": "interpreter",
    "request.depth": "checked at depth",
    "request.features": "rows asked for:",
    "flashinfer.cached_modules": "cached modules:",
    "machine.user.uid": "serving user",
}
_TABLES = (
    (re.compile(r"packages\.([^.]+)(?:\.version)?"), "{}"),
    (re.compile(r"site\.installed\.(.+)"), "{}"),
    (re.compile(r"libraries\.([^.]+)(?:\.version)?"), "library {}"),
    (re.compile(r"flashinfer\.stale_modules\.(.+)"), "cached {} is stale:"),
    (re.compile(r"machine\.folders\[([^\]]+)\]\.(.+)"), "{}: {}"),
)
_BOOLEANS = {"gpus.mig": {"True": "on", "False": "off"}}
_BINARY = re.compile(r"binaries\.files\[([^\]]+)\]\.(\w+)")


def said(apart: Apart, longest: int = _LONGEST) -> str:
    """How the node has a fact, and how the others have it, in one sentence without a stop."""
    others = "the others" if apart.is_rest else "most"
    if (binary := _BINARY.fullmatch(apart.fact)) is not None:
        return _of_binary(binary[1], binary[2], apart, others, longest)
    if apart.fact.startswith("environment."):
        return _of_variable(apart, others, longest)
    name = called(apart.fact)
    here, there = _pair(apart, longest)
    if here == there:  # a list in another order, or what differs was cut away
        return f"{name} differs from {others}"
    if _is_lacking(apart.here) and apart.fact.startswith(("packages.", "site.installed.")):
        return f"{name} is not installed, {others} have {there}"
    if _is_lacking(apart.others) and apart.fact.startswith(("packages.", "site.installed.")):
        return f"{name} {here} is installed, on {others} it is not"
    if name.endswith("is stale:"):
        return f"{name.removesuffix(':')} ({here}), on {others} it is not"
    return f"{name} {here}, {others} {there}"


def called(fact: str) -> str:
    """What sentences call a fact."""
    if fact in _CALLED:
        return _CALLED[fact]
    if (binary := _BINARY.fullmatch(fact)) is not None:
        return f"{_file(binary[1])} {'links' if binary[2] == 'needed' else f'{binary[2]}:'}"
    for pattern, words in _TABLES:
        if (found := pattern.fullmatch(fact)) is not None:
            return clean(words.format(*found.groups()), 100)
    return clean(fact.removeprefix("environment."), 100)


def value(told: Told, fact: str = "", longest: int = _LONGEST) -> str:
    """A value by itself."""
    text = ", ".join(told) if isinstance(told, tuple) else told
    text = _BOOLEANS.get(fact, {}).get(text, text)
    return _cut(clean(text, 4000), longest) or "(empty)"


def lines(name: str, aparts: Sequence[tuple[Apart, int]], width: int) -> tuple[str, ...]:
    """At most two lines that tell what sets a group apart; values are cut before a difference is left out.

    aparts: each with the number of further subjects that are otherwise in the same way.
    """
    sentences: list[str] = []
    for longest in _LENGTHS:
        sentences = [f"{said(one, longest)}{f' ({alike} more like it)' if alike else ''}" for one, alike in aparts]
        if len(found := wrap(f"{name}: {'; '.join(sentences)}", width, "", "  ")) <= MOST_LINES:
            return tuple(found)
    for kept in range(len(sentences) - 1, 0, -1):
        text = f"{name}: {'; '.join(sentences[:kept])}; and {len(sentences) - kept} more"
        if len(found := wrap(text, width, "", "  ")) <= MOST_LINES:
            return tuple(found)
    return tuple(_cut(line, width) for line in found[:MOST_LINES])


def _pair(apart: Apart, longest: int) -> tuple[str, str]:
    """Both values; of lists what only one side has."""
    if isinstance(apart.here, tuple) and isinstance(apart.others, tuple):
        change = fact_changes.change(apart.fact, apart.others, apart.here)
        if change.gone or change.new:
            return _items(change.new, longest), _items(change.gone, longest)
    here, there = value(apart.here, apart.fact, 4000), value(apart.others, apart.fact, 4000)
    if max(len(here), len(there)) > longest:
        here, there = _differing(here, there)
    return _cut(here, longest), _cut(there, longest)


def _items(items: tuple[str, ...], longest: int) -> str:
    return _cut(clean(", ".join(items), 4000), longest) if items else "none of them"


def _differing(one: str, other: str) -> tuple[str, str]:
    """Long values from where they differ, at a word's beginning."""
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(one.rfind(mark, 0, same) for mark in (" ", ":", ",", "/")) + 1
    return (f"...{one[start:]}", f"...{other[start:]}") if start > 3 else (one, other)  # as long as what is left out


def _of_variable(apart: Apart, others: str, longest: int) -> str:
    name = called(apart.fact)
    here, there = _pair(apart, longest)
    if apart.here == ABSENT:
        return f"{name} is not set, {others} have {there}"
    if apart.others == ABSENT:
        return f"{name}={here}, not set on {others}"
    return f"{name}={here}, {others} {there}"


def _of_binary(path: str, field: str, apart: Apart, others: str, longest: int) -> str:
    """Of a shared object: "cached sampling.so links libcudart.so.12, the others .13"."""
    name = _file(path)
    if ABSENT in (apart.here, apart.others):
        return f"{name} is {'not ' if apart.here == ABSENT else ''}there, on {others} it is {_not(apart.others)}"
    if field != "needed":
        here, there = _pair(apart, longest)
        return f"{name}: {field} {here}, {others} {there}"
    here, there = _pair(apart, 4000)
    stem = here.rpartition(".")[0]
    there = there.removeprefix(stem) if stem and there.startswith(f"{stem}.") else there
    return f"{name} links {_cut(here, max(longest, _OF_LIBRARY))}, {others} {_cut(there, longest)}"


def _file(path: str) -> str:
    file = clean(PurePosixPath(path).name, 60)
    return f"cached {file}" if "/cached_ops/" in path else file


def _not(told: Told) -> str:
    return "not" if told == ABSENT else "there"


def _is_lacking(told: Told) -> bool:
    return told == ABSENT or (isinstance(told, str) and told.startswith(_UNKNOWN))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
