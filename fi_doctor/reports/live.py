"""The table of `check --watch`: every probe and how far it came, drawn in place while the check goes on."""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fi_doctor.model import Ending, Missing, Outcome, PlannedProbe, Stage
from fi_doctor.reports.progress import Progress, ending_words
from fi_doctor.reports.text import amount, brief, clean, clock, wrap

_REDRAW_S = 0.25  # objects are told of many times a second
_BLOCK = 80  # columns for which a table is made; a terminal of twice as many has two, side by side
_LEAST_LINES = 8  # below that there is no room for a table
_NAME, _STATE = 32, 12
_AROUND = 4  # lines: the status, a heading, what is left out, and the cursor's own
_ORDER = ("running", "bad", "over", "waiting")  # which rows stay where not all have room
_STYLES = {"running": "bold", "bad": "bold red", "over": "green", "waiting": "dim"}


class _Row(Struct):
    """A probe on one SM, and how far it came."""

    name: str
    sm: str
    module: str  # that it waits for at first
    kind: str = "waiting"  # of _ORDER
    state: str = "waiting"
    said: str = ""
    started: float | None = None
    took_s: float | None = None


class LiveTable(Progress):
    """A Watch for a terminal: what is said once stands above, the table below it is drawn anew.

    A table has outcomes, no verdicts: what a row amounts to is told by the report, once all of it is in.
    size: gives columns and lines, in place of the terminal's.
    """

    def __init__(  # noqa: PLR0913 - those of Progress, and how the terminal is
        self,
        stream: TextIO,
        *,
        now: Callable[[], float] = time.monotonic,
        estimates: Mapping[str, float] | None = None,
        selected: bool = False,
        color: bool = True,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(stream, is_terminal=True, now=now, estimates=estimates, selected=selected)
        self._rows: dict[tuple[str, str], _Row] = {}
        self._size = size or (lambda: _terminal_size(stream))
        self._drawn = 0.0
        self._console = Console(
            file=_Through(self._write),
            force_terminal=True,
            color_system="standard" if color else None,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._frame,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the table away, since the report follows; where none does, it stays as it stood last."""
        self._live.transient = kind is None
        super().__exit__(kind, error, trace)

    def close(self) -> None:
        """Give the terminal back; nothing is written afterwards."""
        self._stop.set()
        with self._lock:
            self._live.stop()
        super().close()

    def planned(self, probes: tuple[PlannedProbe, ...], budget_s: float) -> None:
        """Every probe that is tried has a row from now on."""
        with self._lock:
            for probe in probes:
                if probe.is_tried:
                    self._row(probe)
            super().planned(probes, budget_s)
            if self._rows and not self._stop.is_set():
                self._live.start()
                self._console.show_cursor()  # whoever stops or kills us gets a terminal with a cursor back
                self._draw()

    def begun(self, modules: tuple[str, ...]) -> None:
        """The rows that wait for them say so."""
        with self._lock:
            for row in self._waiting(modules):
                row.kind, row.state = "running", "compiling"
            self._draw()

    def settled(self, module: str, words: str, done: int, total: int) -> None:
        """The rows that waited for it wait for their turn."""
        del done, total
        with self._lock:
            for row in self._waiting((module,)):
                row.kind, row.state, row.said = "waiting", "waiting", f"{module}: {words}"
            self._draw()

    def started(self, probe: PlannedProbe) -> None:
        """Its row counts the time."""
        with self._lock:
            row = self._row(probe)
            row.kind, row.state, row.said, row.started = "running", "started", "", self._now()
            super().started(probe)

    def reached(self, probe: PlannedProbe, stage: Stage) -> None:
        """Its row says so."""
        with self._lock:
            row = self._row(probe)
            row.state, row.said = str(stage), ""
            super().reached(probe, stage)

    def objects(self, probe: PlannedProbe, done: int, total: int) -> None:
        """Its row counts them."""
        with self._lock:
            row = self._row(probe)
            row.state, row.said = "compiling", f"{done} of {amount(total, 'object')}"
            super().objects(probe, done, total)

    def ended(self, probe: PlannedProbe, outcome: Outcome) -> None:
        """Its row says how."""
        with self._lock:
            if not probe.is_tried:
                return
            row = self._row(probe)
            row.took_s = self._schedule.end(probe)
            row.state, _, row.said = ending_words(outcome).partition(": ")
            row.kind = "bad" if outcome.ending.is_bad else "over" if outcome.ending is Ending.RETURNED else "waiting"
            self._draw()

    def _row(self, probe: PlannedProbe) -> _Row:
        sm = "-" if isinstance(probe.sm, Missing) else str(probe.sm)
        return self._rows.setdefault((probe.spec.id, sm), _Row(clean(probe.spec.id, 100), sm, probe.spec.module))

    def _waiting(self, modules: tuple[str, ...]) -> list[_Row]:
        return [row for row in self._rows.values() if row.started is None and row.module and row.module in modules]

    def _line(self, text: str, *, stamped: bool = True) -> None:
        """Above the table."""
        del stamped
        columns, _ = self._size()
        self._fit()
        lines = [text] if len(text) <= columns else wrap(text, columns, "", "  ")
        self._console.print(Text("\n".join(lines)), soft_wrap=True)
        self._last = self._now()

    def _draw(self) -> None:
        """The table anew, unless it was just now: the ticker comes by."""
        if self._live.is_started and self._now() - self._drawn >= _REDRAW_S:
            self._drawn = self._now()
            self._fit()
            self._live.refresh()

    def _clear(self) -> None:
        """Nothing: what is printed goes above."""

    def _fit(self) -> None:
        self._console.size = self._size()

    def _frame(self) -> Group:
        columns, lines = self._size()
        status = Text(self._schedule.status(max(20, columns - 1)), style="bold")
        if lines < _LEAST_LINES:
            return Group(status)
        rows = list(self._rows.values())
        blocks = 1 if len(rows) <= lines - _AROUND else max(1, columns // _BLOCK)
        shown = _most_telling(rows, (lines - _AROUND) * blocks)
        height = -(-len(shown) // blocks)
        table = Table.grid(padding=(0, 2, 0, 0))
        width = columns // blocks - 2
        table.add_row(*(self._block(shown[at : at + height], width) for at in range(0, len(shown), max(height, 1))))
        return Group(status, table, *_left_out(rows, shown))

    def _block(self, rows: list[_Row], width: int) -> Text:
        """Rows under a heading, each on a line."""
        has_sm = len({row.sm for row in self._rows.values()}) > 1
        size = min(_NAME, max(len(row.name) for row in self._rows.values()))
        block = Text(_words(("probe", "SM", "so far", "time", ""), size, width, has_sm=has_sm), style="bold")
        for row in rows:
            until = self._now() if row.took_s is None else (row.started or 0.0) + row.took_s
            time_taken = "" if row.started is None else clock(until - row.started)
            words = _words((row.name, row.sm, row.state, time_taken, row.said), size, width, has_sm=has_sm)
            block.append("\n").append(words, style=_STYLES[row.kind])
        return block


class _Through(io.StringIO):
    """A stream whose writes cannot fail: rich would end the command where a terminal is gone."""

    def __init__(self, put: Callable[[str], None]) -> None:
        super().__init__()
        self._put = put

    def write(self, text: str) -> int:
        """Hand it on."""
        self._put(text)
        return len(text)


def _terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal that a stream is, 80 and 24 where that is not known."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return found.columns or 80, found.lines or 24


def _most_telling(rows: list[_Row], room: int) -> list[_Row]:
    """As many rows as there is room for, in their order; of what is over those that ended last."""
    by_weight = sorted(rows, key=lambda row: (_ORDER.index(row.kind), -((row.started or 0.0) + (row.took_s or 0.0))))
    chosen = {id(row) for row in by_weight[:room]}
    return [row for row in rows if id(row) in chosen]


def _left_out(rows: list[_Row], shown: list[_Row]) -> list[Text]:
    """The rest, counted by how far it came."""
    chosen = {id(row) for row in shown}
    states = Counter(row.state for row in rows if id(row) not in chosen)
    if not states:
        return []
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    return [Text(f"and {amount(sum(states.values()), 'more probe')}: {told}", overflow="crop", no_wrap=True)]


def _words(cells: tuple[str, str, str, str, str], size: int, width: int, *, has_sm: bool) -> str:
    """A line of the table, no wider than there is room; size: of the names."""
    name, sm, state, taken, said = cells
    start = f"{name[:size]:<{size}}  {f'{sm:<4} ' if has_sm else ''}{state:<{_STATE}} {taken:>6}  "
    return (start + brief(said, max(width - len(start), 4)))[:width].rstrip()
