"""The arguments of a call as it is written, those too that a literal list or dict hands on by * and **."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Given(NamedTuple):
    """The arguments of a call, without their values."""

    number: int  # by position, those of a * that cannot be seen aside
    keywords: tuple[str, ...]  # one that is given twice stands there twice
    open_end: str = ""  # "*" or "**", where a call hands on what cannot be seen

    def without_first(self) -> Given:
        """The arguments of functools.partial after the function."""
        return self._replace(number=self.number - 1)

    def and_more(self, more: Given) -> Given:
        """What functools.partial keeps, and what it is called with; a keyword may be given again."""
        keywords = tuple(dict.fromkeys((*self.keywords, *more.keywords)))
        return Given(self.number + more.number, keywords, self.open_end or more.open_end)


def given(call: ast.Call, function: ast.AST | None) -> Given:
    """The arguments that a call writes down; function: the def around it, None at the top of a file."""
    by_place = list(_listed(call.args, function))
    by_name = list(_named(call.keywords, function))
    open_end = "*" if None in by_place else "**" if None in by_name else ""
    keywords = tuple(name for name in by_name if name is not None)
    return Given(sum(one is not None for one in by_place), keywords, open_end)


def _listed(several: list[ast.expr], function: ast.AST | None) -> Iterator[ast.expr | None]:
    """Each argument; None for those that cannot be seen."""
    for one in several:
        if not isinstance(one, ast.Starred):
            yield one
            continue
        held = _written(one.value, function)
        if isinstance(held, ast.List | ast.Tuple):
            yield from _listed(held.elts, function)
        else:
            yield None


def _named(several: list[ast.keyword], function: ast.AST | None) -> Iterator[str | None]:
    """Each keyword; None for those that cannot be seen."""
    for one in several:
        if one.arg is not None:
            yield one.arg
            continue
        match _written(one.value, function):
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                held = [ast.keyword(_word(key), value) for key, value in pairs if key is None or _word(key)]
                if len(held) < len(keys):
                    yield None
                yield from dict.fromkeys(_named(held, function))  # the last of two alike is taken
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=held):
                yield from _named(held, function)
            case _:
                yield None


def _word(key: ast.expr | None) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _written(node: ast.expr, function: ast.AST | None) -> ast.expr:
    """What a name surely holds: its def assigns it once, and does nothing else with it than to hand it on by * or **.

    Any other trace of that name in the def, of whatever kind, and one in a def inside it, leaves it the name.
    """
    if not isinstance(node, ast.Name) or function is None:
        return node
    assigned: list[ast.expr] = []
    known = seen = 0
    for one in _outside_defs(function):
        match one:
            case ast.Assign(targets=[ast.Name(id=node.id)], value=value):
                assigned.append(value)
            case ast.AnnAssign(target=ast.Name(id=node.id), value=ast.expr() as value):
                assigned.append(value)
            case ast.Starred(value=ast.Name(id=node.id, ctx=ast.Load())):
                known += 1
            case ast.keyword(arg=None, value=ast.Name(id=node.id)):
                known += 1
            case _ if isinstance(one, _INNER) and one is not function:
                seen += any(_mentions(inner, node.id) for inner in ast.walk(one))
        seen += _mentions(one, node.id)
    return assigned[0] if len(assigned) == 1 and seen == known + 1 else node


def _mentions(node: ast.AST, name: str) -> bool:
    return any(value == name or (isinstance(value, list) and name in value) for _, value in ast.iter_fields(node))


def _outside_defs(function: ast.AST) -> Iterator[ast.AST]:
    """All that stands in a def, of those inside it no more than themselves."""
    todo: list[ast.AST] = [function]
    while todo:
        one = todo.pop()
        yield one
        if one is function or not isinstance(one, _INNER):
            todo.extend(ast.iter_child_nodes(one))
