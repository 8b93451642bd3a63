"""What installed packages' RECORDs say of their files, and which of these are not as they were installed.

Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import csv
import functools
from pathlib import Path

from fi_doctor.facts.files import read_whole
from fi_doctor.model.numbers import whole

LARGEST_BYTES = 64 << 20  # of a RECORD


def record_of(root: Path) -> Path | None:
    """The RECORD of the package whose folder this is; None where there is none, or more than one."""
    names = {root.name, f"{root.name}_python"}
    try:
        found = [path for path in root.parent.iterdir() if path.name.endswith(".dist-info")]
        records = [path / "RECORD" for path in found if path.name.partition("-")[0].lower() in names]
        return records[0] if len(records) == 1 and records[0].is_file() else None
    except OSError:
        return None


class Recorded:
    """The files of one package, as its RECORD has them; without one nothing is said of any."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The size in bytes of every file below the package folder whose size is recorded, by its name there."""
        record = record_of(self._root)
        try:
            if record is None:
                return {}
            text = read_whole(record, LARGEST_BYTES).decode(errors="surrogateescape")
        except OSError:
            return {}
        below = f"{self._root.name}/"
        rows = (row for row in csv.reader(text.splitlines()) if len(row) == 3 and row[0].startswith(below))
        return {row[0].removeprefix(below): size for row in rows if (size := whole(row[2])) is not None}

    def altered(self, name: str) -> str:
        """How a file differs from what was installed, in words: "gone", "0 bytes instead of 41234"; "" where not."""
        size = self.sizes.get(name)
        if size is None:
            return ""
        path = self._root / name
        try:
            if not path.is_file():
                return "no plain file" if path.exists() else "gone"
            now = path.stat().st_size
        except OSError as error:
            return f"not to be looked at: {error.strerror or error}"
        return "" if now == size else f"{now} bytes instead of {size}"

    def all_altered(self, suffix: str) -> dict[str, str]:
        """The files whose names end so and that are not as they were installed, with how."""
        told = ((name, self.altered(name)) for name in sorted(self.sizes) if name.endswith(suffix))
        return {name: how for name, how in told if how}
