"""Building what is stale of modules, side by side, within one budget of jobs, memory and time.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from fi_doctor.inside import below, remembered
from fi_doctor.inside.costs import Costs
from fi_doctor.inside.excerpt import OUTPUT_LIMIT
from fi_doctor.inside.jobs import Budget, Pool
from fi_doctor.inside.modules import Module, by_log, locked
from fi_doctor.inside.ninja import Run
from fi_doctor.inside.ninjalog import forget_missing

SOON_S = 0.05  # until a module that waits is tried again
TICK_S = 0.5  # between two looks at the compilers and at the clock

Say = Callable[..., None]


class Group:
    """Modules that one ninja builds, since they share its log."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.name = modules[0].name
        self.workdir = modules[0].workdir
        self.objects = sum(module.objects for module in modules)  # that are still to be compiled


class Building:
    """What is stale, built in the given order until the time is up."""

    def __init__(
        self, core: Any, modules: dict[str, Module], job: dict[str, Any], order: dict[str, Any], say: Say
    ) -> None:
        self.core = core
        self.modules = modules
        self.budget = Budget(int(job["jobs"]), int(job["memory_mib"]), order["peak_mib"])
        self.order = [modules[name] for name in order["order"]]
        self.least_s: dict[str, float] = order["least_s"]
        self.deadline = time.monotonic() + float(order["seconds"])
        self.say = say
        self.is_late = False  # the time was up before everything was built
        self.costs = Costs()
        self.pool = Pool(self.budget)
        self.groups: dict[Run, Group] = {}
        self.counted: dict[Run, int] = {}  # objects done
        self.total = sum(module.objects for module in self.order)
        self._told = 0.0
        self._lock = threading.Condition()

    def run(self) -> None:
        """One ninja for each module, or for all that share a log, side by side with one pool of jobs.

        Of modules that share one, ninja begins the objects of those first that are named first.
        """
        below.adopt_orphans()
        with self.watched():
            self.build_all()

    def build_all(self) -> None:
        """The same, unwatched."""
        pool = self.pool
        threads: list[threading.Thread] = []
        waiting = list(map(Group, by_log(self.order)))
        active: list[Group] = []
        while waiting or active:
            busy = {group.workdir for group in active}
            ready = next((group for group in waiting if group.workdir not in busy), None)
            with self._lock:
                share = pool.take(ready, active) if ready is not None else 0
                if ready is None or not share:
                    self._lock.wait(SOON_S)
                    continue
            waiting.remove(ready)
            ready.modules = [module for module in ready.modules if self.has_time(module)]
            with self._lock:
                if not ready.modules:
                    pool.give_back(share, active)
                    continue
                active.append(ready)
            threads.append(threading.Thread(target=self._build_group, args=(ready, share, pool, active), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def has_time(self, module: Module) -> bool:
        """Whether it is begun: not when it surely does not fit into what is left."""
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            self.is_late = True
            return False
        needed_s = self.least_s.get(module.name, 0.0)
        if needed_s <= left_s:
            return True
        self.settle(module, "not begun", f"it takes {needed_s:.0f} s at least, {left_s:.0f} s were left")
        return False

    def _build_group(self, group: Group, share: int, pool: Pool, active: list[Group]) -> None:
        """One ninja over all of them, again without what it cannot even begin."""
        try:
            while group.modules:
                blamed = self.build(group, pool.options(share), pool.variables())
                group.modules = [module for module in group.modules if not module.state] if blamed else []
        finally:
            with self._lock:
                active.remove(group)
                pool.give_back(share, active)
                self._lock.notify_all()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the clock and at the compilers meanwhile."""
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self.pool.close()

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(min(TICK_S, max(0.0, self.deadline - time.monotonic()) or TICK_S)):
            table = below.Table()
            running = self.costs.sample(table)
            held = sum(running.values()) + table.orphans({run.pid for run in running})
            with self._lock:
                self.pool.restore(held)
                are_jobs_free = self.pool.waiting() > 0
            for run, compilers in running.items():
                run.watch(compilers, are_jobs_free=are_jobs_free)
            if time.monotonic() >= self.deadline:
                self.is_late = True
                self.costs.stop()

    def build(self, group: Group, options: list[str], variables: dict[str, str]) -> set[str]:
        """Run ninja over modules of one log and settle them; whose fault it is when it could not begin."""
        modules = group.modules
        self.say(begun=[module.name for module in modules])
        blamed: set[str] = set()
        try:
            with locked(self.core, modules) as free:
                if free:
                    for module in free:
                        module.drop_damaged()
                    forget_missing(free)
                    left_s = max(1.0, self.deadline - time.monotonic()) if self.pool.has_tokens else 0.0
                    are_parts = all(module.part_of for module in free)
                    kept = remembered.KEEP_DEPFILES if are_parts else ()
                    run = Run(free, [*options, *kept], variables, left_s)
                    self.groups[run] = group
                    self.costs.begin(run)
                    code = run.wait(self.heard)
                    blamed = set() if code == 0 or run.failed else run.blamed()
                    self.conclude(free, run, blamed, good=code == 0 and not unfinished(free, run))
                    costs = {name: cost._asdict() for name, cost in self.costs.end(run).items()}
                    self.say(costs=costs, peak_mib=self.costs.peak_mib)
        except Exception as exc:
            for module in modules:
                self.settle(module, "left", f"{type(exc).__name__}: {exc}")
        for module in modules:
            if module.state == "left":
                self.tell(module)
        return blamed

    def conclude(self, modules: list[Module], run: Run, blamed: set[str], *, good: bool) -> None:
        """Settle what an ended ninja has settled; what it did not come to may be tried again."""
        for module in modules:
            failed = module.name if module.name in run.failed or module.name in run.linked else ""  # what it shares
            if failed in run.failed:
                # What was written for a part may be at fault itself, and says nothing of the module.
                output = run.failed_output.get(failed, "")
                is_ours = output in module.own
                if module.part_of and not is_ours:
                    remembered.keep(module, output, run.said(failed))
                self.settle(module, "left" if is_ours else "failed", run.said(failed))
            elif good or module.name in run.linked:
                self.settle(module, "built")
            elif run.signal:
                self.settle(module, "cut off", f"ninja was killed by signal {run.signal}")
            elif self.is_late:
                continue  # it was interrupted, and goes on where it was the next time
            elif module.name in blamed or not blamed:
                self.settle(module, "left", run.words or "ninja ended before it was built")

    def heard(self, run: Run) -> None:
        """Tell what has been linked at once, and how many objects there are, once a second."""
        for name in run.linked - run.failed.keys():
            self.settle(self.modules[name], "built")
        with self._lock:
            self.counted[run] = sum(run.objects.values())
            group = self.groups[run]
            group.objects = sum(module.objects for module in run.modules) - self.counted[run] - run.broken
            if time.monotonic() - self._told < 1.0:
                return
            self._told = time.monotonic()
            done = sum(self.counted.values())
        self.say(done=done, total=max(done, self.total))

    def settle(self, module: Module, state: str, detail: str = "") -> None:
        """Once only."""
        if not module.state:
            module.settle(state, detail)
            self.tell(module)

    def tell(self, module: Module) -> None:
        """Its state, for the record."""
        self.say(module=module.name, state=module.state, detail=module.detail[:OUTPUT_LIMIT])


def unfinished(modules: list[Module], run: Run) -> bool:
    """Whether a ninja that was ended, since nothing seemed to be left, has left something of these modules."""
    rest = [module for module in modules if module.name not in run.linked]
    if not run.is_over or not rest:
        return False
    dry = Run(rest, ["-n"], {})
    return dry.wait() != 0 or any(map(dry.touched, rest))
