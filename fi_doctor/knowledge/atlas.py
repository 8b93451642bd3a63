"""What was really built or run: FlashInfer's modules by nvcc and architecture, and probes on recorded machines.

Written by benchmarks/atlas_data.py and never by hand: rows of benchmarks/atlas.py, and what reports below
tests/machines say of their builds and probes. What is nearest to a question is told with what differs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.version import InvalidVersion, Version

from fi_doctor.model import Facts, Missing
from fi_doctor.model.targets import Measured

PATH = Path(__file__).with_suffix(".json")
_NUMBER = re.compile(r"\d+")
_SUFFIX = re.compile(r"\d+([af]?)")
_DETAILS = re.compile(r"(_with_\w*?|_attention|)_(?:dtype|input|s)_.*")  # of a module's name: dtypes, sizes and so on
_FAR = (9, 9, 9, 9)
_OUTCOMES = {"compiled": "compiles", "failed": "does not compile", "refused": "refused by FlashInfer"}


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something was measured."""

    name: str  # folder of the recording, or of the file of rows
    gpu: str = ""  # "" where none was used
    cpu: str = ""
    cores: int = 0
    jobs: int = 0  # compilers at once, at most
    host: str = ""  # host compiler
    is_faulty: bool = False  # on purpose, as with a rank that is stopped: it says nothing of a release and a GPU


class Compiled(msgspec.Struct, frozen=True, array_like=True):
    """One module that was compiled, or not, for a GPU that need not have been there."""

    flashinfer: str
    module: str  # as FlashInfer names it
    nvcc: str  # "13.2"
    arch: str  # "90a"
    outcome: str  # "compiled", "failed" (the compiler says why), "refused" (FlashInfer does)
    error: str  # the first line that says why; "" where it compiled
    units: int  # translation units
    cpu_s: float  # of all units
    longest_s: float  # of the unit that takes longest
    peak_mib: int  # of the largest process
    place: int  # index into Atlas.places
    day: str  # 2026-11-29

    @property
    def subject(self) -> str:
        """What was measured."""
        return self.module

    @property
    def is_good(self) -> bool:
        """Whether it compiled."""
        return self.outcome == "compiled"


class Ran(msgspec.Struct, frozen=True, array_like=True):
    """One variant of a probe that was run on a GPU."""

    flashinfer: str
    feature: str
    variant: str
    nvcc: str
    arch: str
    stage: str  # how far it came: "built", "ran", "verified"
    ending: str  # "returned", "raised", "wrong-result", ...
    place: int
    day: str

    @property
    def subject(self) -> str:
        """What was measured."""
        return self.variant

    @property
    def is_good(self) -> bool:
        """Whether it ended as it should: with the numbers of the reference where those were compared."""
        return self.ending == "returned"


class Atlas(msgspec.Struct, frozen=True):
    """All of it."""

    places: tuple[Place, ...]
    compiled: tuple[Compiled, ...]
    ran: tuple[Ran, ...]


class Asked(NamedTuple):
    """What is to be foretold."""

    flashinfer: str
    nvcc: str
    arch: str  # "90a", or "90" where its suffix is not known


