"""A process that serves, read from /proc: its variables, user, limits, interpreter and the CUDA libraries it loaded.

/proc/PID/environ holds the variables with which it was started: what it set itself since is not seen.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fi_doctor.errors import TargetError
from fi_doctor.facts.environment import neutralise, read_environment
from fi_doctor.facts.users import user_of_status
from fi_doctor.model import LoadedLibrary, Missing, Server
from fi_doctor.model.secrets import HIDDEN, looks_secret, names_secret

# ruff: noqa: PTH118, PTH119 - paths are those of another process, and texts here

_LARGEST = 16 << 20  # bytes read of one file; maps of a large server has some MiB
_LONGEST = 1000  # characters of its command that are shown
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]*")
_VARIABLE = re.compile(r"[A-Za-z_][^=\0]*=")
_LIBRARY = re.compile(
    r"/lib(cudart|nvrtc|cublas|cublasLt|cudnn|nccl|cuda|nvidia-ml)(?:-[0-9a-f]{6,})?\.so(?:\.[\d.]+)?$"
)
_SITE = re.compile(r"^(.*)/lib/python[\d.]+/(?:site|dist)-packages/")
_TOOLS = ("c++", "ninja", "nvcc")
_DELETED = " (deleted)"
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in linux/sched.h
_LISTED = "pgrep -f 'vllm serve' lists those that serve; then fi-doctor report --pid PID"


class Process(NamedTuple):
    """What was read of it, and what may not be shown as it is."""

    server: Server
    environ: dict[str, str]  # all of its variables
    cwd: str
    cpus: int | Missing  # those on which it may run
    state: str  # when it was started, which tells this process from a later one of the same number
    inner_pid: int  # its number in its own PID namespace; 0 where that is this one
    pythons: tuple[int, ...]  # children that run Python


def read_process(pid: int, shell: Mapping[str, str], proc: Path = Path("/proc")) -> Process:
    """The process. shell: the variables of this one. Raises TargetError where it cannot be read, or has ended."""
    folder = proc / str(pid)
    state = _state(folder, pid)
    status = _read(folder / "status", pid)
    environ = _environ(folder, pid, status)
    exe = _link(folder / "exe", pid)
    maps = _read(folder / "maps", pid)
    argv = [word for word in _read(folder / "cmdline", pid).split("\0") if word]
    user = user_of_status(status, environ, pid)
    if isinstance(user, Missing):
        raise _ended(pid)
    cwd = _link(folder / "cwd", pid)
    own_mounts = _own_mounts(folder, proc)
    server = Server(
        pid=pid,
        parent=_number(status, "PPid"),
        command=shown_command(argv),
        executable=neutralise(exe),
        python=_interpreter(argv, environ, exe, cwd, maps) if own_mounts is False else _elsewhere(own_mounts),
        user=user,
        limits=parse_limits(_read(folder / "limits", pid)),
        cgroup=_cgroup(_read(folder / "cgroup", pid)),
        libraries=tuple(loaded(maps)),
        own_mounts=own_mounts,
        root="/" if own_mounts is False else str(folder / "root"),
        shell=read_environment(shell),
        tools=_tools(environ, shell) if own_mounts is False else {},
    )
    if _state(folder, pid) != state:
        raise _ended(pid)
    return Process(server, environ, cwd, _cpus(pid), state, _inner_pid(status), _pythons(folder, proc))


def check_alive(process: Process, proc: Path = Path("/proc")) -> None:
    """Raises TargetError where it has ended since it was read."""
    pid = process.server.pid
    if _state(proc / str(pid), pid) != process.state:
        raise _ended(pid)


def as_user_of(pid: int, uid: int) -> str:
    """What examines a process as its own user."""
    who = f"-u '#{uid}' " if uid else ""
    return f'sudo {who}"$(command -v fi-doctor)" report --pid {pid} (in a container: docker exec -u {uid})'


def parse_environ(text: str) -> dict[str, str]:
    """/proc/PID/environ; what is no variable, such as the title that a process wrote over it, is left out."""
    entries = [entry for entry in text.split("\0") if _VARIABLE.match(entry)]
    return dict(entry.split("=", 1) for entry in reversed(entries))  # of two of a name getenv takes the first


def parse_limits(text: str) -> dict[str, str]:
    """/proc/PID/limits: the soft limit of each, with its unit where it has one."""
    limits = {}
    for line in text.splitlines()[1:]:
        words = re.split(r"\s{2,}", line.strip())
        if len(words) >= 3:
            unit = f" {words[3]}" if len(words) > 3 and words[1] != "unlimited" else ""
            limits[words[0]] = f"{words[1]}{unit}"
    return limits


def loaded(maps: str) -> Iterator[LoadedLibrary]:
    """The CUDA libraries in /proc/PID/maps, each file once, sorted by path."""
    paths = {line[line.index("/") :] for line in maps.splitlines() if "/" in line}
    for path in sorted(paths):
        plain = path.removesuffix(_DELETED)
        if found := _LIBRARY.search(plain):
            yield LoadedLibrary(name=found[1], path=neutralise(plain), deleted=plain != path)


def shown_command(argv: list[str]) -> str:
    """The words of a command as they may be shown: values of options that name a secret are hidden."""
    shown, option = [], ""
    for word in argv:
        name, equals, value = word.partition("=")
        if looks_secret(word) or (option and names_secret(option, word)):
            shown.append(HIDDEN)
        elif value and name.startswith("-") and names_secret(name, value):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(shlex.quote(word))
        option = word if word.startswith("-") and not equals else ""
    text = neutralise(" ".join(shown))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _interpreter(argv: list[str], environ: Mapping[str, str], exe: str, cwd: str, maps: str) -> str | Missing:
    """The path by which it was started: /proc/PID/exe has lost the links that make a virtual environment.

    By its first word, else VIRTUAL_ENV, else where its extension modules lie; each must lead to the program that runs.
    """
    program = exe.removesuffix(_DELETED)
    if not _PYTHON.fullmatch(os.path.basename(program)):
        return Missing(reason=f"{program} is no Python interpreter")
    if exe != program:
        return Missing(reason=f"{program} was removed or replaced since the process was started")
    first = argv[0] if argv else ""
    candidates = [os.path.join(cwd, first)] if "/" in first else _on_path(first, environ)
    if environ.get("VIRTUAL_ENV"):
        candidates.append(os.path.join(environ["VIRTUAL_ENV"], "bin", "python"))
    prefixes = (
        found[1] for line in maps.splitlines() if "/" in line and (found := _SITE.match(line[line.index("/") :]))
    )
    candidates += [f"{prefix}/bin/python" for prefix in dict.fromkeys(prefixes)]
    return next((path for path in candidates if os.path.realpath(path) == program), program)


def _tools(environ: Mapping[str, str], shell: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Where builds of the process and builds by hand find what they start by its name."""
    there, here = (variables.get("PATH", os.defpath) for variables in (environ, shell))
    return {name: (_which(name, there), _which(name, here)) for name in _TOOLS}


