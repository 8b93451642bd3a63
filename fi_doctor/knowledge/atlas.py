"""What was really built or run: FlashInfer's modules by nvcc and architecture, and probes on recorded machines.

Written by benchmarks/atlas_data.py and never by hand: rows of benchmarks/atlas.py, and what reports below
tests/machines say of their builds and probes. Machines that were made faulty on purpose are not among them. What is
nearest to a question is told with what differs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Facts, Missing, Verdict
from fi_doctor.model.targets import Measured

PATH = Path(__file__).with_suffix(".json")
_NUMBER = re.compile(r"\d+")
_SUFFIX = re.compile(r"\d+([af]?)")
_DETAILS = re.compile(r"(_with_\w*?|_attention|)_(?:dtype|input|s)_.*")  # of a module's name: dtypes, sizes and so on
_FAR = (9, 9, 9, 9)
_OUTCOMES = {"compiled": "compiles", "failed": "does not compile", "refused": "refused by FlashInfer"}
_VERDICTS = {
    "wrong-result": Verdict.WRONG_RESULT,
    "ran": Verdict.WORKS,
    "verified": Verdict.WORKS,
    "built": Verdict.UNKNOWN,
    "refused": Verdict.UNSUPPORTED,
}
_WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.WORKS)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something was measured."""

    name: str  # folder of the recording, or of the file of rows
    gpu: str = ""  # "" where none was used
    sm: int = 0
    cpu: str = ""
    cores: int = 0
    jobs: int = 0  # compilers at once, at most
    host: str = ""  # host compiler


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
    outcome: str  # how far it came, "built", "ran", "verified", or how it ended: "refused", "raised", "wrong-result"
    modules: tuple[str, ...]  # JIT modules that it asked for
    place: int
    day: str

    @property
    def subject(self) -> str:
        """What was measured."""
        return self.variant

    @property
    def is_good(self) -> bool:
        """Whether it ended as it should: with the numbers of the reference where those were compared."""
        return not self.verdict.is_failure

    @property
    def verdict(self) -> Verdict:
        """What it says of the kernel."""
        return _VERDICTS.get(self.outcome, Verdict.BROKEN)


class Atlas(msgspec.Struct, frozen=True, dict=True):
    """All of it."""

    places: tuple[Place, ...]
    compiled: tuple[Compiled, ...]
    ran: tuple[Ran, ...]

    def without(self, place: str) -> Atlas:
        """All but what was measured there, as on the machine that is being foretold."""
        left = {number for number, one in enumerate(self.places) if one.name != place}
        compiled = tuple(row for row in self.compiled if row.place in left)
        return Atlas(self.places, compiled, tuple(row for row in self.ran if row.place in left))

    @functools.cached_property
    def builds(self) -> dict[str, list[Compiled]]:
        """By module."""
        found: dict[str, list[Compiled]] = {}
        for row in self.compiled:
            found.setdefault(row.module, []).append(row)
        return found

    @functools.cached_property
    def runs(self) -> dict[str, list[Ran]]:
        """By row of the matrix."""
        found: dict[str, list[Ran]] = {}
        for row in self.ran:
            found.setdefault(row.feature, []).append(row)
        return found

    @functools.cached_property
    def seen(self) -> dict[tuple[str, int], dict[str, dict[str, Ran]]]:
        """(feature, SM) -> variant -> machine -> the worst that was seen there, of kernels that were tried."""
        found: dict[tuple[str, int], dict[str, dict[str, Ran]]] = {}
        for row in sorted(self.ran, key=lambda row: not row.modules):
            place = self.places[row.place]
            there = found.setdefault((row.feature, place.sm), {}).setdefault(row.variant, {})
            if row.verdict in _WORST:
                known = there.setdefault(place.name, row)
                there[place.name] = min(known, row, key=lambda row: _WORST.index(row.verdict))
        return found


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
            outcome, subject, detail = row.outcome, row.variant, ""
            whose.append(self.place.gpu)
        else:
            outcome, subject, detail = _OUTCOMES.get(row.outcome, row.outcome), _DETAILS.sub("", row.module), row.error
            if row.is_good:
                many = "" if row.units == 1 else "s"
                detail = f"{row.units} object{many}, {row.cpu_s:.0f} CPU s, {row.peak_mib} MiB"
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


def nearest_build(known: Atlas, asked: Asked, module: str) -> Near | None:
    """The compiled module nearest to what is asked; "norm*" is any whose name begins so."""
    return _nearest(asked, _builds(known, module), known)


def cost(known: Atlas, asked: Asked, module: str) -> tuple[Compiled, Place] | None:
    """The dearest build of a module for that generation of GPUs, of those with the nearest release and nvcc."""
    good = [(distance(asked, row), -row.cpu_s, row) for row in _builds(known, module) if row.is_good]
    nearest = min((one for one in good if one[0].architecture <= 2), key=lambda one: one[:2], default=None)
    return nearest and (nearest[2], known.places[nearest[2].place])


def nearest_run(known: Atlas, asked: Asked, feature: str, variants: Iterable[str] = ()) -> Near | None:
    """The run nearest to what is asked of a row of the matrix, of some of its variants (of all without any)."""
    names = frozenset(variants)
    rows = [row for row in known.runs.get(feature, ()) if not names or row.variant in names]
    return _nearest(asked, rows, known)


def distance(asked: Asked, row: Compiled | Ran) -> Distance:
    """How far that measurement is from what is asked."""
    return Distance(
        _architectures(asked.arch, row.arch),
        releases_apart(asked.flashinfer, row.flashinfer),
        releases_apart(asked.nvcc, row.nvcc),
    )


def _builds(known: Atlas, module: str) -> list[Compiled]:
    if not module.endswith("*"):
        return known.builds.get(module, [])
    return [row for name, rows in known.builds.items() if name.startswith(module[:-1]) for row in rows]


def _nearest(asked: Asked, rows: Sequence[Compiled | Ran], known: Atlas) -> Near | None:
    """Of what is equally near the newest of each module or variant counts, and of those one that did not end well."""
    found = [Near(row, known.places[row.place], distance(asked, row)) for row in rows]
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
def releases_apart(one: str, other: str) -> tuple[int, ...]:
    """How far two releases are apart: by their first numbers, then their second, and so on; "" is any."""
    if one == other or not (one and other):
        return (0, 0, 0, 0)
    first, second = parse_version(one), parse_version(other)
    if first is None or second is None:
        return _FAR
    apart = [abs(getattr(first, part) - getattr(second, part)) for part in ("major", "minor", "micro")]
    return (*apart, abs((first.post or 0) - (second.post or 0)))
