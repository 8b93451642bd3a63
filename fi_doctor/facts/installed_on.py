"""The day on which packages were installed, by the times of their metadata.

Neither METADATA nor RECORD nor a file of the packages says when a wheel was built, and pip and uv write each file
anew. An image that is built reproducibly may have a day of its own choice for all of its files.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

from fi_doctor.facts.packages import Survey

_NAMES = ("vllm", "flashinfer-python", "sglang")
_WRITTEN = ("RECORD", "METADATA", "PKG-INFO")  # the first of them that is there


def read_installed_on(survey: Survey) -> dict[str, str]:
    """Distribution -> "2026-11-28", UTC; of those that are installed and can be looked at."""
    days: dict[str, str] = {}
    for one in survey.distributions:
        if one.name in _NAMES and one.name not in days:
            for file in _WRITTEN:
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    written = (Path(one.metadata) / file).stat().st_mtime
                    days[one.name] = dt.datetime.fromtimestamp(written, dt.timezone.utc).date().isoformat()
                    break
    return days
