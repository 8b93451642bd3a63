"""When reports were made: as instants, whatever their zone; what is no time, or has not come yet, decides nothing."""

from __future__ import annotations

import datetime as dt

# Clocks of nodes that run ahead of this one by less are believed.
_AHEAD_S = 24 * 3600.0
UNKNOWN = float("-inf")


def instant(created: str, now: float | None = None) -> float:
    """Seconds since 1970 of ISO 8601, UTC where no zone is told; UNKNOWN for no time and for one that is to come."""
    try:
        found = dt.datetime.fromisoformat(created.replace("Z", "+00:00"))  # Python 3.10 does not know Z
        seconds = (found if found.tzinfo else found.replace(tzinfo=dt.timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return UNKNOWN
    latest = (dt.datetime.now(dt.timezone.utc).timestamp() if now is None else now) + _AHEAD_S
    return UNKNOWN if seconds > latest else seconds


def is_to_come(created: str) -> bool:
    """Whether it is a time that has not come."""
    return instant(created) == UNKNOWN != instant(created, float("inf"))
