"""What ninja prints, in pieces that cost little, and of what a command says the beginning and the end.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

OUTPUT_LIMIT = 8 * 1024  # of one failed command
LEFT_OUT = "\n[... what it said here is left out ...]\n"

_END = 2 * 1024
_BEGINNING = OUTPUT_LIMIT - _END - len(LEFT_OUT)
# Lines of ninja's own, and the commands of looks.py. With ^ in place of the newline it takes five times as long.
_OWN = re.compile(rb"\n(?:\[\d+/\d+\] |FAILED: |ninja: |sleep )")


def pieces(text: bytes) -> Iterator[bytes]:
    """Whole lines: each of ninja's own alone, and together what commands say between them.

    A compiler may say millions of lines, of which none is worth a look of its own.
    """
    at = 0
    for own in _OWN.finditer(b"\n" + text):
        if own.start() > at:
            yield text[at : own.start()]
        at = text.find(b"\n", own.start()) + 1 or len(text)
        yield text[own.start() : at]
    if at < len(text):
        yield text[at:]


def excerpt(text: str) -> str:
    """No more than OUTPUT_LIMIT of it. An excerpt may be added to, and be cut again."""
    if len(text) <= OUTPUT_LIMIT:
        return text
    return text[:_BEGINNING] + LEFT_OUT + text[-_END:]
