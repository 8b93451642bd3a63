"""What a check says on stderr while it works: a status line on a terminal, whole lines in a log."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from fi_doctor.model import Builds, Depth, Ending, FirstStart, Outcome, PlannedProbe, Stage, secrets
from fi_doctor.model.phrases import parted
from fi_doctor.reports.built import cost_line, first_start_line
from fi_doctor.reports.schedule import Schedule
from fi_doctor.reports.text import about, amount, brief, clean, clock, duration, names, pack, reason, wrap

HEARTBEAT_S = 25.0  # a log has a line at least every 30 s: the ticker comes by once a second
_TICK_S = 1.0
# Of Builds.modules, in the order to be told.
_ENDS = {
    "built": "built",
    "cache": "in the cache",
    "jit-cache": "in jit-cache",
    "failed": "failed",
    "cut off": "cut off",
    "not begun": "not begun",
    "not compiled": "in part only",
}


class Progress:
    """A Watch that writes to a stream; safe to call from several threads, and it never raises.

    As a context manager it also runs a ticker, which keeps the status line alive and a silent log from looking dead.
    `estimates`: module -> seconds that its build takes when nothing of it is cached; leave out what is cached.
    `selected`: whether only some rows were asked for.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        is_terminal: bool,
        now: Callable[[], float] = time.monotonic,
        estimates: Mapping[str, float] | None = None,
        selected: bool = False,
    ) -> None:
        self._stream = stream
        self._is_terminal = is_terminal
        self._now = now
        self._begin = self._last = now()
        self._schedule = Schedule(estimates or {}, now)
        self._selected = selected
        self._lock = threading.RLock()  # a signal handler may end up here while its own thread holds it
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None
        self._has_status = False
        self._is_dead = False
        self._secrets = secrets.held(os.environ)

    def __enter__(self) -> Progress:  # noqa: PYI034 - typing has Self from Python 3.11 on
        ticker = threading.Thread(target=self._run_ticker, name="progress", daemon=True)
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be had: nothing is told in between
            ticker.start()
            self._ticker = ticker
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the ticker and take the status line away; nothing is written afterwards."""
        self._stop.set()
        if self._ticker is not None and self._ticker is not threading.current_thread():
            self._ticker.join(timeout=5)
        with self._lock:
            self._clear()
            self._is_dead = True

    def tick(self) -> None:
        """Redraw the status line, or write a line to a log that has been silent for HEARTBEAT_S seconds."""
        with self._lock:
            if self._schedule.total == 0 and not self._schedule.is_running:
                return
            if self._is_terminal:
                self._draw()
            elif self._now() - self._last >= HEARTBEAT_S:
                self._line(f"still working: {self._schedule.status()}")

    def note(self, text: str) -> None:
        """Something worth a line."""
        with self._lock:
            self._line(clean(text))

    def planned(self, probes: tuple[PlannedProbe, ...], budget_s: float) -> None:
        """The budget, what will be built and how long that may take, and what is not tried."""
        with self._lock:
            self._schedule.plan(probes, budget_s)
            for line in _announce(self._schedule, probes, budget_s):
                self._line(line, stamped=False)

    def building(self, modules: int, done: int, total: int, jobs: int, left_s: float) -> None:
        """Modules are built for all probes: a line at first, then the status and the heartbeat tell it."""
        if not (modules or total):  # all is in the caches
            return
        with self._lock:
            if self._schedule.build_first(modules, done, total, jobs, left_s):
                sizes = f"{amount(modules, 'module')}, {amount(total, 'object')}, {amount(jobs, 'job')}"
                self._step(f"building {sizes}, {about(left_s)}")
            elif self._is_terminal:
                self._draw()

    def first_start(self, found: FirstStart) -> None:
        """A line, where there is anything."""
        with self._lock:
            if line := first_start_line(found, selected=self._selected):
                self._line(line)

    def begun(self, modules: tuple[str, ...]) -> None:
        """The status tells how many there are."""

    def settled(self, module: str, words: str, done: int, total: int) -> None:
        """What waits for it tells more."""

    def prebuilt(self, builds: Builds) -> None:
        """That is over: one line that stays."""
        with self._lock:
            self._schedule.end_first()
            if builds.modules:
                self._line(_built(builds))
            if cost := cost_line(builds):
                self._line(cost)

    def started(self, probe: PlannedProbe) -> None:
        """A probe's process starts."""
        with self._lock:
            self._schedule.start(probe)
            self._step(f"{_title(probe)}: started")

    def reached(self, probe: PlannedProbe, stage: Stage) -> None:
        """A probe came this far."""
        with self._lock:
            # Without a module there are no steps: that a script was loaded says nothing of what it will import.
            # Of one that is only built, its end says so.
            is_end = stage is Stage.BUILT and probe.depth is Depth.BUILD
            if self._schedule.reach(probe, stage) and probe.spec.module and not is_end:
                self._step(f"{_title(probe)}: {stage}")

    def objects(self, probe: PlannedProbe, done: int, total: int) -> None:
        """Objects compiled of a module; shown in the status and the heartbeat."""
        with self._lock:
            self._schedule.count_objects(probe, done, total)
            if self._is_terminal:
                self._draw()

    def ended(self, probe: PlannedProbe, outcome: Outcome) -> None:
        """A probe is over: the one line that stays on a terminal."""
        with self._lock:
            if not probe.is_tried:
                return  # it was said with the plan
            taken = self._schedule.end(probe)
            time_taken = f" in {duration(taken)}" if taken is not None else ""
            done = f"{self._schedule.done} of {self._schedule.total}"
            self._line(f"{_title(probe)}: {ending_words(outcome)}{time_taken} ({done})")

    def _step(self, text: str) -> None:
        """A line in a log; on a terminal the status line tells it."""
        if self._is_terminal:
            self._draw()
        else:
            self._line(text)

    def _line(self, text: str, *, stamped: bool = True) -> None:
        self._clear()
        text = secrets.hidden(text, self._secrets)
        columns = _columns(self._stream)
        if self._is_terminal and len(text) > columns:
            text = "\n".join(wrap(text, columns, "", "  "))
        stamp = f"[{clock(self._now() - self._begin)}] " if stamped and not self._is_terminal else ""
        self._write(f"{stamp}{text}\n")
        self._last = self._now()
        if self._is_terminal and self._schedule.is_running:
            self._draw()

    def _draw(self) -> None:
        """The status line in place of the last one, as much of it as fits, so that it never wraps."""
        status = self._schedule.status(max(20, _columns(self._stream) - 1))
        self._write(f"\r{status}\x1b[K")
        self._has_status = True

    def _clear(self) -> None:
        if self._has_status:
            self._write("\r\x1b[K")
            self._has_status = False

    def _write(self, text: str) -> None:
        """Progress that cannot be written is lost, and the check goes on without it."""
        if self._is_dead:
            return
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                self._stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._is_dead = True

    def _run_ticker(self) -> None:
        while not self._stop.wait(_TICK_S):
            self.tick()