class Distance(NamedTuple):
    """How far a measurement is from what is asked; what stands first counts most."""

    architecture: int  # 0 the same, 1 another suffix, 2 another GPU of the generation, more: another generation
    flashinfer: tuple[int, ...]
    nvcc: tuple[int, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What differs; nothing where exactly this was measured."""
        near = ("", "code for the GPU by another suffix", "another GPU of that generation")
        told = (
            near[self.architecture] if self.architecture < len(near) else "another generation of GPUs",
            "another FlashInfer" if any(self.flashinfer) else "",
            "another nvcc" if any(self.nvcc) else "",
        )
        return tuple(filter(None, told))


class Near(NamedTuple):
    """A measurement and how far it is from what was asked."""

    row: Compiled | Ran
    place: Place
    distance: Distance

    @property
    def measured(self) -> Measured:
        """In words."""
        row = self.row
        whose = [f"FlashInfer {row.flashinfer}", f"nvcc {row.nvcc}" if row.nvcc else "", f"sm_{row.arch}"]
        if isinstance(row, Ran):
            outcome, subject, detail = row.stage if row.is_good else row.ending, row.variant, ""
            whose.append(self.place.gpu)
        else:
            outcome, subject, detail = _OUTCOMES.get(row.outcome, row.outcome), _DETAILS.sub("", row.module), row.error
            detail = f"{row.units} units, {row.cpu_s:.0f} CPU s, {row.peak_mib} MiB" if row.is_good else detail
        return Measured(
            outcome=outcome,
            subject=subject,
            place=", ".join(filter(None, whose)),
            detail=detail,
            is_run=isinstance(row, Ran),
            differs=self.distance.words,
        )


@functools.cache
def load() -> Atlas:
    """What ships."""
    return msgspec.json.decode(PATH.read_bytes(), type=Atlas)


def asked_of(facts: Facts, sm: int) -> Asked | None:
    """What is looked for; None where no FlashInfer is known. A toolkit that is not known is any."""
    package, nvcc = facts.flashinfer, facts.toolkit.gate_version
    if isinstance(package, Missing) or isinstance(package.version, Missing):
        return None
    tags = package.architectures
    tag = str(sm) if isinstance(tags, Missing) or not tags else tags[0]
    return Asked(package.version, "" if isinstance(nvcc, Missing) else nvcc, tag)


def nearest_build(
    asked: Asked, modules: Iterable[str], *, atlas: Atlas | None = None, without: Iterable[str] = ()
) -> Near | None:
    """The compiled module nearest to what is asked, of those whose names begin with one of `modules`.

    without: names of places that do not count, as the machine whose own record is being foretold.
    """
    atlas = atlas or load()
    names = tuple(modules)
    rows = [row for row in atlas.compiled if names and row.module.startswith(names)]
    return _nearest(asked, rows, atlas, frozenset(without))


def cost(asked: Asked, module: str, *, atlas: Atlas | None = None) -> tuple[Compiled, Place] | None:
    """What building a module took that compiled for that generation of GPUs, with the nearest release and nvcc."""
    near = nearest_build(asked, (module,), atlas=atlas)
    if near is None or not isinstance(near.row, Compiled) or not near.row.is_good or near.distance.architecture > 2:
        return None
    return near.row, near.place


def nearest_run(
    asked: Asked, feature: str, variants: Iterable[str] = (), *, atlas: Atlas | None = None, without: Iterable[str] = ()
) -> Near | None:
    """The run nearest to what is asked of a row of the matrix, of some of its variants (of all without any).

    without: as above.
    """
    atlas = atlas or load()
    names = frozenset(variants)
    rows = [row for row in atlas.ran if row.feature == feature and (not names or row.variant in names)]
    return _nearest(asked, rows, atlas, frozenset(without))


def distance(asked: Asked, row: Compiled | Ran) -> Distance:
    """How far that measurement is from what is asked."""
    return Distance(
        _architectures(asked.arch, row.arch),
        _releases(asked.flashinfer, row.flashinfer),
        _releases(asked.nvcc, row.nvcc),
    )


def _nearest(asked: Asked, rows: Sequence[Compiled | Ran], atlas: Atlas, without: frozenset[str]) -> Near | None:
    """Of what is equally near the newest of each module or variant counts, and of those one that did not end well."""
    found = [Near(row, atlas.places[row.place], distance(asked, row)) for row in rows]
    found = [near for near in found if not near.place.is_faulty and near.place.name not in without]
    least = min((near.distance for near in found), default=None)
    newest: dict[str, Near] = {}
    for near in sorted(found, key=lambda near: (near.row.day, not near.row.is_good)):
        if near.distance == least:
            newest[near.row.subject] = near
    return min(newest.values(), key=lambda near: near.row.is_good, default=None)


def _architectures(one: str, other: str) -> int:
    """Code for "a" runs on that GPU alone, for "f" on its generation; a number without a suffix may be any."""
    if one == other:
        return 0
    first, second = (int(found[0]) if (found := _NUMBER.match(name)) else 0 for name in (one, other))
    if first == second:
        suffixes = [found[1] if (found := _SUFFIX.match(name)) else "" for name in (one, other)]
        return 1 if all(suffixes) else 0
    return 2 if first // 10 == second // 10 else 3 + abs(first // 10 - second // 10)


@functools.cache
def _releases(one: str, other: str) -> tuple[int, ...]:
    """How far two releases are apart: by their first numbers, then their second, and so on; "" is any."""
    if one == other or not (one and other):
        return (0, 0, 0, 0)
    try:
        first, second = Version(one), Version(other)
    except InvalidVersion:
        return _FAR
    apart = [abs(getattr(first, part) - getattr(second, part)) for part in ("major", "minor", "micro")]
    return (*apart, abs((first.post or 0) - (second.post or 0)))
