"""Whole numbers in text from elsewhere: Python converts neither every digit of Unicode nor digits without end."""

from __future__ import annotations

_MOST_DIGITS = 20  # those of 64 bits


def whole(text: str) -> int | None:
    """The number that the text is, written in ASCII digits alone; None for other text, and beyond 20 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None
