"""JIT modules that are wanted, and what is stale of each.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fi_doctor.inside.elf import is_library
from fi_doctor.inside.excerpt import OUTPUT_LIMIT
from fi_doctor.inside.ninja import Run

LOOKS = 8  # at a time, each a process that waits for the disk
BUSY_S = 1.0  # how long a module that another process builds is waited for


class Module:
    """One module that is wanted: what ninja is to be called with for it, and what there is left to do."""

    def __init__(self, spec: Any, users: list[list[str]]) -> None:
        self.spec = spec
        self.name: str = spec.name
        self.users = users
        self.workdir = ""
        self.ninja_file = ""
        self.target = ""  # of that file, where others may build there; "" for all
        self.objects = 0  # that are stale; what several share counts for the first of them
        self.is_damaged = False  # there is a file that is no library, where ninja sees nothing to do
        self.moved = ("", "")  # a folder that stands for another one, and that one
        self.state = ""
        self.detail = ""
        self.part_of = ""  # the module that it is a part of
        self.is_spare = False  # such a part, to be built only where there is no time for the whole
        self.is_begun = False  # such a part, of which objects are there
        self.own: tuple[str, ...] = ()  # of a part: files that are not made from a source of the module

    def told(self) -> dict[str, object]:
        """For the record."""
        return {
            "objects": self.objects,
            "users": self.users,
            "state": self.state,
            "detail": self.detail[-OUTPUT_LIMIT:],
            "library": self.library(),
            "part_of": self.part_of,
            "spare": self.is_spare,
            "begun": self.is_begun,
        }

    def library(self) -> str:
        """The file that it is loaded from, once it is there; "" where FlashInfer does not say."""
        with contextlib.suppress(Exception):
            return str(self.spec.get_library_path()).replace(*self.moved, 1)
        return ""

    def settle(self, state: str, detail: str = "") -> None:
        """Its state, which is final; nothing is built where no library is."""
        library = self.library()
        if state == "built" and library and not is_library(library):
            state, detail = "left", f"ninja has nothing left to do, and {library} is no library"
        self.state, self.detail = state, detail

    def drop_damaged(self) -> None:
        """Remove what stands in the place of its library, so that ninja links it anew."""
        if self.is_damaged:
            Path(self.library()).unlink(missing_ok=True)


def prepare(core: Any, specs: Mapping[str, Any], users: Mapping[str, list[list[str]]]) -> dict[str, Module]:
    """Every module with its ninja file written; those that ninja does not build are settled."""
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
                    drop_half_written(one.spec)
                    one.spec.build(False, False)  # noqa: FBT003 - verbose and need_lock, by position in every version
        except Exception as exc:
            module.settle("left", f"{type(exc).__name__}: {exc}")
        if not module.state and not module.ninja_file:
            module.settle("left", "FlashInfer does not build it with ninja")
    core.run_ninja = original
    return modules


def drop_half_written(spec: Any) -> None:
    """Remove a ninja file that does not end as it should, on which a full disk may be to blame.

    FlashInfer up to 0.6.11 keeps the one that is there; for ninja an empty one means that there is nothing to do.
    """
    with contextlib.suppress(AttributeError, FileNotFoundError, UnicodeDecodeError):
        path = Path(spec.ninja_path)
        if not re.search(r"^default .*\n\s*\Z", path.read_text(encoding="utf-8"), re.MULTILINE):
            path.unlink()


def by_log(modules: Iterable[Module]) -> list[list[Module]]:
    """Those together that share ninja's log, in the order of the first of each."""
    groups: dict[str, list[Module]] = {}
    for module in modules:
        groups.setdefault(module.workdir, []).append(module)
    return list(groups.values())


def look_at_all(modules: Iterable[Module]) -> None:
    """Count what is stale of all that are not settled; those of which nothing is are."""
    with ThreadPoolExecutor(max_workers=LOOKS) as pool:
        list(pool.map(look, by_log(module for module in modules if not module.state)))


def look(group: list[Module]) -> None:
    """Count what is stale of each, by ninja's own rules; a dry run writes nothing."""
    while group:
        try:
            run = Run(group, ["-n"], {})
            code = run.wait()
        except OSError as exc:  # no ninja, a folder that cannot be made
            for module in group:
                module.settle("left", f"{type(exc).__name__}: {exc}")
            return
        if code == 0:
            shared = run.objects.get("", 0)
            for module in group:
                module.objects = run.objects.get(module.name, 0)
                library = module.library()
                if run.touched(module):
                    module.objects, shared = module.objects + shared, 0
                elif library and not is_library(library):
                    module.objects, module.is_damaged = 1, True
                else:
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
        free: list[Module] = []
        held = set()
        for module in modules:
            try:
                if module.spec.lock_path not in held:
                    stack.enter_context(core.FileLock(module.spec.lock_path, timeout=BUSY_S, thread_local=False))
                held.add(module.spec.lock_path)
                free.append(module)
            except TimeoutError:  # noqa: PERF203 - filelock.Timeout is one
                module.settle("left", f"another process holds its lock, {module.spec.lock_path}")
            except Exception as exc:  # a folder that does not let us
                module.settle("left", f"{type(exc).__name__}: {exc}")
        yield free
