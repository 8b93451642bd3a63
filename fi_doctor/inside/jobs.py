"""The compile jobs that several ninjas share: never more than were given, nor than memory carries.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.

Where ninja is a jobserver client (1.13) a pipe holds a token for each free job. It is a pipe that ninja opens anew by
the name it has under /proc, as if that were a fifo: a fifo in a folder would be left behind when this process is
killed. Each ninja has one job of its own, for which a token is taken out as long as it lives: with J jobs and M ninjas
J - M tokens go round. A ninja that is killed gives back nothing. What it held is not counted but follows from what
must hold: without a ninja all tokens are in the pipe; with some, those that are not there are held by ninjas that run
commands with them (Run.tokens).
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import termios
from collections.abc import Mapping, Sequence
from typing import Protocol

from fi_doctor.inside.ninja import ninja_version

SAMPLES = 4  # that all have to say that tokens are missing: one may fall between taking a token and starting a command

_LARGEST = 4096  # tokens that a pipe holds for certain


class Named(Protocol):
    """A module."""

    name: str


class Work(Protocol):
    """What one ninja builds."""

    @property
    def name(self) -> str:
        """Its own."""

    @property
    def modules(self) -> Sequence[Named]:
        """All of them."""

    @property
    def objects(self) -> int:
        """How many are still to be compiled."""


class Budget:
    """How many compilers may run at once."""

    def __init__(self, jobs: int, memory_mib: int = 0, peak_mib: Mapping[str, int] | None = None) -> None:
        """memory_mib: for all compilers together, 0 for any amount. peak_mib: what one takes, by module."""
        self.jobs = max(1, min(jobs, _LARGEST))
        self._memory_mib = memory_mib
        self._peak_mib = dict(peak_mib or {})

    def allowed(self, groups: Sequence[Work]) -> int:
        """So many while these are built: the heaviest module counts, and one job is always allowed."""
        names = [module.name for group in groups for module in group.modules]
        heaviest = max((self._peak_mib.get(name, 0) for name in names), default=0)
        if self._memory_mib <= 0 or heaviest <= 0:
            return self.jobs
        return max(1, min(self.jobs, self._memory_mib // heaviest))


class Pool:
    """The jobs of a budget, through a pipe of tokens where ninja can, else dealt out."""

    def __init__(self, budget: Budget, *, has_tokens: bool | None = None) -> None:
        self._budget = budget
        self._out = 0  # jobs that may run now: tokens in the pipe, with ninjas, and one for each ninja itself
        self._owned = 0  # of them, those of ninjas themselves; without tokens all that are dealt out
        self._next = ""  # the module for which tokens are kept back until it can begin
        self._missing: list[int] = []  # by the last samples
        self._has_tokens = ninja_version() >= (1, 13) if has_tokens is None else has_tokens
        self._read = self._write = -1
        if self._has_tokens:
            self._read, self._write = os.pipe()
            os.set_blocking(self._read, False)

    def close(self) -> None:
        """No ninja is left that could ask."""
        for fd in {self._read, self._write} - {-1}:
            os.close(fd)
        self._read = self._write = -1

    def take(self, module: Work, active: Sequence[Work]) -> int:
        """Jobs for the next module, 0 when there are none now: those that are begun use them all."""
        limit = self._budget.allowed([*active, module])
        if not self._has_tokens:
            return self._deal(module, active, limit)
        if module.name != self._next and not self._is_time(active):
            return 0
        self._next = module.name
        self._aim(limit)
        taken = len(self._take_out(1)) if self._out <= limit else 0
        if taken:
            self._owned += 1
            self._next = ""
        return taken

    @property
    def is_short(self) -> bool:
        """Whether a module would begin if only there were tokens."""
        return bool(self._next)

    def wait(self, seconds: float) -> None:
        """Until a token comes back that a module waits for. A ninja that gave one back takes it again very soon."""
        if self.is_short and self._read >= 0:
            select.select([self._read], [], [], seconds)

    def give_back(self, share: int, active: Sequence[Work]) -> None:
        """One module has ended, these go on: what it had itself is free again, and so may be what it made us keep."""
        self._owned -= share
        if not self._has_tokens:
            return
        if self._owned <= 0:
            self._take_out(_LARGEST)  # whoever was killed: all is anew
            self._out = self._owned = 0
        else:
            os.write(self._write, b"+" * share)
        if not self._next:
            self._aim(self._budget.allowed(active))

    def restore(self, held: int) -> None:
        """Put back what killed ninjas did not. held: tokens that those who live can hold at most.

        Counted before the pipe is, so that a token that comes back meanwhile is not counted as missing.
        """
        if not self._has_tokens or self._owned <= 0:
            self._missing.clear()
            return
        expected = self._out - self._owned
        waiting = self._waiting()
        if waiting > expected:  # more than there are: an error of the kind that must not add up
            self._take_out(waiting - expected)
        self._missing.append(expected - waiting - held)
        if len(self._missing) < SAMPLES:
            return
        lost = min(self._missing)
        self._missing.clear()
        if lost > 0:
            os.write(self._write, b"+" * lost)

    def options(self, share: int) -> list[str]:
        """For a ninja that has this share; one with tokens has a job of its own and takes more from the pool."""
        return [] if self._has_tokens else [f"-j{share}"]

    def variables(self) -> dict[str, str]:
        """Which tell it of the pool. The pipe is opened anew through its name, so nobody has to inherit it."""
        if not self._has_tokens:
            return {}
        return {"MAKEFLAGS": f" -j{self._budget.jobs} --jobserver-auth=fifo:/proc/{os.getpid()}/fd/{self._read}"}

    def _deal(self, module: Work, active: Sequence[Work], limit: int) -> int:
        wanted = max(1, module.objects)
        share = min(wanted, limit - self._owned)
        if share <= 0 or (active and 2 * share < min(wanted, limit)):
            return 0
        self._owned += share
        return share

    def _is_time(self, active: Sequence[Work]) -> bool:
        """Whether the modules that are begun leave jobs unused: they have fewer objects left to compile.

        Not whether a token lies about: a ninja puts its own back between two commands. Each ninja that is begun has a
        job of its own, so with too many of them everything would be half done when the time is up.
        """
        return sum(max(1, one.objects) for one in active) < self._budget.allowed(active)

    def _aim(self, limit: int) -> None:
        """Let out tokens, or keep back those that come in, until so many jobs may run."""
        if self._out < limit:
            os.write(self._write, b"+" * (limit - self._out))
            self._out = limit
        self._out -= len(self._take_out(self._out - limit))

    def _take_out(self, tokens: int) -> bytes:
        if tokens > 0:
            with contextlib.suppress(BlockingIOError):
                return os.read(self._read, tokens)
        return b""

    def _waiting(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._read, termios.FIONREAD, count)
        return count[0]
