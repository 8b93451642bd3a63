"""Parts of expressions and statements: what may be their value, what they hold, whether they go on without a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fi_doctor.facts.branches import running
from fi_doctor.facts.calls.arguments import Given
from fi_doctor.facts.calls.values import OTHER, Value, goes_without, last_part
from fi_doctor.facts.files import NOT_PYTHON

_ABSENCE = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"}


def forgives(node: ast.stmt) -> bool:
    """Whether a statement goes on where a name in its body is not there."""
    if isinstance(node, ast.With):
        return any(last_part(getattr(item.context_expr, "func", None)) == "suppress" for item in node.items)
    return isinstance(node, ast.Try) and goes_without(node, _ABSENCE)


def alternatives(node: ast.expr) -> list[ast.expr]:
    """The expressions of which one is the value."""
    match node:
        case ast.IfExp() | ast.BoolOp():
            return running(node)
        case ast.NamedExpr(value=value) | ast.Await(value=value):
            return [value]
    return []


def contents(node: ast.expr) -> list[ast.expr]:
    """What a list, set or dict holds."""
    match node:
        case ast.List(elts=several) | ast.Set(elts=several) | ast.Dict(values=several):
            return several
        case ast.ListComp(elt=inner) | ast.DictComp(value=inner) | ast.SetComp(elt=inner):
            return [inner]
    return []


def with_given(value: Value, held: Given) -> Value:
    """What functools.partial makes of it."""
    if not value.dotted:
        return OTHER
    return value._replace(given=value.given.and_more(held) if value.given is not None else held)


def parsed_text(text: str) -> ast.expr | None:
    """The expression of a quoted annotation."""
    try:
        return ast.parse(text, mode="eval").body
    except NOT_PYTHON:
        return None


def parts_of(test: ast.expr, *, holds: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of a test of which it is known whether they are true, `x is None` as one of x."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from parts_of(inner, holds=not holds)
        case ast.BoolOp(op=op, values=several) if isinstance(op, ast.And) == holds:
            for one in several:
                yield from parts_of(one, holds=holds)
        case ast.Compare(left=one, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
            yield one, holds is isinstance(op, ast.IsNot)
        case _:
            yield test, holds
