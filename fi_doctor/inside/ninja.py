"""Calls of ninja: one that is read line by line, and small ones.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from fi_doctor.inside import below
from fi_doctor.inside.excerpt import excerpt, pieces
from fi_doctor.inside.looks import LAST_LOOK, LOOK, looks, pause_s

_LINE_LIMIT = 1 << 18  # bytes of a line without an end, of which a command line is one
VERSION_S = 5.0  # for ninja to say its version
QUIET_S = 0.3  # between a command and that it failed there is no time

SILENT = "a command ended without a word, as one that is killed does"  # as in model/phrases.py
_IDLE_LOOKS = 3  # without a compiler, although there are jobs: nothing is left to do
_STATUS = re.compile(r"\[(\d+)/(\d+)\] ")
_OUTPUT = re.compile(r" -o (\S+)")
_FAILED = re.compile(r"FAILED: (?:\[code=(\d+)\] )?(\S+)")
_CANNOT = re.compile(r"ninja: (?:error|fatal): ")


class Target(Protocol):
    """One module: what ninja is to be called with for it."""

    name: str
    workdir: str  # where ninja keeps its log
    ninja_file: str
    target: str  # of that file; "" for all that it builds
    objects: int  # that are stale


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Have the kernel interrupt ninja when this process is gone; an interrupted ninja ends its compilers."""
    with contextlib.suppress(AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


_NUMBERS = itertools.count()


class Run:
    """One ninja over some modules that share a log, read line by line."""

    def __init__(
        self, modules: Sequence[Target], options: list[str], variables: dict[str, str], seconds: float = 0.0
    ) -> None:
        """seconds: where it takes its jobs from a pool, for how long it may run."""
        self.modules = modules
        self.objects: dict[str, int] = {}  # finished, by module; "" for what several modules share
        self.linked: set[str] = set()
        self.failed: dict[str, str] = {}  # module, as above -> what its first failed command said
        self.failed_output: dict[str, str] = {}  # module -> the file that this command was to make
        self.broken = 0  # objects that do not compile
        self.words = ""  # what ninja itself said
        self.cpu_s = 0.0  # of it and of all that it ran, once it has ended
        self.signal = 0  # that ended it
        self.begun_at = time.monotonic()
        self.is_over = False  # nothing was left for it to do, and it was ended
        self._is_stopped = False
        self._seconds = seconds
        self._idle_since = self.begun_at
        self._mark = f"{os.getpid()}-{next(_NUMBERS)}"
        self._names = {module.name for module in modules}
        self._only = modules[0].name if len(modules) == 1 else ""
        self._failing: str | None = None  # the module whose command is failing
        self._printed = ""  # output of the command that was printed last
        self._manifest = manifest(modules, seconds) if seconds or len(modules) > 1 else -1
        file = f"/proc/{os.getpid()}/fd/{self._manifest}" if self._manifest >= 0 else modules[0].ninja_file
        workdir = self.workdir = Path(modules[0].workdir).resolve()
        workdir.mkdir(parents=True, exist_ok=True)
        # All that can be built of a module that fails is built: its own probe then compiles what failed and no more.
        targets = [module.target for module in modules if module.target]
        targets += [LAST_LOOK] if targets and seconds else []
        command = ["ninja", "-v", "-C", str(workdir), "-f", file, "-k", "0", *options, *targets]
        kept = {name: value for name, value in os.environ.items() if name not in ("MAX_JOBS", "MAKEFLAGS")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**kept, "NINJA_STATUS": "[%f/%t] ", below.MARKER: self._mark, **variables},
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the kernel's, no lock is taken
        )

    def wait(self, heard: Callable[[Run], None] | None = None) -> int:
        """Its exit status. heard: called whenever something is known anew."""
        for piece in self._pieces():
            self._take(piece)
            if heard is not None:
                heard(self)
            if self._seconds and self._is_done():
                self.finish()
        self._count()
        if self._manifest >= 0:
            os.close(self._manifest)
            self._manifest = -1
        return self._reap()

    @property
    def pid(self) -> int:
        """Its number, which is its own until wait() is over."""
        return self._process.pid

    def watch(self, compilers: int, *, are_jobs_free: bool) -> None:
        """To be called now and then: end it when it does nothing but look for jobs although there are some."""
        now = time.monotonic()
        if compilers or not are_jobs_free:
            self._idle_since = now
        elif self._seconds and now - self._idle_since > _IDLE_LOOKS * pause_s(self._seconds):
            self.finish()

    def finish(self) -> None:
        """Nothing is left for it to do."""
        if not self.is_over:
            self.is_over = True
            self.stop()

    def stop(self) -> None:
        """Interrupt it: it ends its compilers, deletes what they were writing and gives back its tokens."""
        if self._process.returncode is None:
            self._is_stopped = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def module_of(self, command: str) -> str:
        """The module that a command of it works for, by what it writes; "" when that cannot be told."""
        outputs = _OUTPUT.findall(f"{command} ")
        return self._only or (self._module_of(outputs[-1]) if outputs else "")

    def _is_done(self) -> bool:
        """Whether all is linked, or has failed with nothing left to compile beside what failed."""
        if self._names <= self.linked:
            return True
        settled = "" in self.failed or self._names <= self.linked | self.failed.keys()
        return settled and sum(self.objects.values()) + self.broken >= sum(module.objects for module in self.modules)

    def _reap(self) -> int:
        """Its exit status, as subprocess has it, with nothing left of it: neither compilers nor halves of files."""
        _, status, usage = os.wait4(self.pid, 0)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._process.returncode = code
        if code < 0 and not self.is_over:
            self.signal = -code
        if code < 0 or self._is_stopped:
            commands = below.end_orphans(self._mark)
            for output in {one for command in commands for one in _OUTPUT.findall(f"{command} ")}:
                path = self.workdir / output
                if path.suffix in (".o", ".so") and self.workdir.parent in path.parents:
                    with contextlib.suppress(OSError):
                        path.unlink()
        return int(bool(self.failed)) if self.is_over else code

    def _pieces(self) -> Iterator[str]:
        """What it prints; nothing when it stays silent, so that the command that was printed last is counted."""
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
                whole, end, rest = (rest[:_LINE_LIMIT] + chunk).rpartition(b"\n")
                yield from (piece.decode(errors="replace") for piece in pieces(whole + end))

    def touched(self, module: Target) -> bool:
        """Whether anything was done for it."""
        return module.name in self.linked or module.name in self.objects

    def said(self, name: str) -> str:
        """What the first failed command of a module said; of one that said nothing there is only its command line."""
        text = self.failed[name]
        lines = [line for line in text.splitlines() if not line.startswith("ninja: ")]
        is_silent = len(lines) < 2 and not text.startswith("error: ")
        return f"error: {SILENT}: {text}" if is_silent else text

    def blamed(self) -> set[str]:
        """Whose fault it is that ninja did not begin, by the names in what it said."""
        parts = set(re.split(r"[/'\s]", self.words))
        return {module.name for module in self.modules if module.name in parts}

    def _take(self, line: str) -> None:
        status = _STATUS.match(line)
        failed = _FAILED.match(line)
        if LOOK in line:
            self._count()
            self._failing = None
        elif failed and failed[2].startswith(".look"):
            pass
        elif status:
            self._count()
            outputs = _OUTPUT.findall(line)
            self._printed = outputs[-1] if outputs else "?"
            self._failing = None
        elif failed:
            self._printed = ""
            self.broken += not failed[2].endswith(".so")
            self._failing = self._module_of(failed[2])
            self.failed.setdefault(self._failing, _killed(int(failed[1] or 0)))
            self.failed_output.setdefault(self._failing, Path(failed[2]).name)
        elif _CANNOT.match(line):
            self.words = excerpt(self.words + line)
        elif self._failing is not None:
            self.failed[self._failing] = excerpt(self.failed[self._failing] + line)

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


