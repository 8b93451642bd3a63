"""One probe, tried: a process of the examined interpreter, and another one for the variants that a dead one left."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fi_doctor import sandbox
from fi_doctor.model import CellOutcome, Ending, Missing, Outcome, PlannedProbe, Stage
from fi_doctor.probing import budget, objects, record, surroundings
from fi_doctor.probing.bench import Bench, Cancelled, forks
from fi_doctor.probing.record import Fate, Record
from fi_doctor.probing.template import IMPORTS

EXIT_GRACE_S = 15  # for what Python does after the last line of the record
OUTPUT_LIMIT = 4 * 1024

_RECORD_LIMIT = 16 << 20  # a record is a few KiB; more is a probe that writes into it
# What fi-doctor itself runs out of. No folder for a temporary file is ENOENT.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.ENOENT, errno.EFBIG)
_TOLD = {"imported": Stage.IMPORTED, "built": Stage.BUILT, "ran": Stage.RAN}


def try_probe(planned: PlannedProbe, bench: Bench, jobs: int, use: Mapping[str, str] | None = None) -> Outcome:
    """What happens when its variants are built and run, as deep as planned. Raises Cancelled when all is stopped.

    use: modules that are loaded from these files, without asking ninja whether they are up to date.
    """
    child = surroundings.environment(planned, bench.facts, bench.environ, bench.scratch, jobs)
    module = objects.module_of(planned.spec.module, bench.facts.flashinfer, bench.scratch)
    settled: dict[str, CellOutcome] = {}
    attempts: list[_Attempt] = []
    begun = time.monotonic()
    with bench.talk:
        bench.watch.started(planned)
    while remaining := [name for name in planned.variants if name not in settled]:
        if time.monotonic() >= bench.deadline:
            settled.update(_left_out(remaining, out_of_budget(planned, bench, used_s=time.monotonic() - begun)))
            break
        attempt = _Attempt(planned, bench, module, begun, use or {})
        attempts.append(attempt)
        # A record may name anything. Each process has to settle something, or there would be no end of them.
        now = {name: cell for name, cell in attempt.make(remaining, child).items() if name in remaining}
        settled.update(now or _left_out(remaining, "its record names none of its variants", Ending.LOST))
    records = [attempt.record for attempt in attempts]
    failed = record.first_failed(planned, settled)
    in_build = failed is not None and record.failed_in_build(planned, failed, records)
    outcome = replace(
        record.outcome(planned, _with_sources(planned, settled, records, bench, module)),
        seconds=_seconds(planned, attempts, bench),
        output=_output(attempts),
        reproduce=surroundings.reproduce(
            planned,
            bench.facts,
            child,
            bench.scratch,
            failed=failed,
            in_build=in_build,
        ),
        cached=planned.spec.has_build and module.was_finished(),
        started=", ".join(dict.fromkeys(attempt.started for attempt in attempts)),
    )
    with bench.talk:
        bench.watch.ended(planned, outcome)
    return outcome


def leave_out(planned: PlannedProbe, bench: Bench) -> Outcome:
    """The outcome of a probe for which there was no time."""
    return record.outcome(planned, _left_out(planned.variants, out_of_budget(planned, bench)))


def out_of_budget(
    planned: PlannedProbe,
    bench: Bench,
    *,
    how: str = "used up before it started",
    used_s: float = 0.0,
    building_s: float | None = None,
) -> str:
    """That the budget does not suffice, what was needed and how to get it. building_s: as in budget.used_up."""
    fresh = bench.scratch is not None
    return budget.used_up(
        planned.spec, bench.facts, bench.request, how=how, used_s=used_s, fresh=fresh, building_s=building_s
    )


class _Attempt:
    """One process: it is polled, so that each stage has its own time limit."""

    def __init__(
        self, planned: PlannedProbe, bench: Bench, module: objects.Module, begun: float, use: Mapping[str, str]
    ) -> None:
        self.planned = planned
        self.record = Record()
        self.output = b""
        self.failed = False
        self.started = "fresh"
        self._bench = bench
        self._module = module
        self._begun = begun  # when the first process of the probe started
        self._use = use
        self._fd = -1
        self._since = time.monotonic()
        self._told = 0
        self._counted = 0.0
        self._progress: tuple[int, int] | None = None
        self._overtime: Fate | None = None

    def make(self, variants: Sequence[str], child: Mapping[str, str]) -> dict[str, CellOutcome]:
        """Run the variants until the process ends; the cells that this settles."""
        try:
            with surroundings.record_file() as file:
                self._fd = file.fileno()
                end = self._run(variants, child)
        except OSError as exc:
            if exc.errno not in _SHORTAGES:
                raise
            end = record.not_started(str(exc))
        settled = record.cells(self.planned, variants, self.record, end)
        self.failed = any(cell.ending is not Ending.RETURNED for cell in settled.values())
        return settled

    def _run(self, variants: Sequence[str], child: Mapping[str, str]) -> Fate | None:
        """Why the record stops where it does, once the process has ended; None when it is complete."""
        forks = self._forks(child)  # which may have to wait for the template
        self._since = begun = time.monotonic()
        result = self._start(variants, child, forks=forks)
        self._read()
        if result.timed_out and self._overtime is None:
            self._overtime = self._out_of_budget(time.monotonic() - begun)
        self.output = result.stdout
        return record.fate(self.record, result, self._overtime)

    def _forks(self, child: Mapping[str, str]) -> bool:
        """Whether the template takes it."""
        template = self._bench.template
        return template is not None and template.suits(self.planned.spec, child) and forks(self._bench)

    def _start(self, variants: Sequence[str], child: Mapping[str, str], *, forks: bool) -> sandbox.Result:
        """Run the harness in a forked process or, where that is not to be had, in a fresh interpreter."""
        timeout_s = self._bench.deadline - self._since
        words = self._arguments(variants)
        argv = [self._bench.facts.interpreter.executable, "-u", str(surroundings.HARNESS), *words]
        if forks and self._bench.template is not None:
            fork = self._bench.template.forking(words, self._fd)
            with contextlib.suppress(sandbox.NotForked):
                self.started = "forked"
                return sandbox.run(argv, timeout_s=timeout_s, env=child, on_poll=self._poll, fork=fork)
            self._forks(child)  # says why not
        self.started = "fresh"
        argv.append(f"--record-fd={self._fd}")
        fds = (self._fd,)
        return sandbox.run(argv, timeout_s=timeout_s, env=child, pass_fds=fds, merge=True, on_poll=self._poll)

    def _arguments(self, variants: Sequence[str]) -> list[str]:
        """The harness's, but for the record."""
        spec = self.planned.spec
        limits = [f"--build-limit={spec.build_timeout_s}", f"--run-limit={spec.timeout_s}"]
        lock = objects.build_lock(spec.module, self._bench.facts.flashinfer, self._bench.scratch)
        if lock is not None:
            limits.append(f"--build-lock={lock}")
        limits += [f"--use={name}={path}" for name, path in self._use.items()]
        wanted = [f"--variant={name}" for name in variants]
        return [f"--depth={self.planned.depth}", *limits, *wanted, spec.path]

    def _poll(self) -> bool:
        """Whether the time of the present stage is up."""
        if self._bench.stop.is_set():
            raise Cancelled
        self._read()
        _, stage = self.record.place
        self._count(stage)
        limit = self._limit_s(stage)
        if time.monotonic() - self._since < limit:
            return False
        left = self._bench.board.waits_for(self.planned) if stage == "building" else ""
        words = f"still {record.doing(stage)} after {limit:g} s{self._objects()}{left and f'; {left}'}"
        self._overtime = Fate(ending=Ending.TIMED_OUT, detail=words)
        return True

    def _limit_s(self, stage: str) -> float:
        if stage == "end":
            return EXIT_GRACE_S
        if stage == "waiting":  # for builds that have limits of their own; the budget ends it
            return math.inf
        spec = self.planned.spec
        return spec.build_timeout_s if stage in ("", "importing", "building") else spec.timeout_s

    def _read(self) -> None:
        before = self.record.place
        self.record = record.read(os.pread(self._fd, _RECORD_LIMIT, 0))
        if self.record.place != before:
            self._since = time.monotonic()
        new, self._told = self.record.lines[self._told :], len(self.record.lines)
        with self._bench.talk:
            for line in new:
                if line.stage in _TOLD:
                    self._bench.watch.reached(self.planned, _TOLD[line.stage])
                self._compare_paths(line)

    def _compare_paths(self, line: record.Line) -> None:
        """Tell when a probe imports another FlashInfer than the one whose facts were read."""
        flashinfer = self._bench.facts.flashinfer
        path = line.versions.get("flashinfer", {}).get("path", "")
        if not path or isinstance(flashinfer, Missing) or self._bench.told_paths.is_set():
            return
        root = os.path.dirname(os.path.realpath(path))  # noqa: PTH120 - Path.resolve() raises for a loop of links
        if root != os.path.realpath(flashinfer.root):
            self._bench.told_paths.set()
            self._bench.watch.note(f"{self.planned.spec.id} imported {path}, the facts are of {flashinfer.root}")

    def _count(self, stage: str) -> None:
        """Count compiled objects, once a second at most: it walks a folder."""
        if stage != "building" or time.monotonic() - self._counted < 1.0:
            return
        self._counted = time.monotonic()
        self._progress = self._module.progress()
        if self._progress is not None:
            with self._bench.talk:
                self._bench.watch.objects(self.planned, *self._progress)

    def _objects(self) -> str:
        if self.record.place[1] != "building" or self._progress is None:
            return ""
        done, total = self._progress
        return f", {done} of {total} objects"

    def _out_of_budget(self, process_s: float) -> Fate:
        stage = self.record.place[1]
        where = f"while {record.doing(stage)}, {process_s:.0f} s after it started{self._objects()}"
        if process_s < 1 and stage in ("", "importing"):
            where = "before it started"  # no Python with torch imports anything in so short a time
        used_s = time.monotonic() - self._begun
        return Fate(
            ending=Ending.NOT_RUN,
            detail=out_of_budget(self.planned, self._bench, how=f"used up {where}", used_s=used_s),
        )


