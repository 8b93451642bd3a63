"""What the names of a Python file stand for, as far as they come from FlashInfer; nothing is run.

A value is a dotted name, `flashinfer.norm.rmsnorm`; "()" in it is what a call gives, `flashinfer.BatchAttention().run`,
and "[]" at its end is a list or dict that holds such.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple

from fi_doctor.facts.calls.arguments import Given

if TYPE_CHECKING:
    from fi_doctor.facts.calls.owners import Class, Function

IMPORT, OPTIONAL, LAZY, OWN = "import", "optional", "lazy", "own"
PACKAGE = "flashinfer"
ANY = "*"  # of `from x import *`: any name of that scope may be one of these
_MODULE = re.compile(rf"{PACKAGE}(?:\.\w+)*")
_IMPORTERS = re.compile(r"import|lazy|submodule|spec")


class Value(NamedTuple):
    """One thing that a name may stand for."""

    dotted: str  # "" for what is not FlashInfer's
    lookup: str = IMPORT  # OPTIONAL: the file does without it; LAZY: it fails only where it is called; OWN: it sets it
    given: Given | None = None  # what functools.partial holds already
    owner: Class | Function | None = None  # what it is of vLLM's own, where it is not FlashInfer's
    made: bool = False  # an instance of that class, or that method of an instance

    def attribute(self, name: str) -> Value:
        """A member of it."""
        if not self.dotted or self.given is not None or self.dotted.endswith("[]"):
            return OTHER
        return Value(f"{self.dotted}.{name}", self.lookup)

    def called(self) -> Value:
        """What a call of it gives."""
        if not self.dotted or self.dotted.endswith("[]"):
            return OTHER
        return Value(f"{self.dotted}()", self.lookup)

    def held(self) -> Value:
        """What holds it: a list, a dict."""
        return self._replace(dotted=f"{self.dotted}[]") if self.dotted else OTHER

    def element(self) -> Value:
        """What it holds."""
        return self._replace(dotted=self.dotted.removesuffix("[]")) if self.dotted.endswith("[]") else OTHER


Values = frozenset[Value]
OTHER = Value("")
UNKNOWN: Values = frozenset({OTHER})
NOTHING: Values = frozenset()


class Scope:
    """The names of a function or module, and of what surrounds it."""

    def __init__(self, outer: Scope | None = None, owner: Class | None = None, function: ast.AST | None = None) -> None:
        self.names: dict[str, Values] = {}
        self.types: dict[str, Values] = {}  # names that only annotations may use: imported below `if TYPE_CHECKING:`
        self.words: set[str] = set()  # of the names, those that may be FlashInfer's
        self.outer = outer
        self.owner = owner  # the class whose body it is
        self.function = function  # the def whose body it is
        self._elsewhere: dict[str, Scope] = {}  # names that `global` and `nonlocal` bind in other scopes

    def look_up(self, name: str, *, is_type: bool = False) -> Values:
        """What a name stands for in this scope or around it; is_type: in an annotation."""
        scope: Scope | None = self
        while scope is not None:
            if is_type and name in scope.types:
                return scope.types[name]
            if name in scope.names:
                return scope.names[name] | scope.names.get(ANY, NOTHING)
            scope = scope.outer
        return UNKNOWN

    def bind(self, name: str, values: Values, *, is_type: bool = False) -> None:
        """Add to what a name may stand for."""
        if name in self._elsewhere:
            self._elsewhere[name].bind(name, values, is_type=is_type)
            return
        names = self.types if is_type else self.names
        names[name] = names.get(name, NOTHING) | values
        if any(value.dotted for value in values):
            self.words.add(name)

    def declare(self, node: ast.Global | ast.Nonlocal) -> None:
        """What is bound here from now on is bound at the top of the file, or in the function around that has it."""
        around = [self]
        while around[-1].outer is not None:
            around.append(around[-1].outer)
        for name in node.names:
            holders = around[-1:] if isinstance(node, ast.Global) else around[1:-1]
            self._elsewhere[name] = next((scope for scope in holders if name in scope.names), around[-1])

    def all_words(self) -> Iterator[str]:
        """The names, here and around, that may be FlashInfer's."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.words
            scope = scope.outer


def imports(
    node: ast.Import | ast.ImportFrom, imported: Callable[[str, str], Values | None], lookup: str
) -> Iterator[tuple[str, Values]]:
    """The names that an import binds, with what they stand for."""
    for alias in node.names:
        if alias.name == ANY:
            yield ANY, UNKNOWN
        elif isinstance(node, ast.Import):
            dotted = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or dotted, frozenset({Value(dotted, lookup)}) if is_known(alias.name) else UNKNOWN
        elif node.level or node.module is None:
            yield alias.asname or alias.name, UNKNOWN
        elif is_flashinfer(node.module):
            yield alias.asname or alias.name, frozenset({Value(f"{node.module}.{alias.name}", lookup)})
        else:
            yield alias.asname or alias.name, imported(node.module, alias.name) or UNKNOWN


def named_by_text(call: ast.Call) -> Value | None:
    """What `wrapper("flashinfer.norm", "rmsnorm")` or `find_spec("flashinfer.norm")` asks for by its name."""
    words = [one.value for one in call.args[:2] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not words or len(words) < min(2, len(call.args)) or not is_flashinfer(words[0]):
        return None
    if words[0] == PACKAGE and not _IMPORTERS.search(last_part(call.func)):
        return None  # a backend's name
    if len(words) == 1:
        return Value(words[0], OPTIONAL)
    return Value(f"{words[0]}.{words[1]}", LAZY) if words[1].isidentifier() else None


def goes_without(node: ast.Try, errors: set[str]) -> bool:
    """Whether one of these errors in a try block is caught."""
    return any(handler.type is None or errors & _names(handler.type) for handler in node.handlers)


def is_flashinfer(module: str) -> bool:
    """Whether a dotted name is FlashInfer's."""
    return _MODULE.fullmatch(module) is not None


def is_of(dotted: str, names: AbstractSet[str]) -> bool:
    """Whether it is one of the names, or a member of one, or of what a call of one gives."""
    return any(dotted == one or dotted.startswith((f"{one}.", f"{one}(")) for one in names)


def is_known(module: str) -> bool:
    """Whether a module may have FlashInfer's names."""
    return is_flashinfer(module) or module.startswith("vllm.")


def _names(node: ast.expr) -> set[str]:
    several = node.elts if isinstance(node, ast.Tuple) else [node]
    return {last_part(one) for one in several}


def last_part(node: ast.AST | None) -> str:
    """The last part of a dotted name; "" when it is none."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
