"""A copy of what FlashInfer would find in its cache before it writes there, for a run that must not write there."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def seed(cache: Path, base: Path) -> None:
    """Copy the ninja files: up to 0.6.11 one that is there is kept as it is, however old.

    cache: FlashInfer's folder for its version and architectures. base: takes the place of FLASHINFER_WORKSPACE_BASE.
    """
    place = base.joinpath(*cache.parts[-4:])
    for file in sorted(cache.glob("cached_ops/*/build.ninja")):
        with contextlib.suppress(OSError):
            if not os.path.isfile(file):  # noqa: PTH113 - a pipe would be waited for; Path.is_file may raise
                continue
            text = file.read_text(encoding="utf-8", errors="surrogateescape").replace(str(cache), str(place))
            copy = place / file.relative_to(cache)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8", errors="surrogateescape")
