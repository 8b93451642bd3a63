"""A report of fi-doctor's that was pasted into another text: a log, or an issue."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_MARK = re.compile(rb'"fi-doctor\.report/|^([ >]*)schema: ["\']?fi-doctor\.report/', re.MULTILINE)
# What a line of a report's YAML begins with: a key, an item, or a blank. Keys are in small letters.
_YAML = re.compile(rb"[a-z_]+:(?:\s|$)|- |[ \r]|$")


class Found(NamedTuple):
    """A report in a text."""

    data: bytes  # the document by itself
    is_all: bool  # whether there is nothing beside it


def report(text: bytes) -> Found | None:
    """The first report in a text, as JSON or YAML, set in or quoted as it may be; None where there is none."""
    mark = _MARK.search(text)
    if mark is None:
        return None
    start, end, data = _json(text, mark.start()) if mark[1] is None else _yaml(text, mark.start(), mark[1])
    if not data:
        return None
    return Found(data, not (text[:start] + text[end:]).strip())


def _json(text: bytes, at: int) -> tuple[int, int, bytes]:
    start = max(text.rfind(b"{", 0, at), 0)
    whole = text[start:].decode("utf-8", "replace")
    try:
        _, length = json.JSONDecoder().raw_decode(whole)
    except (ValueError, RecursionError):
        return start, start, b""
    data = whole[:length].encode()
    return start, start + len(data), data


def _yaml(text: bytes, start: int, margin: bytes) -> tuple[int, int, bytes]:
    kept, at = [], start
    for line in text[start:].splitlines(keepends=True):
        if not line.startswith(margin) and line.strip(b" >\r\n"):
            break
        inside = line.removeprefix(margin)
        if _YAML.match(inside) is None:
            break
        kept.append(inside)
        at += len(line)
    return start, at, b"".join(kept)
