"""The word that a misspelt one may stand for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# A letter or two of ten. No flag of vLLM's HTTP server comes as close to one of its engine.
CLOSE = 0.85


def nearest(word: str, known: Iterable[str], closeness: float = CLOSE) -> str | None:
    """The known word that differs by a letter or two, in whichever case; None where none does.

    closeness: difflib's ratio, 1.0 for the same word.
    """
    small = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), small, n=1, cutoff=closeness)
    return small[found[0]] if found else None
