"""The compile jobs that several ninjas share: never more than were given, nor than memory carries.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.

Where ninja is a jobserver client (1.13) a pipe holds a token for each free job. It is a pipe that ninja opens anew by
the name it has under /proc, as if that were a fifo: a fifo in a folder would be left behind when this process is
killed. The job that each ninja has of its own is used for looking for tokens (looks.py), so that each compiler has
one. A ninja that is killed gives back nothing. What it held is not counted but follows from what must hold: without a
ninja all tokens are in the pipe; with some, those that are not there are held by ninjas that run as many compilers.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
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
        """So many while these are built: the heaviest module counts, and one job is always allowed.

        probing/memory.py estimates with the same numbers.
        """
        names = [module.name for group in groups for module in group.modules]
        heaviest = max((self._peak_mib.get(name, 0) for name in names), default=0)
        if self._memory_mib <= 0 or heaviest <= 0:
            return self.jobs
        return max(1, min(self.jobs, self._memory_mib // heaviest))


class Pool:
    """The jobs of a budget, through a pipe of tokens where ninja can, else dealt out."""

    def __init__(self, budget: Budget, *, has_tokens: bool | None = None) -> None:
        self._budget = budget
        self._out = 0  # jobs that may run now: tokens in the pipe and with ninjas
        self._ninjas = 0
        self._dealt = 0  # without tokens: jobs that ninjas have
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

    @property
    def has_tokens(self) -> bool:
        """Whether a ninja takes jobs from a pool, and gives them back."""
        return self._has_tokens

    def take(self, module: Work, active: Sequence[Work]) -> int:
        """Whether the next module begins now, and with how many jobs where they are dealt out; else 0."""
        limit = self._budget.allowed([*active, module])
        if not self._has_tokens:
            return self._deal(module, active, limit)
        if not self._is_time(active):
            return 0
        self._aim(limit)
        if self._out > limit:
            return 0
        self._ninjas += 1
        return 1

    def give_back(self, share: int, active: Sequence[Work]) -> None:
        """One module has ended, these go on: what it had is free again, and so may be what it made us keep."""
        if not self._has_tokens:
            self._dealt -= share
            return
        self._ninjas -= 1
        if self._ninjas <= 0:
            self._take_out(_LARGEST)  # whoever was killed: all is anew
            self._out = 0
        self._aim(self._budget.allowed(active))

    def restore(self, held: int) -> None:
        """Put back what killed ninjas did not. held: tokens that those who live can hold at most.

        Counted before the pipe is, so that a token that comes back meanwhile is not counted as missing.
        """
        if not self._has_tokens or self._ninjas <= 0:
            self._missing.clear()
            return
        expected = self._out
        waiting = self.waiting()
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
        """For a ninja that has this share; one with tokens takes what it needs."""
        return [] if self._has_tokens else [f"-j{share}"]

    def variables(self) -> dict[str, str]:
        """Which tell it of the pool. The pipe is opened anew through its name, so nobody has to inherit it."""
        if not self._has_tokens:
            return {}
        return {"MAKEFLAGS": f" -j{self._budget.jobs} --jobserver-auth=fifo:/proc/{os.getpid()}/fd/{self._read}"}

    def _deal(self, module: Work, active: Sequence[Work], limit: int) -> int:
        wanted = max(1, module.objects)
        share = min(wanted, limit - self._dealt)
        if share <= 0 or (active and 2 * share < min(wanted, limit)):
            return 0
        self._dealt += share
        return share

    def _is_time(self, active: Sequence[Work]) -> bool:
        """Whether the modules that are begun leave jobs unused: they have fewer objects left to compile.

        With all begun at once everything would be half done when the time is up.
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

    def waiting(self) -> int:
        """Tokens that nobody has."""
        if self._read < 0:
            return 0
        count = array.array("i", [0])
        fcntl.ioctl(self._read, termios.FIONREAD, count)
        return count[0]
