"""The process in which modules are built, all in one go, with torch and flashinfer imported, and what it says of them.

The board and the watch are told of each module as it is finished.
"""

from __future__ import annotations

import contextlib
import math
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from fi_doctor import sandbox
from fi_doctor.model import Builds, FirstStart, PlannedProbe
from fi_doctor.model.numbers import whole
from fi_doctor.probing import estimates, headline, memory, objects, parts, surroundings
from fi_doctor.probing.bench import Bench, Cancelled, forks
from fi_doctor.probing.board import kind_of
from fi_doctor.probing.first_start import first_start
from fi_doctor.probing.ledger import Ledger
from fi_doctor.probing.told import LATE, Line, Told, without_spares, words_of

SCRIPT = surroundings.HARNESS.with_name("prebuild.py")
# Seconds without a word. While it waits for another build, or builds itself, it has the time until the deadline.
PATIENCE_S = {"": 30.0, "importing": 120.0, "asking": 30.0, "looking": 120.0}
GRACE_S = 2.0  # for a module that is finished just in time
LOST = "the process ended or hung when it was asked"
ASKED_ANEW = 2  # times that probes are asked again without one that ended or stopped the process


def attempt(  # noqa: PLR0913 - a whole step: for what, with what, until when, and how
    members: Sequence[PlannedProbe],
    bench: Bench,
    jobs: int,
    deadline: float,
    *,
    is_whole: bool = False,
    cache: Path | None = None,
) -> Attempt:
    """Build what these probes of one kind of GPU need; without `modules` where it did not come to know them.

    A probe that stops the process is not asked again. is_whole: parts stand for nothing. cache: nothing is compiled,
    FlashInfer writes below the scratch folder, and what is stale is seen in this folder, its cache.
    Raises OSError where there is no descriptor or no memory for it.
    """
    asked = list(members)
    lost: dict[tuple[str, str], str] = {}
    for number in range(1 + ASKED_ANEW):
        made = Attempt(asked, bench, jobs, deadline, is_whole=is_whole, cache=cache)
        made.raised.update(lost)
        made.make()
        lost |= {(one.spec.id, name): LOST for one in asked if one.spec.id == made.asking for name in one.variants}
        asked = [probe for probe in asked if probe.spec.id != made.asking]
        if made.modules is not None or not made.asking or not asked or number == ASKED_ANEW:
            break
    return made