def _left_out(variants: Sequence[str], why: str, ending: Ending = Ending.NOT_RUN) -> dict[str, CellOutcome]:
    return {name: CellOutcome(variant=name, stage=Stage.NONE, ending=ending, detail=why) for name in variants}


def _with_sources(
    planned: PlannedProbe,
    settled: Mapping[str, CellOutcome],
    records: Sequence[Record],
    bench: Bench,
    module: objects.Module,
) -> dict[str, CellOutcome]:
    """The cells with where their modules came from."""
    alone = ("jit-cache" if module.is_prebuilt else "cache") if module.was_finished() else "built"
    told = {}
    for name, cell in settled.items():
        loaded = planned.spec.has_build and record.loaded(name, records)
        source = bench.board.source(planned, name, otherwise=alone if planned.spec.module else "", loaded=loaded)
        if cell.ending is Ending.NOT_RUN:
            told[name] = replace(cell, module_from="")
            continue
        told[name] = replace(cell, module_from=source, modules=bench.board.names(planned, name))
    return told


def _seconds(planned: PlannedProbe, attempts: Sequence[_Attempt], bench: Bench) -> dict[str, float]:
    """Seconds by stage; of a row that is about an import which the template had done, what it took there."""
    spent = record.seconds([attempt.record for attempt in attempts])
    names = IMPORTS.get(planned.spec.feature, ())
    if "imported" in spent and bench.template is not None and any(one.started == "forked" for one in attempts):
        spent["imported"] = round(spent["imported"] + sum(bench.template.import_s.get(name, 0) for name in names), 3)
    return spent


def _output(attempts: Sequence[_Attempt]) -> str:
    """The last of what was printed by the first process that failed, else by the last one."""
    telling = next((attempt for attempt in attempts if attempt.failed), attempts[-1] if attempts else None)
    return telling.output[-OUTPUT_LIMIT:].decode(errors="replace") if telling else ""