def manifest(modules: Sequence[Target], seconds: float) -> int:
    """A file in memory that names the ninja files of all modules, and looks for jobs for so many seconds (0: none)."""
    files = list(dict.fromkeys(Path(module.ninja_file).resolve() for module in modules))
    escaped = (re.sub(r"([$ :])", r"$\1", str(file)) for file in files)
    lines = [
        "ninja_required_version = 1.3",
        *(looks(seconds) if seconds else []),
        *(f"subninja {one}" for one in escaped),
    ]
    # Where nothing is called the default, everything is.
    if seconds and any(re.search(r"^default ", file.read_text("utf-8"), re.MULTILINE) for file in files):
        lines.append(f"default {LAST_LOOK}")
    fd = os.memfd_create("fi-doctor-ninja")
    with os.fdopen(os.dup(fd), "w") as file:
        file.write("\n".join([*lines, ""]))
    return fd


def ninja_version() -> tuple[int, ...]:
    """(1, 13) for 1.13.2, which knows a jobserver."""
    try:
        said = subprocess.run(
            ["ninja", "--version"],  # noqa: S607 - the one that FlashInfer calls
            check=False,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=VERSION_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    return tuple(int(number) for number in re.findall(r"\d+", said.stdout)[:2])


def _killed(code: int) -> str:
    """What is said of a command that a signal ended, by its exit status in a shell's manner; "" of another."""
    return f"error: it was killed by signal {code - 128}\n" if 128 < code <= 128 + signal.SIGRTMAX else ""