class Attempt:
    """One process, and what it says."""

    def __init__(  # noqa: PLR0913 - as attempt
        self,
        members: Sequence[PlannedProbe],
        bench: Bench,
        jobs: int,
        deadline: float,
        *,
        is_whole: bool,
        cache: Path | None,
    ) -> None:
        self.modules: dict[str, Told] | None = None  # None: it did not come so far
        self.asking = ""  # the probe that it was asking last
        self.output = ""  # the end of what it printed
        self.here = memory.here(bench.facts, bench.request)
        self.raised: dict[tuple[str, str], str] = {}  # probe and variant -> what it raised when it was asked
        self._members = members
        self._bench = bench
        self._deadline = deadline
        self._is_whole = is_whole
        self._cache = cache
        first = members[0]
        child = surroundings.environment(first, bench.facts, bench.environ, bench.scratch, jobs)
        self._child = surroundings.for_compilers(child)
        self._jobs = whole(self._child["MAX_JOBS"]) or jobs
        self._memory_mib = memory.budget_mib(bench.facts, bench.request)
        self._ledger = Ledger(self._memory_mib)
        self._begun_at = self._since = time.monotonic()
        self._building_since = 0.0
        self._stage = ""
        self._rest = b""
        self._begun: set[str] = set()
        self._chosen: list[str] = []  # modules that are to be built, in order
        self._timed_out = False
        self._estimate_s = 0.0
        self._seconds = 0.0
        self._channel: socket.socket | None = None

    def make(self) -> None:
        """Run it to its end. Raises Cancelled when all is stopped, OSError where there is no descriptor for it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(0.0)
            self._channel = ours
            self._say(self._job())
            result = self._start(theirs.fileno())
            self._read()
        self.output = result.stdout.decode(errors="replace")
        self._timed_out = self._timed_out or result.timed_out
        self._seconds = time.monotonic() - self._begun_at

    def _start(self, channel: int) -> sandbox.Result:
        """Run it in a forked process or, where that is not to be had, in a fresh interpreter."""
        argv = [self._bench.facts.interpreter.executable, "-u", str(SCRIPT), f"--channel={channel}"]
        template = self._bench.template
        if template is not None and template.takes(self._child, "TMPDIR") and forks(self._bench):
            fork = template.forking((), channel, script=SCRIPT, option="--channel")
            with contextlib.suppress(sandbox.NotForked):
                return self._run(argv, fork=fork)
            forks(self._bench)  # says why not
        return self._run(argv, pass_fds=(channel,))

    def _run(
        self, argv: Sequence[str], *, pass_fds: Sequence[int] = (), fork: sandbox.Fork | None = None
    ) -> sandbox.Result:
        self._since = time.monotonic()
        timeout_s = self._deadline + GRACE_S - self._since
        return sandbox.run(
            argv, timeout_s=timeout_s, env=self._child, pass_fds=pass_fds, merge=True, on_poll=self._poll, fork=fork
        )

    def result(self) -> Builds:
        """What came of it, once the modules are known."""
        modules = self.modules or {}
        words = {
            name: words_of(told, seconds=self._seconds, is_begun=name in self._begun, is_late=self._timed_out)
            for name, told in modules.items()
        }
        # What failed, what another process builds and what a process that died had in hand is left to its probe.
        open_ = {name: told for name, told in modules.items() if not told.state}
        late = {name: replace(told, state=LATE) for name, told in open_.items() if self._timed_out}
        # But nobody builds the whole where a part was meant.
        lost = "the process that compiled it ended"
        left = {name: replace(told, state="left", detail=lost) for name, told in open_.items() if told.part_of}
        self._tell({**modules, **left, **late})
        builds = Builds(
            seconds=round(self._seconds, 1),
            jobs=self._jobs,
            modules=dict(sorted(words.items())),
            first_start=self._first_start(),
        )
        return self._ledger.filled(builds)

    def _first_start(self) -> FirstStart:
        """As the modules stand; nothing of scratch folders, which say nothing of the cache."""
        bench = self._bench
        return first_start(
            (self.modules or {}) if bench.scratch is None else {},
            self._members,
            facts=bench.facts,
            request=bench.request,
            jobs=self._jobs,
            here=self.here,
        )

    def _tell(self, modules: Mapping[str, Told]) -> None:
        self._bench.board.tell(kind_of(self._members[0]), modules)

    def _job(self) -> dict[str, object]:
        facts, scratch = self._bench.facts, self._bench.scratch
        locks = (objects.build_lock(probe.spec.module, facts.flashinfer, scratch) for probe in self._members)
        probes = [
            {"id": probe.spec.id, "path": probe.spec.path, "variants": probe.variants, "subset": probe.spec.subset}
            for probe in self._members
        ]
        has_parts = not self._is_whole and any(probe.spec.subset for probe in self._members)
        passing = Path(self._child.get("TMPDIR") or tempfile.gettempdir())
        kept = parts.folder(facts, scratch, passing) if has_parts else None
        return {
            "probes": probes,
            "jobs": self._jobs,
            "memory_mib": self._memory_mib,
            "lock": str(next((one for one in locks if one), "")),
            "parts": str(kept or ""),
            "logs": [str(folder) for folder in (objects.modules_folder(facts.flashinfer),) if folder],
            "cache": str(self._cache or ""),
        }

    def _poll(self) -> bool:
        """Whether it is to be ended. What it builds has the time until the deadline."""
        if self._bench.stop.is_set():
            raise Cancelled
        self._read()
        return self.modules is None and time.monotonic() - self._since > PATIENCE_S.get(self._stage, math.inf)

    def _read(self) -> None:
        for line in self._lines():
            self._since = time.monotonic()
            if line.stage:
                self._stage, self.asking = line.stage, line.probe
            if line.begun:
                self._begun.update(line.begun)
                with self._bench.talk:
                    self._bench.watch.begun(line.begun)
            self._ledger.enter(line)
            self._timed_out |= line.late
            if line.taken is not None:
                self.here = self._bench.board.here = estimates.learn(line.taken, self.here)
            self.raised.update({(probe, variant): why for probe, variant, why in line.raised})
            if line.modules is not None:
                self._order(line.modules)
            if line.module and self.modules and line.module in self.modules:
                told = self.modules[line.module]
                self.modules[line.module] = replace(told, state=line.state, detail=line.detail)
                self._tell(self.modules)
                self._settled(line.module)
            if line.total:
                self._show(line.done, line.total)

    def _lines(self) -> Iterator[Line]:
        if self._channel is None:
            return
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while chunk := self._channel.recv(1 << 16):
                self._rest += chunk
        *whole, self._rest = self._rest.split(b"\n")
        for text in whole:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                yield msgspec.json.decode(text, type=Line)

    def _order(self, modules: dict[str, Told]) -> None:
        """Answer with the order to build in. What does not fit is settled here."""
        is_open = any(not told.state for told in modules.values())
        left_s = self._deadline - time.monotonic()
        modules = without_spares(modules, lambda objects: self._wall_s(objects) <= left_s)
        self.modules = dict(modules)
        if self._cache is not None:
            return
        if not self._is_whole:
            with self._bench.talk:
                self._bench.watch.first_start(self._first_start())
        self._building_since = time.monotonic()
        ranks = headline.ranks(self._members, {name: told.users for name, told in modules.items()})
        builds = {
            name: estimates.Build(objects=max(1, told.objects), rank=ranks[name])
            for name, told in modules.items()
            if not told.state
        }
        for name, build in builds.items():  # nothing waits for one that is only hoped to be finished
            if self._wall_s({name: build.objects}) > left_s:
                builds[name] = build._replace(rank=headline.LAST)
        chosen, left_out = estimates.order(builds, jobs=self._jobs, seconds=left_s, here=self.here)
        for name, why in left_out.items():
            self.modules[name] = replace(modules[name], state="not begun", detail=why)
        self._tell(self.modules)
        self._chosen = chosen
        self._estimate_s = self._wall_s({name: builds[name].objects for name in chosen})
        least_s = {name: estimates.LEAST * self._wall_s({name: builds[name].objects}) for name in chosen}
        peak_mib = {name: estimates.peak_mib(name) for name in chosen}
        if is_open:
            self._ledger.begin()
            self._say({"order": chosen, "least_s": least_s, "peak_mib": peak_mib, "seconds": left_s})
            self._show(0, sum(builds[name].objects for name in chosen))

    def _settled(self, name: str) -> None:
        """Tell of one module that it is over."""
        modules = self.modules or {}
        done = sum(bool(modules[one].state) for one in self._chosen)
        words = words_of(modules[name], seconds=0.0, is_begun=True, is_late=False)
        with self._bench.talk:
            self._bench.watch.settled(name, words, done, len(self._chosen))

    def _wall_s(self, modules: Mapping[str, int]) -> float:
        return estimates.wall_seconds(modules, self._jobs, self.here)

    def _show(self, done: int, total: int) -> None:
        """Tell how far it is, and how long the rest may take: by the estimate, and more and more by what was done."""
        taken_s = time.monotonic() - self._building_since
        share = done / total if total else 1.0
        left_s = max(self._estimate_s - taken_s, taken_s / 10)
        if done:
            left_s = taken_s * (1 - share) + left_s * (1 - share)  # taken_s / share * (1 - share), by its share
        if done:  # at first it is the estimate, which may be more than there is time for
            left_s = min(left_s, max(0.0, self._deadline - time.monotonic()))
        waiting = sum(not told.state for told in (self.modules or {}).values())
        with self._bench.talk:
            self._bench.watch.building(waiting, done, total, self._jobs, left_s)

    def _say(self, line: Mapping[str, object]) -> None:
        if self._channel is not None:
            self._channel.sendall(msgspec.json.encode(line) + b"\n")
