"""The text of a Python file without the parts that the registry's readers have no use for: parsing takes longest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fi_doctor.facts.files import NOT_PYTHON, decoded, read_whole, why_not_python, why_unread
from fi_doctor.model import Missing

# A method. What is a body of one is indented by more than the method.
_METHOD = re.compile(r"^    (?:async )?def (\w+)\(", re.MULTILINE)
_BODY_LINE = re.compile(r"(?: {8}.*|[ \t]*)\n")
_TOP = re.compile(r"^(?=[^\s#)\]}])", re.MULTILINE)
_DEFINITIONS = ("def ", "async def ", "class ")


def read_python(path: Path) -> str | Missing:
    """The text of a Python file; Missing where it cannot be read, is no text, or holds nothing."""
    try:
        text = decoded(read_whole(path))
    except OSError as error:
        return Missing(reason=f"{path}: {why_unread(error)}", absent=isinstance(error, FileNotFoundError))
    except NOT_PYTHON as error:
        return Missing(reason=f"{path} is not Python: {why_not_python(error)}")
    return text if text.strip() else Missing(reason=f"{path} is empty")


def skeleton(text: str) -> str:
    """The text without the bodies of methods, on the same lines: parsing those takes most of the time.

    Class methods keep theirs, since validators are among them, and so does add_cli_args. Where a string in a body has
    lines that begin further left, this gives no Python, and the whole text is to be parsed instead.
    """
    parts, at = [], 0
    for found in _METHOD.finditer(text):
        if found.start() < at or found[1] == "add_cli_args" or text.endswith("@classmethod\n", 0, found.start()):
            continue
        body = _end_of_header(text, found.end())
        end = body
        while line := _BODY_LINE.match(text, end):
            end = line.end()
        if end > body:
            parts += [text[at:body], "        pass", "\n" * text.count("\n", body, end)]
            at = end
    return "".join([*parts, text[at:]])


def only_around(text: str, wanted: Sequence[str]) -> str:
    """The text without the functions and classes at its top that hold none of these texts, on the same lines."""
    starts = [found.start() for found in _TOP.finditer(text)]
    parts: list[str] = []
    marks = ""  # the decorators of what follows
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        chunk = text[start:end]
        if chunk.startswith("@"):
            marks += chunk
            continue
        is_kept = not chunk.startswith(_DEFINITIONS) or any(word in chunk for word in wanted)
        parts.append(marks + chunk if is_kept else "\n" * (marks + chunk).count("\n"))
        marks = ""
    return text[: starts[0]] + "".join(parts) if starts else text


def _end_of_header(text: str, at: int) -> int:
    """Behind the line with which the head of a function ends: the first that ends with a colon."""
    found = text.find(":\n", at)
    return len(text) if found < 0 else found + 2
