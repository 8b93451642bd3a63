"""Who serves, as --as-user and --pid say, and what is examined then."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from fi_doctor.errors import TargetError, UsageError
from fi_doctor.facts.machine import Serving
from fi_doctor.facts.packages import SURVEY_SCRIPT
from fi_doctor.model import Missing

if TYPE_CHECKING:
    from fi_doctor.facts.server import Process
    from fi_doctor.model import User


class Examined(NamedTuple):
    """The interpreter, the variables with which it is examined, and who serves where it is not this process."""

    python: str
    environ: dict[str, str] | None
    serving: Serving | None


def check(as_user: str | None, pid: int | None, *, recorded: str = "") -> None:
    """UsageError where these do not go together. recorded: the option that names a recording."""
    given = "--pid" if pid is not None else "--as-user" if as_user is not None else ""
    if given and recorded:
        raise UsageError(f"{given}: nothing of this machine is read with {recorded}", todo="leave one of the two out")
    if pid is not None and as_user is not None:
        raise UsageError("--pid and --as-user: the process has a user of its own", todo=f"fi-doctor check --pid {pid}")
    if as_user == "":
        raise UsageError("--as-user: '' names no user", todo="fi-doctor check --as-user 1000:1000")


def examined(python: str | None, as_user: str | None, pid: int | None) -> Examined:
    """What is examined. Errors: UsageError for a user that nobody knows, TargetError for a process that is no help."""
    if pid is not None:
        from fi_doctor.facts.server import read_process

        process = read_process(pid, os.environ)
        _check_trust(process)
        serving = Serving(process.server.user, process)
        return Examined(python or _python_of(process), serving.environ(os.environ), serving)
    ours = sys.executable if python is None else python
    if as_user is None:
        return Examined(ours, None, None)
    from fi_doctor.facts.users import named_user

    user = named_user(as_user, os.environ)
    serving = Serving(user, kept="" if user.is_own else _why_kept(user))
    return Examined(ours, serving.environ(os.environ), serving)


def _why_kept(user: User) -> str:
    """Why nothing can be started as that user; "" where it can."""
    from fi_doctor import acting
    from fi_doctor.facts.reach import why_not_started

    obstacle = acting.obstacle(acting.Account(user.uid, user.gid, user.groups))
    return obstacle or why_not_started(user, str(SURVEY_SCRIPT.parent), tempfile.gettempdir())


def _check_trust(process: Process) -> None:
    """TargetError where root would start what another user has chosen, with that user's variables."""
    from fi_doctor.facts.server import as_user_of

    pid, uid = process.server.pid, process.server.user.uid
    if os.geteuid() == 0 and uid != 0:
        raise TargetError(
            f"root does not examine process {pid} of user {uid}",
            why="its interpreter and its variables, LD_PRELOAD among them, are that user's, and would run as root",
            todo=as_user_of(pid, uid),
        )


def _python_of(process: Process) -> str:
    """The interpreter of the process, where it can be started from here."""
    server = process.server
    if not isinstance(server.python, Missing):
        return server.python
    raise TargetError(
        f"the interpreter of process {server.pid} cannot be examined from here",
        why=f"{server.python.reason} (it runs {server.command or server.executable})",
        todo=_todo(process),
    )


def _todo(process: Process) -> str:
    server = process.server
    if server.own_mounts is True:
        inner = f" --pid {process.inner_pid}" if process.inner_pid else ""
        return (
            f"fi-doctor report{inner} inside of that container (docker exec, kubectl exec; its files are below "
            f"{server.root}), or name an interpreter of this side with --python"
        )
    children = " or ".join(f"--pid {child}" for child in process.pythons)
    if children:
        return f"fi-doctor report {children}, which it started"
    return f"fi-doctor report --pid {server.pid} --python /path/to/venv/bin/python, or the process of vllm serve itself"
