"""The machine as the serving user finds it, and the facts beside it as the serving process has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from fi_doctor import acting
from fi_doctor.facts import cgroups
from fi_doctor.facts.driver_files import read_driver_files
from fi_doctor.facts.environment import neutralise
from fi_doctor.facts.folders import Surroundings, read_folders
from fi_doctor.facts.mounts import read_mounts
from fi_doctor.facts.network import read_network
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.reach import read_unreachable
from fi_doctor.facts.system import read_namespaces, read_size, usable_cpus
from fi_doctor.facts.users import own_user
from fi_doctor.model import Facts, FlashInfer, Machine, Missing, SystemFacts, User

if TYPE_CHECKING:
    from fi_doctor.facts.server import Process


class Serving(NamedTuple):
    """Who serves, where it is not this process: a user that is named, or a process that runs."""

    user: User
    process: Process | None = None
    kept: str = ""  # why nothing can be started as that user, who is another one

    def environ(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The variables of what serves: the process's own, or ours in the home of that user.

        Where that user is another one they say that children are started as that one, who is told of no folders of
        ours. Where that cannot be, Python is kept from the packages in that home: they would run as this user.
        """
        if self.process:
            return dict(self.process.environ)
        user, home = self.user, {"HOME": self.user.home}
        if user.is_own:
            return {**ours, **home}
        if self.kept:
            return {**ours, **home, "PYTHONNOUSERSITE": "1"}
        name = str(user.uid) if isinstance(user.name, Missing) else user.name
        word = acting.word_for(acting.Account(user.uid, user.gid, user.groups))
        theirs = {one: value for one, value in ours.items() if not _is_private(one, value, ours.get("HOME", ""))}
        return {**theirs, **home, "USER": name, "LOGNAME": name, acting.VARIABLE: word}

    def started_as(self, refused: str) -> int | Missing | None:
        """For Machine. refused: why the interpreter could not be started as that user after all."""
        if self.process or self.user.is_own:
            return None
        why = self.kept or refused
        return Missing(reason=why) if why else self.user.uid


def with_machine(
    facts: Facts, seen: Survey, environ: Mapping[str, str], serving: Serving | None, refused: str = ""
) -> Facts:
    """The facts with the machine read, and where somebody else serves, as they are for that one.

    refused: why the interpreter was not started as the user who serves.

    Raises TargetError where the process has ended meanwhile: what was read does not belong together.
    """
    process = serving.process if serving else None
    name = str(process.server.pid) if process else "self"
    user = serving.user if serving else own_user(environ)
    around = Surroundings(
        user=user,
        environ=environ,
        mounts=read_mounts(name),
        root=process.server.root if process else "/",
        cwd=process.cwd if process else "",
    )
    origin = seen.modules.get("tvm_ffi", Missing(reason="tvm_ffi was not looked for"))
    site = origin if isinstance(origin, Missing) else str(Path(origin).parent.parent)
    machine = Machine(
        user=replace(user, home=neutralise(user.home)),
        folders=read_folders(facts.flashinfer, site, around),
        network=read_network(facts.flashinfer, environ, Path("/proc", name)),
        unreachable=read_unreachable(seen, user, around.mounts) if serving and around.root == "/" else (),
        driver_files=read_driver_files(environ, elsewhere=around.root if around.root != "/" else ""),
        started_as=serving.started_as(refused) if serving else None,
    )
    system = _of_process(facts.system, process) if process else facts.system
    if process:
        # Here, because most checks name no process, and each import costs them a few milliseconds.
        from fi_doctor.facts.server import check_alive  # noqa: PLC0415

        check_alive(process)
    options = tuple(user.found_by.split(" ", 1)) if serving else ()
    return replace(
        facts,
        interpreter=replace(facts.interpreter, serving=options),
        machine=machine,
        server=process.server if process else facts.server,
        system=system,
        flashinfer=_of_user(facts.flashinfer, machine) if serving else facts.flashinfer,
    )


def _is_private(name: str, value: str, home: str) -> bool:
    """Whether a variable names a folder of the XDG specification that is for the user of this process alone."""
    return name == "XDG_RUNTIME_DIR" or (
        name.startswith("XDG_") and len(home) > 1 and Path(value).is_relative_to(Path(home))
    )


def _of_user(flashinfer: FlashInfer | Missing, machine: Machine) -> FlashInfer | Missing:
    """Whether that user may write the cache, and whose it is where that user sees it."""
    cache = next((folder for folder in machine.folders if folder.purpose == "jit-cache"), None)
    if isinstance(flashinfer, Missing) or cache is None:
        return flashinfer
    return replace(flashinfer, cache_writable=cache.writable, cache_owner=cache.owner)


def _of_process(system: SystemFacts, process: Process) -> SystemFacts:
    """CPUs, memory and namespaces of the process instead of ours."""
    pid, root = str(process.server.pid), Path(process.server.root)
    allowed = process.cpus if isinstance(process.cpus, int) else os.cpu_count() or 1
    ipc, own_pid = read_namespaces(Path("/proc", pid))
    return replace(
        system,
        cpus=usable_cpus(allowed, cgroups.read_cpu_quota(process=pid)),
        memory_limit_mib=cgroups.read_memory_limit(process=pid),
        memory_left_mib=cgroups.read_memory_left(process=pid),
        shm_mib=read_size(root / "dev/shm"),
        own_ipc_namespace=ipc,
        own_pid_namespace=own_pid,
    )
