"""What replayed code may do with values: a closed list of built-ins, methods and operators (see replay.py)."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace

PROGRAM_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ImportError, OSError)

_ERRORS = ("Exception", *(error.__name__ for error in PROGRAM_ERRORS), "KeyError", "ModuleNotFoundError")
_FUNCTIONS = ("bool", "frozenset", "int", "len", "list", "range", "set", "sorted", "str", "tuple")
BUILTINS: dict[str, object] = {name: getattr(builtins, name) for name in (*_ERRORS, *_FUNCTIONS)}
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset({"endswith", "isalpha", "isdigit", "lower", "partition", "replace", "split", "startswith", "strip"}),
    set: frozenset({"add"}),
    list: frozenset({"append"}),
}
_OPERATORS: dict[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Eq: operator.eq,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: operator.contains(_container(right), left),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.NotEq: operator.ne,
    ast.NotIn: lambda left, right: not operator.contains(_container(right), left),
}


class Unreplayable(Exception):  # noqa: N818 - it is no error of anybody's, only the end of what can be followed
    """The rule does something that cannot be followed; the text says where and what."""


def unknown(node: ast.stmt | ast.expr) -> Unreplayable:
    """The end of what can be followed, with line and text."""
    return Unreplayable(f"line {node.lineno}: {ast.unparse(node).splitlines()[0][:100]!r} cannot be followed")


def attribute(node: ast.expr, owner: object, name: str) -> object:
    """owner.name, for modelled objects and the listed methods."""
    allowed = name in _METHODS.get(type(owner), ()) or (isinstance(owner, SimpleNamespace) and hasattr(owner, name))
    if not allowed:
        raise unknown(node)
    value: object = getattr(owner, name)
    return value


def binary(node: ast.expr, op: ast.operator | ast.cmpop, left: object, right: object) -> object:
    """An operator or comparison of two values."""
    if isinstance(op, ast.Div) and isinstance(left, Path) and isinstance(right, str | Path):
        return left / right
    function = _OPERATORS.get(type(op))
    if function is None:
        raise unknown(node)
    return function(left, right)


def element(node: ast.expr, owner: object, index: object) -> object:
    """owner[index]."""
    if isinstance(owner, str | tuple | list) and isinstance(index, int):
        found: object = owner[index]
        return found
    if isinstance(owner, Mapping):
        return owner[index]
    raise unknown(node)


def iterable(value: object) -> Iterable[object]:
    """The value to loop over; Python's own error for what is none."""
    if isinstance(value, Iterable):
        return value
    raise TypeError(f"{type(value).__name__!r} object is not iterable")


def _container(value: object) -> Container[object]:
    if isinstance(value, Mapping | str | tuple | list | set | frozenset):
        return value
    raise TypeError(f"argument of type {type(value).__name__!r} is not iterable")


def classes(wanted: object, handler: ast.ExceptHandler) -> tuple[type[Exception], ...]:
    """The exception classes of an `except` clause."""
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    kinds = tuple(kind for kind in several if isinstance(kind, type) and issubclass(kind, Exception))
    if len(kinds) != len(several):
        raise Unreplayable(f"line {handler.lineno}: this kind of error cannot be followed")
    return kinds
