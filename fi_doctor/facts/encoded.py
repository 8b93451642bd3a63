"""Text that people wrote, in the encoding that its first bytes tell."""

from __future__ import annotations

import json


def text_of(data: bytes, errors: str = "strict") -> str:
    """The text of a file that is UTF-8, or says by its first bytes that it is UTF-16 or UTF-32; without their mark.

    So JSON tells them apart; a file of settings begins with ASCII too. Errors: UnicodeDecodeError.
    """
    return data.decode(json.detect_encoding(data), errors)
