"""What an expression of a package's source gives on GPUs of one compute capability, and what its calls refuse."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fi_doctor.facts.definitions import Definitions
from fi_doctor.facts.files import NOT_PYTHON
from fi_doctor.facts.symbols import Symbols
from fi_doctor.facts.values import (
    UNKNOWN,
    Arguments,
    Function,
    Value,
    compared,
    gathered,
    item,
    summed,
    text,
    truth,
)

# FlashInfer's function and torch's own: (9, 0).
_CAPABILITY = ("get_compute_capability", "get_device_capability")
# It raises where none of the architectures that are built for has one of the majors: compilation_context.py.
_FLAGS, _MAJORS = "get_nvcc_flags_list", "supported_major_versions"
_COPIES = ("frozenset", "list", "set", "tuple")


class RefusedError(Exception):
    """The call cannot come past this line."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}:{line}")
        self.path = path
        self.line = line


class Scope(NamedTuple):
    """Where an expression stands: the file, and what its function's names hold."""

    path: Path
    names: dict[str, Value]


class Expressions:
    """Reads expressions.

    capability: of the GPUs, 90.  follow: what a call of a function of the package gives.
    """

    def __init__(
        self,
        symbols: Symbols,
        definitions: Definitions,
        capability: Callable[[], int],
        follow: Callable[[Function, Arguments], Value],
    ) -> None:
        self._symbols = symbols
        self._definitions = definitions
        self._capability = capability
        self._follow = follow

    def forget(self, node: ast.AST, scope: Scope) -> None:
        """Take what is assigned somewhere in there for not known."""
        scope.names.update(dict.fromkeys(self._definitions.bound(node), UNKNOWN))

    def truth(self, node: ast.expr, scope: Scope) -> bool | None:
        """Whether a condition holds; None where that is not known. One part of `and` or `or` can decide it alone."""
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self.truth(operand, scope)
                return None if found is None else not found
            case ast.BoolOp(op=op, values=values):
                decides = isinstance(op, ast.Or)
                parts: list[bool | None] = []
                for part in values:
                    is_reached = None not in parts
                    parts.append(self.truth(part, scope) if is_reached else self._perhaps(part, scope))
                    if parts[-1] is decides:
                        return decides
                return None if None in parts else not decides
        return truth(self.value(node, scope))

    def value(self, node: ast.expr, scope: Scope) -> Value:  # noqa: C901, PLR0912 - one case a kind of node
        """What it gives; raises RefusedError where it surely does."""
        match node:
            case ast.Constant(value=int() | str() | None as value):
                return value
            case ast.Name(id=name):
                return scope.names[name] if name in scope.names else self._global(scope.path, name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return gathered([self.value(part, scope) for part in parts])
            case ast.Subscript(value=of, slice=key):
                return item(self.value(of, scope), self.value(key, scope))
            case ast.Compare(left=left, ops=hows, comparators=rights):
                return self._compared([left, *rights], hows, scope)
            case ast.BinOp(left=left, op=sum_, right=right):
                return summed(sum_, self.value(left, scope), self.value(right, scope))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                found = self.truth(operand, scope)
                return UNKNOWN if found is None else not found
            case ast.BoolOp(op=op, values=parts):
                return self._chosen(op, parts, scope)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._either(test, body, orelse, scope)
            case ast.JoinedStr(values=parts):
                return self._joined(parts, scope)
            case ast.NamedExpr(target=target, value=given):
                scope.names[target.id] = self.value(given, scope)
                return scope.names[target.id]
            case ast.Call():
                return self._call(node, scope)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self.forget(node, scope)
                return UNKNOWN
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child, scope)
        return UNKNOWN

    def _perhaps(self, node: ast.expr, scope: Scope) -> bool | None:
        """The truth of what may not be reached, so that what it refuses says nothing."""
        try:
            return self.truth(node, scope)
        except RefusedError:
            return None
        finally:
            self.forget(node, scope)

    def _chosen(self, op: ast.boolop, parts: list[ast.expr], scope: Scope) -> Value:
        """The part that `and` or `or` gives, which is not its truth alone."""
        for number, part in enumerate(parts, 1):
            found = self.value(part, scope)
            holds = truth(found)
            if holds is isinstance(op, ast.Or) or number == len(parts):
                return found
            if holds is None:
                for rest in parts[number:]:
                    self.forget(rest, scope)
                return UNKNOWN
        return UNKNOWN

    def _compared(self, parts: list[ast.expr], hows: list[ast.cmpop], scope: Scope) -> Value:
        """`a < b`, or `a < b < c` where what stands behind the first sign calls nothing."""
        if not all(isinstance(part, (ast.Constant, ast.Name)) for part in parts[2:]):
            self.forget(parts[-1], scope)
            return UNKNOWN
        values = [self.value(part, scope) for part in parts]
        held = [truth(compared(how, *pair)) for how, pair in zip(hows, itertools.pairwise(values), strict=True)]
        return False if False in held else UNKNOWN if None in held else True

    def _either(self, test: ast.expr, body: ast.expr, orelse: ast.expr, scope: Scope) -> Value:
        holds = self.truth(test, scope)
        if holds is not None:
            return self.value(body if holds else orelse, scope)
        self.forget(body, scope)
        self.forget(orelse, scope)
        return UNKNOWN

    def _joined(self, parts: list[ast.expr], scope: Scope) -> Value:
        """An f-string of known values that are written as they are."""
        said: list[str | None] = []
        for part in parts:
            plain = isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            found = text(self.value(inner, scope))
            said.append(found if plain or isinstance(part, ast.Constant) else None)
        known = [one for one in said if one is not None]
        return "".join(known) if len(known) == len(said) else UNKNOWN

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if not isinstance(node.func, ast.Name):
            self.value(node.func, scope)
        places = tuple(self.value(one, scope) for one in node.args)
        named = {one.arg or "": self.value(one.value, scope) for one in node.keywords}
        if called in _CAPABILITY:
            return divmod(self._capability(), 10)
        if called == _FLAGS:
            self._compile(node, named.get(_MAJORS, UNKNOWN), scope)
        if not isinstance(node.func, ast.Name):
            return UNKNOWN
        if called in _COPIES and len(places) == 1:
            return places[0] if isinstance(places[0], tuple) else UNKNOWN
        function = self.value(node.func, scope)
        if not isinstance(function, Function):
            return UNKNOWN
        is_plain = "" not in named and not any(isinstance(one, ast.Starred) for one in node.args)
        return self._follow(
            function, Arguments(places, tuple(named.items()), is_whole=True) if is_plain else Arguments()
        )

    def _compile(self, node: ast.Call, majors: Value, scope: Scope) -> None:
        """What FlashInfer says of a module's GPUs; an empty list asks for none."""
        if isinstance(majors, tuple) and majors and self._capability() // 10 not in majors:
            line = next(one.value.lineno for one in node.keywords if one.arg == _MAJORS)
            raise RefusedError(scope.path, line)

    def _global(self, path: Path, name: str) -> Value:
        """What a module's own name stands for: a function, a class, or a literal that is written as a constant."""
        found = self._symbols.named_in(path, name)
        if found is None:
            return UNKNOWN
        if self._definitions.is_function(*found):
            return Function(*found)
        match self._definitions.at(*found) if name == name.upper() else None:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return _literal(value)
        return UNKNOWN


def _literal(node: ast.expr) -> Value:
    match node:
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple" | "list"), args=[inner], keywords=[]):
            node = inner
    try:
        found: object = ast.literal_eval(node)
    except NOT_PYTHON:
        return UNKNOWN
    parts = tuple(found) if isinstance(found, (list, set, tuple)) else found
    if isinstance(parts, tuple):
        known = tuple(part for part in parts if isinstance(part, (int, str)))
        return known if len(known) == len(parts) else UNKNOWN
    return parts if isinstance(parts, (int, str)) and not isinstance(parts, bool) else UNKNOWN
