"""A report as pages: each format is made once, when it is first asked for."""

from __future__ import annotations

import datetime as dt
import hashlib
import threading

from fi_doctor.model import Report
from fi_doctor.reports import render

_AHEAD_S = 60.0  # clocks of two machines differ; a report from further ahead has no age that could be told


class Pages:
    """The texts of one report; several threads may ask."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._made = _time(report.created)
        self._texts: dict[str, tuple[bytes, str]] = {}
        self._lock = threading.Lock()

    def text(self, form: str) -> tuple[bytes, str]:
        """The report in one of the formats as UTF-8, and a word for its content, as an ETag."""
        with self._lock:
            if form not in self._texts:
                text = render(self.report, form).encode("utf-8", "backslashreplace")
                self._texts[form] = text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'
            return self._texts[form]

    def age_s(self, now: float) -> int | None:
        """Whole seconds since the check, by its own clock; None where the report does not tell."""
        if self._made is None or self._made > now + _AHEAD_S:
            return None
        return max(0, int(now - self._made))


def _time(created: str) -> float | None:
    try:
        found = dt.datetime.fromisoformat(created.replace("Z", "+00:00"))  # Python 3.10 does not know Z
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo else None
