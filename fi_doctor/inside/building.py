"""JIT modules that are wanted: what is stale of them, and building that.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fi_doctor.inside.ninja import OUTPUT_LIMIT, Pool, Run

BUSY_S = 1.0  # how long a module that another process builds is waited for

Say = Callable[..., None]


class Module:
    """One module that is wanted: what ninja is to be called with for it, and what there is left to do."""

    def __init__(self, spec: Any, users: list[list[str]]) -> None:
        self.spec = spec
        self.name: str = spec.name
        self.users = users
        self.workdir = ""
        self.ninja_file = ""
        self.objects = 0  # that are stale
        self.state = ""
        self.detail = ""
        self.part_of = ""  # the module that it is a part of
        self.own: tuple[str, ...] = ()  # of a part: objects whose sources were written for it

    def told(self) -> dict[str, object]:
        """For the record."""
        return {
            "objects": self.objects,
            "users": self.users,
            "state": self.state,
            "detail": self.detail[-OUTPUT_LIMIT:],
            "library": self.library(),
            "part_of": self.part_of,
        }

    def library(self) -> str:
        """The file that it is loaded from, once it is there; "" where FlashInfer does not say."""
        with contextlib.suppress(Exception):
            return str(self.spec.get_library_path())
        return ""

    def settle(self, state: str, detail: str = "") -> None:
        """Its state, which is final."""
        self.state, self.detail = state, detail


def prepare(core: Any, specs: Mapping[str, Any], users: Mapping[str, list[list[str]]]) -> dict[str, Module]:
    """Every module with its ninja file written; those that need no compiler are settled."""
    modules = {name: Module(spec, users[name]) for name, spec in sorted(specs.items())}
    original = core.run_ninja
    for module in modules.values():
        if getattr(module.spec, "is_aot", False):
            module.settle("prebuilt")
            continue

        def take_note(workdir: object, ninja_file: object, *_: object, module: Module = module, **__: object) -> None:
            module.workdir, module.ninja_file = str(workdir), str(ninja_file)

        core.run_ninja = take_note
        try:
            with locked(core, [module]) as free:
                for one in free:
                    one.spec.build(False, False)  # noqa: FBT003 - verbose and need_lock, by position in every version
        except Exception as exc:
            module.settle("left", f"{type(exc).__name__}: {exc}")
        if not module.state and not module.ninja_file:
            module.settle("left", "FlashInfer does not build it with ninja")
    core.run_ninja = original
    groups = list(by_workdir(modules).values())
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(look, groups))
    return modules


def by_workdir(modules: dict[str, Module]) -> dict[str, list[Module]]:
    """Modules that are not settled, by the folder where ninja keeps its log."""
    groups: dict[str, list[Module]] = {}
    for module in modules.values():
        if not module.state:
            groups.setdefault(module.workdir, []).append(module)
    return groups


def look(group: list[Module]) -> None:
    """Count what is stale of each, by ninja's own rules; a dry run writes nothing."""
    while group:
        run = Run(group, ["-n"], {})
        if run.wait() == 0:
            for module in group:
                module.objects = run.objects.get(module.name, 0)
                if not run.touched(module):
                    module.settle("up to date")
            return
        # One module that ninja cannot read (a source is missing) stops all that share a log.
        bad = run.blamed() or {module.name for module in group}
        for module in group:
            if module.name in bad:
                module.settle("left", run.words)
        group = [module for module in group if not module.state]


@contextlib.contextmanager
def locked(core: Any, modules: list[Module]) -> Iterator[list[Module]]:
    """FlashInfer's own locks on these modules; those that no other process builds just now."""
    with contextlib.ExitStack() as stack:
        free = []
        for module in modules:
            try:
                stack.enter_context(core.FileLock(module.spec.lock_path, timeout=BUSY_S, thread_local=False))
                free.append(module)
            except Exception as exc:  # noqa: PERF203 - filelock.Timeout, or a folder that does not let us
                module.settle("left", f"{type(exc).__name__}: {exc}")
        yield free


