"""The text of one Python file by lines: the head of a definition, what decorates it, and what a class body holds.

Files of FlashInfer hold up to half a megabyte; only what is asked for is parsed.
"""

from __future__ import annotations

import ast
import re
import textwrap

from fi_doctor.facts.files import NOT_PYTHON
from fi_doctor.facts.symbols import Source

_NOT_DOTTED = re.compile(r"[^\w.]")


class Text:
    """Lines are numbered from 1; the masked ones have no comments, and empty strings for strings."""

    def __init__(self, source: Source) -> None:
        self.masked = source.masked.split("\n")
        self._plain = source.text.split("\n")

    def line(self, number: int) -> str:
        """One masked line."""
        return self.masked[number - 1]

    def head(self, number: int) -> ast.stmt | None:
        """The def or class that begins there, without its body; None when it cannot be parsed."""
        depth = 0
        for last, text in enumerate(self.masked[number - 1 :], number):
            depth += _opened(text)
            if depth <= 0 and not text.endswith("\\"):
                head = textwrap.dedent("\n".join(self._plain[number - 1 : last]))
                return parsed(f"{head}\n    pass" if text.rstrip().endswith(":") else head)
        return None

    def decorators(self, number: int) -> list[str]:
        """The names of the decorators above a def or class, the nearest first, without the modules they are of."""
        indent = _indent(self.line(number))
        found: list[str] = []
        is_inside = False  # the brackets of a decorator that spans lines
        for text in reversed(self.masked[: number - 1]):
            bare = text.strip()
            is_level = _indent(text) == indent
            if is_level and bare.startswith("@"):
                found.append(_NOT_DOTTED.split(bare[1:], maxsplit=1)[0].rpartition(".")[2])
                is_inside = False
            elif is_level and bare[:1] in (")", "]", "}"):
                is_inside = True
            elif not is_inside:
                return found
        return found

    def body(self, number: int) -> tuple[list[int], int]:
        """The lines on which the statements of a class or function begin, and the line after it."""
        outside = _indent(self.line(number))
        begun: list[int] = []
        depth = indent = 0
        is_continued = False
        for at, text in enumerate(self.masked[number - 1 :], number):
            bare = text.strip()
            if bare and depth <= 0 and not is_continued and at > number:
                here = _indent(text)
                if here <= outside:
                    return begun, at
                indent = indent or here
                if here == indent:
                    begun.append(at)
            depth += _opened(text)
            is_continued = text.endswith("\\")
        return begun, len(self.masked) + 1

    def block(self, number: int) -> str:
        """The masked text of what begins there."""
        _, after = self.body(number)
        return "\n".join(self.masked[number - 1 : after - 1])


def parsed(text: str) -> ast.stmt | None:
    """The one statement of a text; None when it is not one, or no Python."""
    try:
        body = ast.parse(text).body
    except NOT_PYTHON:
        return None
    return body[0] if len(body) == 1 else None


def _opened(text: str) -> int:
    return sum(text.count(one) for one in "([{") - sum(text.count(one) for one in ")]}")


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
