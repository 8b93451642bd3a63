"""Filling the JIT cache, told: a line for each module while it goes on, then the whole as text or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TextIO

import msgspec
from rich.cells import cell_len

from fi_doctor.model import Builds, Missing, Place, Warming, WarmModule
from fi_doctor.reports.progress import Progress
from fi_doctor.reports.text import amount, brief, clean, clock, duration, fold, minutes, names, pack, wrap

_WHY = 160
_NAME = 40


class WarmProgress(Progress):
    """A Watch that also tells when each module begins and ends."""

    def __init__(self, stream: TextIO, *, is_terminal: bool, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, is_terminal=is_terminal, now=now)
        self._since: dict[str, float] = {}  # when the modules began

    def begun(self, modules: tuple[str, ...]) -> None:
        """Compilers start for these: where modules share a log of ninja's, for all at once."""
        with self._lock:
            for line in pack([clean(name, 100) for name in modules], 100, "begins: ", "  "):
                self._line(line)
            self._since.update(dict.fromkeys(modules, self._now()))

    def settled(self, module: str, words: str, done: int, total: int) -> None:
        """One module is over: how, after how long, and how long the rest may take."""
        with self._lock:
            since = self._since.get(module)
            taken = "" if since is None else f" after {duration(self._now() - since)}"
            left = self._schedule.left_s()
            rest = f", about {clock(left)} left" if left is not None and done < total else ""
            self._line(f"{done}/{total} {clean(module, 100)}: {brief(words, _WHY)}{taken}{rest}")

    def prebuilt(self, builds: Builds) -> None:
        """That is over; what it came to is the answer itself."""
        del builds
        with self._lock:
            self._schedule.end_first()
            self._clear()


def to_json(done: Warming) -> str:
    """All of it, as the types have it."""
    return json.dumps(msgspec.to_builtins(done, order="deterministic"), indent=2, ensure_ascii=True) + "\n"


