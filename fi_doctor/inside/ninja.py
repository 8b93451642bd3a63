"""Calls of ninja: one that is read line by line, and the jobs that several of them share.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

OUTPUT_LIMIT = 8 * 1024  # of one failed command
SETTLED_S = 0.3  # after which a ninja that was started has taken its jobs
QUIET_S = 0.3  # between a command and that it failed there is no time

_STATUS = re.compile(r"\[(\d+)/(\d+)\] ")
_OUTPUT = re.compile(r" -o (\S+)")
_FAILED = re.compile(r"FAILED: (?:\[[^\]]*\] )?(\S+)")
_CANNOT = re.compile(r"ninja: (?:error|fatal): ")


class Target(Protocol):
    """One module: what ninja is to be called with for it."""

    name: str
    workdir: str  # where ninja keeps its log
    ninja_file: str
    objects: int  # that are stale


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Have the kernel interrupt ninja when this process is gone; an interrupted ninja ends its compilers."""
    with contextlib.suppress(AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


class Run:
    """One ninja over some modules that share a log, read line by line."""

    def __init__(self, modules: Sequence[Target], options: list[str], variables: dict[str, str]) -> None:
        self.modules = modules
        self.objects: dict[str, int] = {}  # finished, by module
        self.linked: set[str] = set()
        self.failed: dict[str, str] = {}  # module -> what its first failed command said
        self.failed_output: dict[str, str] = {}  # module -> the file that this command was to make
        self.words = ""  # what ninja itself said
        self._names = {module.name for module in modules}
        self._only = modules[0].name if len(modules) == 1 else ""
        self._failing = ""
        self._printed = ""  # output of the command that was printed last
        self._manifest = manifest(modules) if len(modules) > 1 else -1
        file = f"/proc/{os.getpid()}/fd/{self._manifest}" if self._manifest >= 0 else modules[0].ninja_file
        workdir = Path(modules[0].workdir).resolve()
        workdir.mkdir(parents=True, exist_ok=True)
        # All that can be built of a module that fails is built: its own probe then compiles what failed and no more.
        command = ["ninja", "-v", "-C", str(workdir), "-f", file, "-k", "0", *options]
        kept = {name: value for name, value in os.environ.items() if name not in ("MAX_JOBS", "MAKEFLAGS")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**kept, "NINJA_STATUS": "[%f/%t] ", **variables},
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the kernel's, no lock is taken
        )

    def wait(self, heard: Callable[[Run], None] | None = None) -> int:
        """Its exit status. heard: called whenever something is known anew."""
        for line in self._lines():
            self._take(line)
            if heard is not None:
                heard(self)
        self._count()
        if self._manifest >= 0:
            os.close(self._manifest)
        return self._process.wait()

    def _lines(self) -> Iterator[str]:
        """What it prints; an empty line when it stays silent, so that the command that was printed last is counted."""
        if self._process.stdout is None:
            return
        rest = b""
        with self._process.stdout as stream:
            while True:
                if not select.select([stream], [], [], QUIET_S if self._printed else None)[0]:
                    self._count()
                    yield ""
                    continue
                chunk = os.read(stream.fileno(), 1 << 16)
                if not chunk:
                    return
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace") + "\n"

    def touched(self, module: Target) -> bool:
        """Whether anything was done for it."""
        return module.name in self.linked or module.name in self.objects

    def blamed(self) -> set[str]:
        """Whose fault it is that ninja did not begin, by the names in what it said."""
        parts = set(re.split(r"[/'\s]", self.words))
        return {module.name for module in self.modules if module.name in parts}

    def _take(self, line: str) -> None:
        status = _STATUS.match(line)
        failed = _FAILED.match(line)
        if status:
            self._count()
            outputs = _OUTPUT.findall(line)
            self._printed = outputs[-1] if outputs else "?"
            self._failing = ""
        elif failed:
            self._printed = ""
            self._failing = self._module_of(failed[1])
            self.failed.setdefault(self._failing, "")
            self.failed_output.setdefault(self._failing, Path(failed[1]).name)
        elif _CANNOT.match(line):
            self.words += line
        elif self._failing and len(self.failed[self._failing]) < OUTPUT_LIMIT:
            self.failed[self._failing] += line[:OUTPUT_LIMIT]

    def _count(self) -> None:
        """Count the command that was printed last; one that failed is printed, too, before that is said of it."""
        name = self._module_of(self._printed)
        if self._printed.endswith(".so"):
            self.linked.add(name)
        elif self._printed:
            self.objects[name] = self.objects.get(name, 0) + 1
        self._printed = ""

    def _module_of(self, output: str) -> str:
        """An object lies in the folder of its module."""
        if self._only:
            return self._only
        return next((part for part in reversed(Path(output).parts) if part in self._names), "")


def manifest(modules: Sequence[Target]) -> int:
    """A file in memory that names the ninja files of all modules."""
    escaped = (re.sub(r"([$ :])", r"$\1", str(Path(module.ninja_file).resolve())) for module in modules)
    fd = os.memfd_create("fi-doctor-ninja")
    os.write(fd, "".join(["ninja_required_version = 1.3\n", *(f"subninja {path}\n" for path in escaped)]).encode())
    return fd


class Pool:
    """The compile jobs that several ninjas share: through a pipe of tokens where ninja can, else dealt out."""

    def __init__(self, jobs: int) -> None:
        self._jobs = self._free = jobs
        self._since = 0.0  # when a token was looked for last
        self._has_tokens = ninja_version() >= (1, 13)
        if self._has_tokens:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)
            os.write(self._write, b"+" * jobs)

    def take(self, module: Target, active: Sequence[Target]) -> int:
        """Jobs for the next module, 0 when there are none now: those that are begun use them all."""
        if not self._has_tokens:
            share = min(max(1, module.objects), self._free)
            if active and 2 * share < min(max(1, module.objects), self._jobs):
                return 0
            self._free -= share
            return share
        busy = sum(max(1, one.objects) for one in active) >= self._jobs
        # Tokens that lie about for a while: the modules that are begun have fewer commands left than jobs.
        if busy and time.monotonic() - self._since < SETTLED_S:
            return 0
        try:
            taken = len(os.read(self._read, 1))
        except BlockingIOError:
            taken = 0
        self._since = time.monotonic()
        return taken

    def give_back(self, share: int) -> None:
        """They are free again."""
        if self._has_tokens:
            os.write(self._write, b"+" * share)
        else:
            self._free += share

    def options(self, share: int) -> list[str]:
        """For a ninja that has this share; one with tokens has a job of its own and takes more from the pool."""
        return [] if self._has_tokens else [f"-j{share}"]

    def variables(self) -> dict[str, str]:
        """Which tell it of the pool. The pipe is opened anew through its name, so nobody has to inherit it."""
        if not self._has_tokens:
            return {}
        return {"MAKEFLAGS": f" -j{self._jobs} --jobserver-auth=fifo:/proc/{os.getpid()}/fd/{self._read}"}


def ninja_version() -> tuple[int, ...]:
    """(1, 13) for 1.13.2, which knows a jobserver."""
    try:
        said = subprocess.run(
            ["ninja", "--version"],  # noqa: S607 - the one that FlashInfer calls
            check=False,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    except OSError:
        return (0,)
    return tuple(int(number) for number in re.findall(r"\d+", said.stdout)[:2])
