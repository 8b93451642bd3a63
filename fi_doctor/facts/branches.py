"""Which branches of a Python file can run at all: what stands below `if TYPE_CHECKING:` or `if False:` never does."""

from __future__ import annotations

import ast


def holds(test: ast.expr) -> bool | None:
    """Whether a test is true wherever it is run; None where that depends."""
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            inside = holds(inner)
            return None if inside is None else not inside
        case ast.BoolOp(op=op, values=several):
            ends = isinstance(op, ast.Or)  # an `or` is true, an `and` false, as soon as one part is
            told = {holds(one) for one in several}
            return ends if ends in told else None if None in told else not ends
    return None


def running(node: ast.IfExp | ast.BoolOp) -> list[ast.expr]:
    """The parts of an expression that may be its value, and of which one can run."""
    if isinstance(node, ast.IfExp):
        test = holds(node.test)
        return [part for part, when in ((node.body, True), (node.orelse, False)) if test in (None, when)]
    ends = isinstance(node.op, ast.Or)
    last = next((number for number, one in enumerate(node.values, 1) if holds(one) is ends), None)
    return node.values[:last]
