"""Which probe is started when: as soon as what it needs is built, a few at a time, while other modules still build."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from msgspec.structs import replace

from fi_doctor.model import Builds, CellOutcome, Ending, Facts, Outcome, PlannedProbe
from fi_doctor.probing import ahead, budget, estimates, headline, left_out, memory, objects, record
from fi_doctor.probing.attempt import leave_out, try_probe
from fi_doctor.probing.bench import Bench
from fi_doctor.workers import Workers

MOST_AT_ONCE = 8  # each imports torch: more processes cost more memory than they save time
# What Python and the C library say where no process or thread may be started any more (EAGAIN).
NO_PROCESS = ("can't start new thread", "Resource temporarily unavailable")

Group = list[PlannedProbe]  # what runs one after the other


class Flow:
    """All probes that are to be tried, with the builds before them."""

    def __init__(self, tried: Sequence[PlannedProbe], bench: Bench, jobs: int) -> None:
        self._tried = list(tried)
        self._bench = bench
        self._jobs = jobs
        self._gpu_mib = memory.gpu_budget_mib(bench.facts, bench.request)
        self._waiting: list[Group] = [[probe] for probe in sorted(tried, key=_weight)]
        self._running: dict[Future[dict[int, Outcome]], Group] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._is_building = True
        self._is_alone = False  # each probe builds for itself: nobody asked which modules there are
        self._builders = 1  # groups that may compile at the same time, when the builds are over
        self._most = max(1, min(len(self._waiting), jobs, ahead.AT_ONCE))
        self._builds = Builds()
        self._news = bench.board.news  # also set when a process is over

    def run(self) -> tuple[dict[int, Outcome], Builds]:
        """An outcome for each probe, by its id(), and what was built; whatever is raised, nothing is left running."""
        workers = Workers()
        try:
            building = workers.submit(ahead.build_all, self._tried, self._bench, self._jobs)
            building.add_done_callback(self._wake)
            self._start(workers)
            while self._waiting or self._running or self._is_building:
                self._news.wait()
                self._news.clear()
                self._collect()
                if self._is_building and building.done():
                    self._end_building(building.result())
                self._start(workers)
            self._try_again()
        except BaseException:
            self._bench.stop.set()  # children are killed at their next poll; nothing else is left running
            raise
        finally:
            workers.wait()
        return self._outcomes, self._builds

    def _start(self, workers: Workers) -> None:
        """Start what is ready, as far as there is room."""
        for group in list(self._waiting):
            if len(self._running) >= self._most:
                return
            if self._is_building and not self._is_ready(group[0]):
                continue
            if self._on_gpus([*self._running.values(), group]) > self._gpu_mib:
                continue
            self._waiting.remove(group)
            future = workers.submit(self._run_group, group, self._share(), is_beside=self._is_building)
            self._running[future] = group
            future.add_done_callback(self._wake)

    def _wake(self, _: object) -> None:
        self._news.set()

    def _is_ready(self, probe: PlannedProbe) -> bool:
        """Whether it has nothing to compile that would take jobs from the builds."""
        if probe.builds_module:
            # Where all modules share a log their build holds FlashInfer's locks to its end. A probe loads what is ready
            # without them; the processes that it starts for several GPUs are not told of that, and would wait.
            waits = probe.spec.gpus > 1 and objects.shares_log(self._bench.facts.flashinfer)
            return not waits and self._bench.board.is_ready(probe)
        return probe.spec.gate_only or not (probe.spec.module or probe.spec.has_build)

    def _on_gpus(self, groups: Sequence[Group]) -> int:
        """MiB that these take of a GPU, as if all were on the same one."""
        return sum(memory.gpu_mib(group[0].spec, self._bench.request) for group in groups if group[0].gpu_uuids)

    def _share(self) -> int:
        """How many of the compile jobs a group may use: the fewer groups are left, the more each gets."""
        if self._is_building:
            return 1
        left = len(self._waiting) + len(self._running) + 1
        jobs = min(self._jobs, self._carried())
        return max(1, jobs // max(1, min(self._builders, left)))

    def _carried(self) -> int:
        """The jobs that memory carries for all that still compile for themselves."""
        modules = {probe.spec.module for probe in self._tried if probe.builds_module}
        return memory.carried_jobs(self._bench.facts, self._bench.request, modules)

    def _collect(self) -> None:
        for future in [future for future in self._running if future.done()]:
            del self._running[future]
            self._outcomes |= future.result()

    def _end_building(self, builds: Builds | None) -> None:
        """What waits may compile from here on: what is left of a build, or each its own where there was none."""
        self._is_building = False
        rest = [probe for group in self._waiting for probe in group]
        self._is_alone = builds is None
        if builds is not None:
            self._builds = builds
            self._builders = max(1, min(self._most, sum(map(self._bench.board.compiles, rest))))
            return
        self._waiting = _group(rest, self._bench)
        self._most = max(1, min(len(self._waiting) + len(self._running), self._jobs, MOST_AT_ONCE))
        self._builders = 1 if objects.shares_log(self._bench.facts.flashinfer) else self._most

    def _try_again(self) -> None:
        """Those that had no process or thread while others ran, which may have taken all: each by itself."""
        lacking = [probe for probe in self._tried if _lacked_processes(self._outcomes[id(probe)])]
        for probe in lacking if len(self._tried) > 1 else ():
            self._outcomes[id(probe)] = self._run_one(probe, self._jobs, is_beside=False)

    def _run_group(self, group: Group, jobs: int, *, is_beside: bool) -> dict[int, Outcome]:
        return {id(probe): self._run_one(probe, jobs, is_beside=is_beside) for probe in group}

    def _run_one(self, probe: PlannedProbe, jobs: int, *, is_beside: bool) -> Outcome:
        """A probe without the variants for whose modules there was no time. is_beside: others are being built."""
        bench = self._bench
        left = left_out.cells(probe, bench, self._jobs, is_alone=self._is_alone)
        rest = replace(probe, variants=tuple(name for name in probe.variants if name not in left))
        # Where all modules share a log, a second ninja would spoil it, if only to find that there is nothing to do.
        use = bench.board.libraries(rest) if is_beside and objects.shares_log(bench.facts.flashinfer) else {}
        ran = None
        if time.monotonic() >= bench.deadline:
            outcome = leave_out(probe, bench)
        else:
            ran = try_probe(rest, bench, jobs, {**use, **bench.board.parts(rest)}) if rest.variants else None
            outcome = _completed(probe, left, ran)
        if wholes := bench.board.wholes(probe):
            outcome = replace(outcome, whole_module=budget.not_compiled(wholes, self._jobs, bench.board.here))
        if ran is None:
            with bench.talk:
                bench.watch.ended(probe, outcome)
        return outcome


def group(
    probes: Sequence[PlannedProbe], facts: Facts, *, fresh: bool, is_short: bool = False, built: Collection[str] = ()
) -> list[Group]:
    """Probes that build for themselves, by module, since they would wait for the same build, in the order to start.

    Imports first, then the longest build. Where builds go one at a time, or the budget is shorter than the longest of
    them (is_short), the shortest goes first: more fits the budget. built: modules that nobody has to wait for; of those
    probes the one with the most variants is the first.
    """
    sign = 1 if objects.shares_log(facts.flashinfer) or is_short else -1
    groups: dict[str, Group] = {}
    for probe in probes:
        is_built = not probe.spec.module or probe.spec.module in built
        groups.setdefault(f"probe {probe.spec.id}" if is_built else probe.spec.module, []).append(probe)

    def order(members: Group) -> tuple[bool, int, int, str]:
        first = members[0].spec
        seconds = 0 if first.module in built else estimates.build_seconds(first.module, facts, fresh=fresh)
        variants = sum(len(member.variants) for member in members)
        return bool(first.module) or first.gpus > 0, sign * seconds, -variants, first.id

    return sorted(groups.values(), key=order)


def _lacked_processes(outcome: Outcome) -> bool:
    said = [text for cell in outcome.cells for text in (cell.detail, cell.traceback)]
    return outcome.ending in {Ending.RAISED, Ending.LOST} and any(sign in text for text in said for sign in NO_PROCESS)


def _group(probes: Sequence[PlannedProbe], bench: Bench) -> list[Group]:
    fresh, facts = bench.request.fresh_cache, bench.facts
    longest_s = max((estimates.build_seconds(one.spec.module, facts, fresh=fresh) for one in probes), default=0)
    built = {probe.spec.module for probe in probes if ahead.is_there(probe.spec, bench)}
    return group(probes, facts, fresh=fresh, is_short=bench.request.budget_s < longest_s, built=built)


def _weight(probe: PlannedProbe) -> tuple[bool, bool, int, str]:
    """Headline features first, and of these, as of the rest, what takes the longest: several ranks, many variants."""
    spec = probe.spec
    return spec.gpus < 2, not headline.is_headline(spec.feature), -len(probe.variants), spec.id


def _completed(probe: PlannedProbe, late: dict[str, CellOutcome], ran: Outcome | None) -> Outcome:
    """The outcome of all variants from that of those that were tried."""
    if ran is not None and not late:
        return ran
    tried = {cell.variant: cell for cell in ran.cells if cell.variant in probe.variants} if ran else {}
    whole = record.outcome(probe, {**tried, **late})
    if ran is None:
        return whole
    return replace(
        whole, seconds=ran.seconds, output=ran.output, reproduce=ran.reproduce, cached=ran.cached, started=ran.started
    )
