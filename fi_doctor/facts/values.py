"""Values that are known without running anything: numbers, texts, None and tuples; all others are UNKNOWN."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple


@dataclass(frozen=True)
class Function:
    """A function or class of the package, by where it stands."""

    path: Path
    line: int


class Unknown:
    """What cannot be told without running it."""


UNKNOWN: Final = Unknown()
Value = int | str | None | tuple["Value", ...] | Function | Unknown


class Arguments(NamedTuple):
    """What a call is given."""

    places: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_whole: bool = False  # whether nothing else is given, so that the other parameters have their defaults


_ORDERS: dict[type[ast.cmpop], Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_SUMS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def truth(value: Value) -> bool | None:
    """Whether it counts as true; None where that is not known."""
    return None if isinstance(value, (Unknown, Function)) else bool(value)


def compared(how: ast.cmpop, left: Value, right: Value) -> Value:
    """What a comparison gives, as Python has it."""
    if isinstance(left, (Unknown, Function)) or isinstance(right, (Unknown, Function)):
        return UNKNOWN
    match how:
        case ast.Eq() | ast.Is():
            return left == right
        case ast.NotEq() | ast.IsNot():
            return left != right
        case ast.In() | ast.NotIn() if isinstance(right, tuple):
            return (left in right) is isinstance(how, ast.In)
    order, first, second = _ORDERS.get(type(how)), _numbers(left), _numbers(right)
    if order is None or first is None or second is None or isinstance(left, int) is not isinstance(right, int):
        return UNKNOWN
    return order(first, second)


def summed(how: ast.operator, left: Value, right: Value) -> Value:
    """What adding, subtracting or multiplying two numbers gives."""
    sums = _SUMS.get(type(how))
    return sums(left, right) if sums and isinstance(left, int) and isinstance(right, int) else UNKNOWN


def item(of: Value, key: Value) -> Value:
    """An element of a tuple."""
    is_there = isinstance(of, tuple) and isinstance(key, int) and -len(of) <= key < len(of)
    return of[key] if is_there and isinstance(of, tuple) and isinstance(key, int) else UNKNOWN


def gathered(values: list[Value]) -> Value:
    """A tuple of these; not known where one of them is not."""
    return UNKNOWN if any(isinstance(value, Unknown) for value in values) else tuple(values)


def text(value: Value) -> str | None:
    """What str() makes of it; None where that is not known."""
    return str(value) if isinstance(value, (int, str)) else None


def _numbers(value: Value) -> tuple[int, ...] | None:
    parts = value if isinstance(value, tuple) else (value,)
    numbers = tuple(part for part in parts if isinstance(part, int))
    return numbers if len(numbers) == len(parts) else None