def _announce(schedule: Schedule, probes: tuple[PlannedProbe, ...], budget_s: float) -> list[str]:
    """Said before anything runs. What building takes is said once it is known what is cached."""
    if not schedule.total:
        return ["Nothing will be built or run here.", *_skipped(probes)]
    lines = [f"Up to {duration(budget_s)} for {amount(schedule.total, 'probe')} (--budget changes it)."]
    modules = schedule.to_build()
    if modules:
        lines += pack(map(clean, modules), 80, f"{amount(len(modules), 'module')} to build, unless cached: ", "  ")
    return [*lines, *_skipped(probes)]


def _built(builds: Builds) -> str:
    """How many modules came to which end, and the seconds when any was built."""
    ends = Counter(state.partition(":")[0] for state in builds.modules.values())
    total = amount(len(builds.modules), "module")
    told = [f"{count} {words}" for end, words in _ENDS.items() if (count := ends[end])]
    taken = (
        ""
        if ends["cache"] + ends["jit-cache"] + ends["not compiled"] == len(builds.modules)
        else f" in {duration(builds.seconds)}"
    )
    return f"{total}: {', '.join(told)}{taken}"


def _skipped(probes: tuple[PlannedProbe, ...]) -> list[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for probe in probes:
        if probe.skip:
            label = "Limited" if probe.is_tried else "Not tried"
            reasons.setdefault((label, reason(probe.skip, 200)), []).append(_title(probe))
    return [f"{label}: {names(who, 6)}: {why}" for (label, why), who in reasons.items()]


def _title(probe: PlannedProbe) -> str:
    return f"{clean(probe.spec.id, 100)} (SM{probe.sm})" if isinstance(probe.sm, int) else clean(probe.spec.id, 100)


def ending_words(outcome: Outcome) -> str:
    """How far it came, or how it ended, a colon and why."""
    if outcome.ending is Ending.RETURNED:
        return str(outcome.stage)
    said, remedy = parted(outcome.detail)
    detail = f"{brief(said, 160)}{clean(remedy)}"
    return f"{outcome.ending}{f': {detail}' if detail else ''}"


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):  # not a terminal after all, closed, or not a file
        return 80
