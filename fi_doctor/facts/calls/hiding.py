"""Where a name is bound otherwise than by an assignment, a loop, `with`, an import or a definition."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from fi_doctor.facts.calls.values import UNKNOWN, Scope, Values

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OwnScope = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda


def rebound(node: ast.stmt) -> Iterator[str]:
    """Names that a statement binds or unbinds by :=, +=, del, a pattern, a starred target or `except ... as`.

    Not those in the blocks of the statement, which are statements of their own.
    """
    todo: list[ast.AST] = [node]
    while todo:
        one = todo.pop()
        match one:
            case ast.NamedExpr(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.Starred(value=ast.Name(id=name, ctx=ast.Store())) | ast.Name(id=name, ctx=ast.Del()):
                yield name
            case ast.ExceptHandler(name=str() as name) | ast.MatchMapping(rest=str() as name):
                yield name
            case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
                yield name
        todo += [inner for inner in ast.iter_child_nodes(one) if not isinstance(inner, ast.stmt | ast.Lambda)]


def inner_scope(node: _OwnScope, outer: Scope, evaluate: Callable[[ast.expr, Scope], Values]) -> Scope:
    """The names of a comprehension, bound to what it goes through, or of a lambda, bound to what is not known."""
    around = outer if outer.owner is None or outer.outer is None else outer.outer
    scope = Scope(around, function=outer.function)
    if isinstance(node, ast.Lambda):
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                scope.names[argument.arg] = UNKNOWN
        return scope
    for part in node.generators:
        if isinstance(part.target, ast.Name):
            elements = frozenset(value.element() for value in evaluate(part.iter, scope))
            scope.names[part.target.id] = elements
        for name in ast.walk(part.target):
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                scope.names.setdefault(name.id, UNKNOWN)
    return scope
