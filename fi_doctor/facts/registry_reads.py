"""Where source code reads the environment, and what a read gives without the variable."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fi_doctor.facts.registry_source import Module, UnknownError
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered, Value, means

_NOT_SET: dict[Parse, Value] = {
    **dict.fromkeys((Parse.EQUALS, Parse.TRUTHY, Parse.BOOL_WORDS, Parse.IS_SET), False),
    **dict.fromkeys((Parse.DIFFERS, Parse.DIFFERS_ANY_CASE), True),
}


class Given(enum.Enum):
    """That `text` decides what a read gives."""

    BY_TEXT = enum.auto()


GIVEN = Given.BY_TEXT


@dataclass(frozen=True)
class Form:
    """How one read turns the text into a value, and what it gives without the variable."""

    parse: Parse = Parse.TEXT
    choices: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    through: str = ""
    folded: bool = False  # whether case was taken away on the way
    # What stands for the text where it is not set; None: nothing does.
    text: str | Missing | None = None
    # What stands for the whole where it is not set, if that was said.
    instead: Value | Missing | Given = GIVEN
    falsy: bool = False  # whether `text` was given as something else than a text, 0 or False
    returned: bool = False  # whether it is what its function gives

    @property
    def default(self) -> Value | Missing:
        """The value without the variable."""
        if not isinstance(self.instead, Given):
            return self.instead
        if isinstance(self.text, Missing):
            return self.text
        if self.through or self.parse is Parse.UNKNOWN:
            return Missing(reason=f"computed: {self.through}" if self.through else "how it is read is not understood")
        if self.text is None:
            return _NOT_SET.get(self.parse)
        if self.falsy and self.parse is Parse.TRUTHY:
            return False
        if self.off and self.text.lower() not in (*self.choices, *self.off):
            return None
        one = Registered(
            name="",
            kind="env",
            type="",
            default=None,
            source="",
            parse=self.parse,
            choices=self.choices,
            off=self.off,
        )
        return means(one, self.text)


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """Of each node below this one the node around it."""
    found: dict[ast.AST, ast.AST] = {}
    left = [tree]
    while left:
        node = left.pop()
        for value in vars(node).values():  # ast.walk takes six times as long
            if isinstance(value, ast.AST):
                found[value] = node
                left.append(value)
            elif isinstance(value, list):
                for one in value:
                    if isinstance(one, ast.AST):
                        found[one] = node
                        left.append(one)
    return found


def reads_in(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr, ast.expr | None, bool]]:
    """Each read of the environment: the expression, that of the name, of the default, and whether it only asks."""
    for node in nodes:
        match node:
            case ast.Call(func=func, args=[name, *rest]) if _is_get(func):
                yield node, name, rest[0] if rest else _keyword(node, "default"), False
            case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if _is_environ(value):
                yield node, name, None, False
            case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[one]) if _is_environ(one):
                yield node, name, None, True


def start(default: ast.expr | None, module: Module) -> Form:
    """The form of a read before anything is made of its text: with the default that it is given."""
    if default is None:
        return Form()
    try:
        found = module.value(default)
    except UnknownError:
        return Form(text=Missing(reason=f"computed: {ast.unparse(default)[:200]}"))
    if found is None:
        return Form()
    text = "" if found is False else str(found)
    return Form(text=text, falsy=not isinstance(found, str) and not found)


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in node.keywords if one.arg == name), None)


def _is_get(func: ast.expr) -> bool:
    match func:
        case ast.Name(id="getenv") | ast.Attribute(value=ast.Name(id="os"), attr="getenv"):
            return True
        case ast.Attribute(value=value, attr="get" | "setdefault"):
            return _is_environ(value)
    return False


def _is_environ(node: ast.expr) -> bool:
    match node:
        case ast.Name(id="environ") | ast.Attribute(value=ast.Name(id="os" | "_os"), attr="environ"):
            return True
    return False