def render(done: Warming, *, width: int = 80) -> str:
    """For which vLLM and by which compiler, a line for each module, then the totals."""
    lines = [*_for_whom(done, width), *(_planned(done, width) if done.dry_run else _done(done, width))]
    for reason, probes in _reasons(done.skipped).items():
        lines += wrap(f"Not asked: {', '.join(map(clean, probes))}: {clean(reason, 200)}", width, "", "  ")
    for variant, why in done.unasked.items():
        lines += wrap(f"Not known what it needs: {clean(variant, 100)}: {clean(why, 200)}", width, "", "  ")
    if done.without_module:
        lines += pack(done.without_module, width, "Asked for nothing that is compiled beforehand: ", "  ")
    for bound in done.bounds:
        lines += wrap(clean(bound), width, "", "  ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def verdict(done: Warming) -> str:
    """What it means for a server, in one line."""
    ends = [words for words in (_open(done), _failed(done)) if words]
    if ends:
        return "; ".join(ends)
    if not done.modules:
        return "a server's first start compiles nothing of what was asked for: no module belongs to it"
    return "a server's first start compiles nothing of the above"


def _open(done: Warming) -> str:
    """What another run would compile, and its command; "" for nothing."""
    count = sum(not one.place.is_there and one.place is not Place.FAILED for one in done.modules)
    if not count:
        return ""
    still = "is still to be compiled" if count == 1 else "are still to be compiled"
    return f"{amount(count, 'module')} {'would be compiled' if done.dry_run else still}: {done.command}"


def _failed(done: Warming) -> str:
    """What it would not, and the command that says why; "" for nothing."""
    count = sum(one.place is Place.FAILED for one in done.modules)
    said = [f"{amount(count, 'module')} failed to compile"] if count else []
    if done.unasked:
        said.append(f"it is not known what {names(map(clean, done.unasked))} would compile")
    look = f"; what says why: {done.look}" if done.look else ""
    return f"{', '.join(said)}{look}" if said else ""


def _for_whom(done: Warming, width: int) -> list[str]:
    compiles = done.toolkit and any(one.place not in (Place.UP_TO_DATE, Place.IN_JIT_CACHE) for one in done.modules)
    known = (done.caller, f"compiled with {done.toolkit}" if compiles else "")
    said = "; ".join(clean(words) for words in known if words)
    return wrap(said if said.startswith("vLLM") else said[:1].upper() + said[1:], width, "", "  ")


def _done(done: Warming, width: int) -> list[str]:
    if not done.modules:
        return ["No module is compiled for this."]
    # Names of attention's modules are longer than a line.
    wide = max((size for one in done.modules if (size := cell_len(clean(one.name))) <= _NAME), default=0)
    lines = [line for one in done.modules for line in _told(one, wide, width)]
    ends = {place: sum(one.place is place for one in done.modules) for place in reversed(Place)}
    counts = ", ".join(f"{count} {place}" for place, count in ends.items() if count)
    totals = f"{amount(len(done.modules), 'module')}: {counts}; {duration(done.seconds)}"
    if not done.cpu_seconds:
        return [*lines, "", *wrap(totals, width, "", "  ")]
    spread = f"{amount(done.jobs, 'job')}: {duration(done.cpu_seconds / max(1, done.jobs))}"
    ran = (
        f"compilers ran {duration(done.build_seconds)} for {done.cpu_seconds:.0f} CPU s; at best it takes "
        f"{duration(done.least_seconds)} ({clean(done.longest)} alone, or CPU s over {spread})"
    )
    allowed = f" of {done.memory_mib} MiB" if done.memory_mib else ""
    held = f"compilers held up to {done.peak_mib} MiB{allowed}; {_mib(done.disk_mib)} MiB added in {clean(done.folder)}"
    return [*lines, "", *(line for text in (totals, ran, held) for line in wrap(text, width, "", "  "))]


def _told(one: WarmModule, wide: int, width: int) -> list[str]:
    """How a module ended, on a line of its own where the name is long."""
    name = clean(one.name)
    if len(name) > _NAME:
        return [*_indented(fold(name, width - 2)), *wrap(_end(one), width, "  ")]
    head = f"{name:{wide}}  "
    return wrap(_end(one), width, head, " " * len(head))


def _indented(lines: list[str]) -> list[str]:
    """The first as it is."""
    return [lines[0], *(f"  {line}" for line in lines[1:])]


def _end(one: WarmModule) -> str:
    match one.place:
        case Place.BUILT:
            return f"built {one.seconds:.0f} s" if one.seconds >= 10 else f"built {one.seconds:.1f} s"
        case Place.FAILED | Place.CUT_OFF | Place.NOT_BEGUN:
            return f"{one.place}: {brief(one.why, _WHY)}"
        case _:
            return str(one.place)


def _planned(done: Warming, width: int) -> list[str]:
    stale = [one for one in done.modules if not one.place.is_there]
    if not stale:
        if not done.modules:
            return ["No module is compiled for this."]
        there = "The 1 module is" if len(done.modules) == 1 else f"All {len(done.modules)} modules are"
        return wrap(f"{there} there: nothing would be compiled in {done.folder}", width, "", "  ")
    return [*_table(done, stale, width), "", *_notes(done, stale, width)]


def _table(done: Warming, stale: list[WarmModule], width: int) -> list[str]:
    heaviest = max(one.peak_job_mib for one in stale)
    units = sum(one.objects for one in stale)
    rows = [
        ("units", "time", "MiB a job", "MiB on disk", "module"),
        *map(_row, done.modules),
        (str(units), minutes(done.estimated_seconds), str(heaviest), _mib(done.disk_mib), "all of them"),
    ]
    wide = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    room = max(20, width - sum(wide) - 2 * len(wide) - 2)
    lines = []
    for row in rows:
        first, *rest = _indented(fold(row[-1], room))
        lines.append("  ".join([*map(str.rjust, row[:-1], wide), first]))
        lines += ["  ".join([" " * size for size in wide] + [line]) for line in rest]
    return lines


def _notes(done: Warming, stale: list[WarmModule], width: int) -> list[str]:
    memory = f" and {done.memory_mib} MiB for all compilers" if done.memory_mib else ""
    unknown = "; ?: no such module was measured" if any(isinstance(one.disk_mib, Missing) for one in stale) else ""
    heaviest = max((one.peak_job_mib for one in stale), default=0)
    is_over = 0 < done.memory_mib < heaviest
    notes = (
        *(
            [f"One job takes up to {heaviest} MiB, more than that for all: one at a time, and beyond it."]
            if is_over
            else []
        ),
        f"Times are estimated for {amount(done.jobs, 'job')}{memory}, of each by itself.",
        f"MiB on disk were measured for sm_90a with nvcc 13.0{unknown}.",
        f"Nothing was compiled or written in {done.folder}",
    )
    return [line for note in notes for line in wrap(note, width, "", "  ")]


def _row(one: WarmModule) -> tuple[str, str, str, str, str]:
    """The name, which may be longer than a line, comes last."""
    if one.place is not Place.TO_COMPILE:
        why = f": {brief(one.why, _WHY)}" if one.why else ""
        return ("", "", "", "", f"{clean(one.name)}: {one.place}{why}")
    return (
        str(one.objects),
        minutes(one.estimated_seconds),
        str(one.peak_job_mib),
        _mib(one.disk_mib),
        clean(one.name),
    )


def _mib(size: float | Missing) -> str:
    return "?" if isinstance(size, Missing) else f"{size:.1f}"


def _reasons(skipped: dict[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for probe, why in skipped.items():
        reasons.setdefault(why, []).append(probe)
    return reasons
