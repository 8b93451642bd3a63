"""Texts of the knowledge base for people, with what a machine would fill in shown as <words>."""

from __future__ import annotations

import re
import textwrap


def plain(text: str) -> str:
    """The text with what a machine would fill in shown as <words>."""
    shown = re.sub(
        r"(?<!\{)\{([^{}]+)\}(?!\})", lambda found: f"<{found[1].replace('_', ' ').replace(':', ' ')}>", text
    )
    return shown.replace("{{", "{").replace("}}", "}")


def wrapped(text: str) -> str:
    """Lines of at most 80 columns; no word is cut, so that each can be copied."""
    return textwrap.fill(text, width=80, break_long_words=False, break_on_hyphens=False)


def indented(text: str, first: str = "  ") -> str:
    """The same, set in by two columns, or by `first`."""
    return textwrap.fill(
        text, 80, initial_indent=first, subsequent_indent=f"{first}  ", break_long_words=False, break_on_hyphens=False
    )
