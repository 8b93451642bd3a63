"""One definition of a module as a syntax tree, without parsing the rest of its file."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.files import NOT_PYTHON
from fi_doctor.facts.symbols import Source, Symbols
from fi_doctor.model import Missing

_LATER = re.compile(r"\b(?:yield|nonlocal)\b")
_FUNCTION = re.compile(r"\s*(?:async\s+def|def|class)\s")


class Definitions:
    """What stands on a line of a package's file: a top-level definition, or a member of a top-level class.

    Each is parsed once, and asked once what it holds: many calls are followed through the same ones.
    """

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols
        self._starts: dict[Path, list[int]] = {}
        self._lines: dict[Path, list[str]] = {}
        self._trees: dict[tuple[Path, int], ast.stmt | None] = {}
        self._bound: dict[ast.AST, tuple[str, ...]] = {}
        self._returning: dict[ast.AST, bool] = {}

    def is_function(self, path: Path, line: int) -> bool:
        """Whether a function or class begins on that line, told without parsing it."""
        source = self._symbols.source(path)
        if isinstance(source, Missing):
            return False
        return bool(_FUNCTION.match(self._text(path, source)[line - 1]))

    def at(self, path: Path, line: int) -> ast.stmt | None:
        """The statement whose `def`, `class` or first line that is, with true line numbers.

        None where there is no such statement, and where another may replace it: in an `if` or a `try`.
        """
        if (path, line) not in self._trees:
            source = self._symbols.source(path)
            self._trees[path, line] = None if isinstance(source, Missing) else self._read(path, source, line)
        return self._trees[path, line]

    def bound(self, node: ast.AST) -> tuple[str, ...]:
        """The names that are assigned, deleted, imported or defined somewhere in there."""
        if node not in self._bound:
            self._bound[node] = tuple(dict.fromkeys(_names(node)))
        return self._bound[node]

    def returns(self, node: ast.AST) -> bool:
        """Whether a `return` stands somewhere in there."""
        if node not in self._returning:
            self._returning[node] = any(isinstance(one, ast.Return) for one in ast.walk(node))
        return self._returning[node]

    def is_plain(self, path: Path, node: ast.stmt) -> bool:
        """Whether a call of the function runs its body at once, and whether none inside it rebinds its names.

        Told by the words `yield` and `nonlocal`, which may stand in a text too: then it is taken for not plain.
        """
        lines = self._lines[path][node.lineno - 1 : node.end_lineno]
        return not any(_LATER.search(line) for line in lines)

    def _read(self, path: Path, source: Source, line: int) -> ast.stmt | None:
        if path not in self._starts:
            self._starts[path] = statement_lines(source.masked)
        starts, lines = self._starts[path], self._text(path, source)
        here = bisect.bisect_right(starts, line) - 1
        if here < 0:
            return None
        last = starts[here + 1] - 1 if here + 1 < len(starts) else len(lines)
        first = starts[here]
        while here > 0 and lines[starts[here - 1] - 1].startswith("@"):
            here -= 1
            first = starts[here]
        try:
            tree = ast.parse("\n" * (first - 1) + "\n".join(lines[first - 1 : last]))
        except NOT_PYTHON:
            return None
        members = [one for node in tree.body if isinstance(node, ast.ClassDef) for one in node.body]
        return next((node for node in (*tree.body, *members) if node.lineno == line), None)

    def _text(self, path: Path, source: Source) -> list[str]:
        if path not in self._lines:
            self._lines[path] = source.text.split("\n")
        return self._lines[path]


def _names(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        match one:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=asname):
                yield asname or name.partition(".")[0]


def statement_lines(masked: str) -> list[int]:
    """The lines on which a top-level statement or a decorator begins; masked: the text with blanked strings."""
    found = []
    continued = False
    for number, line in enumerate(masked.split("\n"), 1):
        if not continued and line[:1] not in ("", " ", "\t", "\r", ")", "]", "}"):
            found.append(number)
        continued = line.endswith("\\")
    return found