class Group:
    """Modules that one ninja builds, since they share its log."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.name = modules[0].name
        self.workdir = modules[0].workdir
        self.ninja_file = modules[0].ninja_file
        self.objects = sum(module.objects for module in modules)  # that are stale


def by_log(batch: list[Module]) -> list[list[Module]]:
    """The modules of a batch, those together that share a log, in the order of the first of each."""
    groups: dict[str, list[Module]] = {}
    for module in batch:
        groups.setdefault(module.workdir, []).append(module)
    return list(groups.values())


class Building:
    """What is stale, built in the given order until the time is up."""

    def __init__(
        self, core: Any, modules: dict[str, Module], job: dict[str, Any], order: dict[str, Any], say: Say
    ) -> None:
        self.core = core
        self.modules = modules
        self.jobs = max(1, int(job["jobs"]))
        self.batches = [[modules[name] for name in batch] for batch in order["batches"]]
        self.least_s: dict[str, float] = order["least_s"]
        self.deadline = time.monotonic() + float(order["seconds"])
        self.say = say
        self.counted: dict[Run, int] = {}  # objects done
        self.total = sum(module.objects for batch in self.batches for module in batch)
        self._told = 0.0
        self._lock = threading.Condition()

    def run(self) -> None:
        """One ninja for each module, or for all of a batch that share a log, side by side with one pool of jobs."""
        pool = Pool(self.jobs)
        threads: list[threading.Thread] = []
        waiting = [Group(modules) for batch in self.batches for modules in by_log(batch)]
        active: list[Group] = []
        while waiting or active:
            busy = {group.workdir for group in active}
            ready = next((group for group in waiting if group.workdir not in busy), None)
            with self._lock:
                share = pool.take(ready, active) if ready is not None else 0
                if ready is None or not share:
                    self._lock.wait(0.05)
                    continue
            waiting.remove(ready)
            ready.modules = [module for module in ready.modules if self.has_time(module)]
            if not ready.modules:
                pool.give_back(share)
                continue
            active.append(ready)
            threads.append(threading.Thread(target=self._build_group, args=(ready, share, pool, active), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def has_time(self, module: Module) -> bool:
        """Whether it is begun: not when it surely does not fit into what is left."""
        left_s = self.deadline - time.monotonic()
        needed_s = self.least_s.get(module.name, 0.0)
        if needed_s <= left_s:
            return True
        self.settle(module, "not begun", f"it takes {needed_s:.0f} s at least, {max(0.0, left_s):.0f} s were left")
        return False

    def _build_group(self, group: Group, share: int, pool: Pool, active: list[Group]) -> None:
        """One ninja over all of them, again without what it cannot even begin."""
        batch = group.modules
        try:
            while batch:
                blamed = self.build(batch, pool.options(share), pool.variables())
                batch = [module for module in batch if not module.state] if blamed else []
        finally:
            with self._lock:
                pool.give_back(share)
                active.remove(group)
                self._lock.notify_all()

    def build(self, modules: list[Module], options: list[str], variables: dict[str, str]) -> set[str]:
        """Run ninja over modules of one log and settle them; whose fault it is when it could not begin."""
        self.say(begun=[module.name for module in modules])
        blamed: set[str] = set()
        try:
            with locked(self.core, modules) as free:
                if free:
                    run = Run(free, options, variables)
                    code = run.wait(self.heard)
                    blamed = set() if code == 0 or run.failed else run.blamed()
                    self.conclude(free, run, blamed, good=code == 0)
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
            if module.name in run.failed:
                # What was written for a part may be at fault itself, and says nothing of the module.
                is_ours = run.failed_output.get(module.name, "") in (*module.own, "stubs.o", f"{module.part_of}.so")
                state = "left" if module.part_of and is_ours else "failed"
                self.settle(module, state, run.failed[module.name])
            elif good or module.name in run.linked:
                self.settle(module, "built")
            elif module.name in blamed or not blamed:
                self.settle(module, "left", run.words)

    def heard(self, run: Run) -> None:
        """Tell what has been linked at once, and how many objects there are, once a second."""
        for name in run.linked - run.failed.keys():
            self.settle(self.modules[name], "built")
        with self._lock:
            self.counted[run] = sum(run.objects.values())
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