def _which(name: str, path: str) -> str:
    return neutralise(shutil.which(name, path=path) or "")


def _on_path(name: str, environ: Mapping[str, str]) -> list[str]:
    return [os.path.join(folder, name) for folder in environ.get("PATH", "").split(":") if folder and name]


def _environ(folder: Path, pid: int, status: str) -> dict[str, str]:
    environ = parse_environ(_read(folder / "environ", pid))
    if environ:
        return environ
    parent = _number(status, "PPid")
    raise TargetError(
        f"the variables of process {pid} are not known",
        why="it has none, or has written a title over them (setproctitle), as vLLM's engine and workers do",
        todo=f"name the process that started it: fi-doctor report --pid {parent}",
    )


def _own_mounts(folder: Path, proc: Path) -> bool | Missing:
    try:
        return os.readlink(folder / "ns/mnt") != os.readlink(proc / "self/ns/mnt")  # noqa: PTH115 - no path is meant
    except OSError as error:
        return Missing(reason=f"{folder / 'ns/mnt'} cannot be read: {error.strerror}")


def _elsewhere(own_mounts: bool | Missing) -> Missing:  # noqa: FBT001 - a fact
    if isinstance(own_mounts, Missing):
        return own_mounts
    return Missing(reason="the process has a file system of its own, as in a container: its paths mean nothing here")


def _cgroup(text: str) -> str:
    """Its group in version 2, else that of its memory, else the first."""
    groups = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    wanted = [one for one in groups if one[1] == "memory"] or [one for one in groups if not one[1]] or groups
    return neutralise(wanted[0][2]) if wanted else ""


def _cpus(pid: int) -> int | Missing:
    try:
        return len(os.sched_getaffinity(pid))
    except (OSError, AttributeError) as error:
        return Missing(reason=f"the CPUs of process {pid} are not told: {error}")


def _state(folder: Path, pid: int) -> str:
    """When it was started; TargetError where it has ended."""
    words = _read(folder / "stat", pid).rpartition(")")[2].split()
    if len(words) < 20 or words[0] in ("Z", "X"):
        raise _ended(pid)
    if int(words[6]) & _KERNEL_THREAD:
        raise TargetError(f"process {pid} cannot be examined", why="it is a thread of the kernel", todo=_LISTED)
    return words[19]


def _inner_pid(status: str) -> int:
    found = re.search(r"^NSpid:\s*\d+(?:\s+\d+)*\s+(\d+)\s*$", status, re.MULTILINE)
    return int(found[1]) if found else 0


def _pythons(folder: Path, proc: Path) -> tuple[int, ...]:
    """Its children that run Python, as a shell or a launcher has them."""
    try:
        text = (folder / "task" / folder.name / "children").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    children = [int(word) for word in text.split() if word.isdigit()]
    return tuple(child for child in children if _PYTHON.fullmatch(os.path.basename(_exe(proc / str(child)))))


def _exe(folder: Path) -> str:
    try:
        return os.readlink(folder / "exe").removesuffix(_DELETED)  # noqa: PTH115 - it may end with " (deleted)"
    except OSError:
        return ""


def _number(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s*(\d+)", status, re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path: Path, pid: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "surrogateescape")
    except PermissionError as error:
        raise _forbidden(path, pid) from error
    except OSError as error:
        raise _ended(pid, missing=path.name == "stat") from error


def _link(path: Path, pid: int) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - it may end with " (deleted)"
    except PermissionError as error:
        raise _forbidden(path, pid) from error
    except OSError as error:
        raise _ended(pid) from error


def _forbidden(path: Path, pid: int) -> TargetError:
    ours = os.geteuid()
    try:
        owner = path.parent.stat().st_uid
    except OSError:
        owner = ours
    theirs = "" if owner == ours else f"; it belongs to user {owner}"
    if theirs and ours:
        todo = as_user_of(pid, owner)
    else:
        todo = f"give this container SYS_PTRACE, or run fi-doctor where process {pid} runs"
    return TargetError(f"process {pid} cannot be read", why=f"{path} may not be read by user {ours}{theirs}", todo=todo)


def _ended(pid: int, *, missing: bool = False) -> TargetError:
    return TargetError(
        f"there is no process {pid}" if missing else f"process {pid} ended while it was read",
        why="" if missing else "what was read of it does not belong together",
        todo=_LISTED,
    )
