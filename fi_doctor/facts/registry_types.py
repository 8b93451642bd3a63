"""What an annotation of a setting allows, and how a command line or a configuration file is turned into it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from fi_doctor.facts.registry_source import Module, UnknownError, is_enum, members
from fi_doctor.model.registry import Parse

_BUILTIN = {"bool", "int", "float", "str", "bytes"}
_CONTAINERS = {
    "list": "list",
    "List": "list",
    "Sequence": "list",
    "tuple": "tuple",
    "Tuple": "tuple",
    "set": "set",
    "Set": "set",
    "frozenset": "set",
    "dict": "dict",
    "Dict": "dict",
    "Mapping": "dict",
}
_WRAPPERS = ("Annotated", "A", "SkipValidation", "InitVar", "Required", "Final")
_UNIONS = ("Union", "Optional")
_RECORDS = ("config", "dataclass")  # the decorators of classes that are given as JSON
_DEEPEST = 20


@dataclass
class Allowed:
    """The parts of an annotation, those of unions taken apart."""

    words: set[str] = field(default_factory=set)  # "bool", "int", "None", "list", "dict", "literal", "enum", "record"
    options: tuple[object, ...] = ()  # of a Literal
    members: tuple[str, ...] = ()  # of an enum
    enum: str = ""  # its name
    item: Allowed | None = None  # of a list, tuple or set

    @property
    def choices(self) -> tuple[str, ...]:
        """The options of a Literal or names of an enum as they are written."""
        return tuple(str(one) for one in self.options) or self.members


def allowed(node: ast.expr, module: Module) -> Allowed:
    """What an annotation in this module allows; "other" stands for a type that is not understood."""
    found = Allowed()
    _take(node, module, found, 0)
    return found


def _take(node: ast.expr, module: Module, found: Allowed, depth: int) -> None:
    if depth > _DEEPEST:
        found.words.add("other")
        return
    match node:
        case ast.Constant(value=None):
            found.words.add("None")
        case ast.Constant(value=str(text)):
            _take(_parsed(text), module, found, depth + 1)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            _take(left, module, found, depth + 1)
            _take(right, module, found, depth + 1)
        case ast.Subscript(value=base, slice=inner):
            _take_subscript(_last(base), node, inner, (module, found, depth))
        case ast.Name() | ast.Attribute():
            _take_name(node, module, found, depth)
        case _:
            found.words.add("other")


def _take_subscript(base: str, node: ast.Subscript, inner: ast.expr, here: tuple[Module, Allowed, int]) -> None:
    module, found, depth = here
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if base == "Literal":
        found.words.add("literal")
        found.options += _options(node, module)
    elif base in _WRAPPERS:
        _take(parts[0], module, found, depth + 1)
    elif base in _UNIONS:
        found.words |= {"None"} if base == "Optional" else set()
        for part in parts:
            _take(part, module, found, depth + 1)
    elif base in _CONTAINERS:
        found.words.add(_CONTAINERS[base])
        if _CONTAINERS[base] != "dict":
            found.item = allowed(parts[0], module)
    else:
        found.words.add("other")


def _take_name(node: ast.Name | ast.Attribute, module: Module, found: Allowed, depth: int) -> None:
    name = _last(node)
    if name in _BUILTIN or name == "None":
        found.words.add(name)
    elif name in _CONTAINERS:
        found.words.add(_CONTAINERS[name])
    elif isinstance(node, ast.Attribute):
        found.words.add("other")
    else:
        _take_defined(name, module, found, depth)


def _take_defined(name: str, module: Module, found: Allowed, depth: int) -> None:
    try:
        origin, there = module.origin(name)
    except UnknownError:
        found.words.add("other")
        return
    if there in origin.classes:
        one = origin.classes[there]
        if is_enum(one):
            found.words.add("enum")
            found.members += members(one)
            found.enum = there
        else:
            found.words.add("record" if _is_record(one) else "other")
    elif there in origin.constants:
        _take(origin.constants[there], origin, found, depth + 1)
    else:
        found.words.add("other")


def on_command_line(hint: Allowed, *, sizes: bool = False) -> tuple[Parse, tuple[str, ...], bool]:  # noqa: C901 - one line each
    """How vLLM's get_kwargs has argparse read a field: the form, its choices, and whether several values follow."""
    words = hint.words
    if "record" in words:
        return Parse.JSON, (), False
    if words == {"bool", "str", "None"}:
        return Parse.TEXT, (), False
    if "bool" in words:
        return Parse.FLAG, (), False
    if "literal" in words:
        return (Parse.TEXT if "str" in words else Parse.CHOICE), hint.choices, False
    for kind in ("tuple", "list", "set"):
        if kind in words:
            form, choices, _ = on_command_line(hint.item or Allowed({"str"}))
            return (Parse.TEXT if form in (Parse.FLAG, Parse.JSON) else form), choices, True
    if "int" in words:
        return (Parse.SIZE if sizes else Parse.INT), (), False
    if "float" in words:
        return Parse.FLOAT, (), False
    if "dict" in words:
        return (Parse.TEXT if words & {"str", "other", "enum"} else Parse.JSON), (), False
    if "enum" in words:
        return Parse.UNKNOWN, hint.choices, False
    return Parse.TEXT, (), False


def in_configuration(hint: Allowed) -> tuple[Parse, tuple[str, ...]]:
    """How pydantic takes the text behind a dotted flag for a field."""
    words = hint.words - {"None"}
    if words == {"bool"}:
        return Parse.BOOL_LAX, ()
    if words == {"literal"}:
        return Parse.CHOICE, hint.choices
    if words == {"enum"}:
        return Parse.UNKNOWN, hint.choices
    simple = {"int": Parse.INT, "float": Parse.FLOAT, "str": Parse.TEXT}
    if len(words) == 1 and (word := next(iter(words))) in simple:
        return simple[word], ()
    if words == {"literal", "str"}:
        return Parse.TEXT, hint.choices
    if words and words <= {"list", "tuple", "set", "dict", "record"}:
        return Parse.JSON, ()
    return Parse.UNKNOWN, ()


def _options(node: ast.Subscript, module: Module) -> tuple[object, ...]:
    try:
        return tuple(module.options(node))
    except UnknownError:
        return (ast.unparse(node),)


def _is_record(node: ast.ClassDef) -> bool:
    names = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(_last(name) in _RECORDS for name in names)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Constant(value=...)


def _last(node: ast.expr) -> str:
    """The last word of a dotted name; "" where it is none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
