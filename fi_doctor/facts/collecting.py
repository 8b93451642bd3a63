"""Reading many syntax trees without the garbage collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collecting_paused() -> Iterator[None]:
    """Syntax trees are many objects without cycles; looking through them for garbage takes as long as all the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
