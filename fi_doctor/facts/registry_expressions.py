"""What source code makes of the text of an environment variable: int(os.getenv("X", "0")) and what stands around it."""

from __future__ import annotations

import ast
from dataclasses import replace

from fi_doctor.facts.registry_fields import plain
from fi_doctor.facts.registry_reads import GIVEN, Form, parents_of
from fi_doctor.facts.registry_source import Module, UnknownError
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse

_FOLDS = ("lower", "upper", "casefold")
_STRIPS = ("strip", "lstrip", "rstrip")
_PATHS = ("Path", "expanduser", "abspath", "join", "realpath", "expandvars", "PurePath", "normpath")
_BOOLEAN = (Parse.BOOL_INT, Parse.BOOL_WORDS, Parse.EQUALS, Parse.DIFFERS, Parse.DIFFERS_ANY_CASE, Parse.TRUTHY)
_MOST_STEPS = 30


class Surroundings:
    """The expressions around a read, up to where its value is kept."""

    def __init__(self, module: Module, scope: ast.AST, parents: dict[ast.AST, ast.AST]) -> None:
        self._module = module
        self._scope = scope  # the function in which it stands, or the module
        self._parents = parents
        self._followed: set[str] = set()

    def form(self, node: ast.expr, start: Form) -> Form:
        """What becomes of the text that `node` gives."""
        found: Form = start
        for _ in range(_MOST_STEPS):
            parent = self._parents.get(node)
            step = self._step(node, parent, found) if parent is not None else None
            if step is None:
                return self._ended(node, parent, found)
            node, found = step
        return replace(found, parse=Parse.UNKNOWN)

    def _step(self, node: ast.expr, parent: ast.AST, found: Form) -> tuple[ast.expr, Form] | None:  # noqa: C901
        match parent:
            case ast.Attribute(attr=attr) if (
                isinstance(call := self._parents.get(parent), ast.Call) and call.func is parent
            ):
                return self._method(call, attr, found)
            case ast.Call(func=ast.Name(id="int" | "float" | "bool" as name), args=[first, *_]) if first is node:
                return parent, _number(name, found, parent)
            case ast.Call(args=args) if node in args:
                return self._called(parent, found)
            case ast.Compare(left=left, ops=[op], comparators=[other]):
                return parent, self._compared(found, op, other if left is node else left, parent, at_left=left is node)
            case ast.BoolOp(op=ast.Or(), values=values) if found.parse not in _BOOLEAN:
                return parent, self._or(found, node, values, parent)
            case ast.BoolOp():
                through = ast.unparse(parent)[:200]
                form = Parse.TRUTHY if found.parse is Parse.TEXT else found.parse
                return parent, replace(found, parse=form, through=through)
            case ast.UnaryOp(op=ast.Not()):
                form = Parse.TRUTHY if found.parse is Parse.TEXT else found.parse
                return parent, replace(found, parse=form, through=ast.unparse(parent)[:200])
            case ast.IfExp(test=test, body=body, orelse=orelse) if test is not node:
                return parent, self._chosen(found, orelse if body is node else body, test)
            case ast.NamedExpr() | ast.IfExp():
                whole: ast.expr = parent
                while isinstance(above := self._parents.get(whole), ast.expr) and not isinstance(above, ast.Lambda):
                    whole = above
                return whole, replace(found, through=ast.unparse(whole)[:200])
            case ast.comprehension() if isinstance(above := self._parents.get(parent), ast.expr):
                return above, found
            case ast.Starred():
                return parent, found
        return None

    def _method(self, call: ast.Call, name: str, found: Form) -> tuple[ast.expr, Form] | None:
        text = found.text
        if name in (*_FOLDS, *_STRIPS) and found.parse is Parse.TEXT:
            if isinstance(text, str):
                text = getattr(text, name)() if not call.args else text
            return call, replace(found, folded=found.folded or name in _FOLDS, text=text)
        if name == "split" and found.parse is Parse.TEXT:
            return call, replace(found, parse=Parse.LIST, text=text)
        if name in _PATHS or found.parse is Parse.PATH:
            return call, replace(found, parse=Parse.PATH, text=Missing(reason=f"computed: {ast.unparse(call)[:200]}"))
        return call, replace(found, parse=Parse.UNKNOWN, through=ast.unparse(call)[:200])

    def _called(self, call: ast.Call, found: Form) -> tuple[ast.expr, Form]:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _PATHS:
            text = found.text if name == "Path" else Missing(reason=f"computed: {ast.unparse(call)[:200]}")
            return call, replace(found, parse=Parse.PATH, text=text if found.text is not None else None)
        if name == "loads":
            return call, replace(found, parse=Parse.JSON)
        if name in ("list", "tuple", "set", "frozenset", "sorted", "print", "str"):
            return call, found
        if name == "get" and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Dict):
            return call, _from_table(call.func.value, found)
        inner = self._module.functions.get(name)
        if (
            inner is not None
            and found.parse is Parse.TEXT
            and call.args
            and len(inner.args.args) == len(call.args) == 1
        ):
            parameter = inner.args.args[0].arg
            return call, replace(
                Surroundings(self._module, inner, parents_of(inner)).uses(parameter, found), returned=False
            )
        return call, replace(found, parse=Parse.UNKNOWN, through=ast.unparse(call)[:200])

    def _compared(self, found: Form, op: ast.cmpop, other: ast.expr, node: ast.Compare, *, at_left: bool) -> Form:
        if isinstance(op, ast.Is | ast.IsNot):
            return replace(found, parse=Parse.IS_SET)
        words = self._words(other)
        if found.parse is Parse.INT and not at_left:
            return replace(found, through=ast.unparse(node)[:200])
        if found.parse is Parse.INT and isinstance(op, ast.NotEq) and words == ("0",):
            return replace(found, parse=Parse.BOOL_INT)
        if found.parse is not Parse.TEXT or words is None:
            return replace(found, through=ast.unparse(node)[:200])
        match op:
            case ast.Eq() | ast.In():
                return replace(found, parse=Parse.BOOL_WORDS if found.folded else Parse.EQUALS, choices=words)
            case ast.NotEq() | ast.NotIn():
                return replace(found, parse=Parse.DIFFERS_ANY_CASE if found.folded else Parse.DIFFERS, choices=words)
        return replace(found, parse=Parse.UNKNOWN, through=ast.unparse(node)[:200])

    def _words(self, node: ast.expr) -> tuple[str, ...] | None:
        if isinstance(node, ast.Name):  # a tuple of words that the function gave a name
            name = node.id
            kept = [one.value for one in ast.walk(self._scope) if isinstance(one, ast.Assign) and _assigns(one, name)]
            node = kept[0] if len(kept) == 1 else node
        try:
            found = self._module.value(node)
        except UnknownError:
            return None
        return tuple(str(one) for one in found) if isinstance(found, tuple) else (str(found),)

    def _or(self, found: Form, node: ast.expr, values: list[ast.expr], whole: ast.BoolOp) -> Form:
        rest = values[values.index(node) + 1 :]
        if not rest:
            return replace(found, through=ast.unparse(whole)[:200])
        try:
            text = self._module.value(rest[-1])
        except UnknownError:
            return replace(found, through=ast.unparse(whole)[:200])
        kept = found.text if isinstance(found.text, str) and found.text else None
        if len(values) > 2:  # it asks for others, too
            return replace(found, text=str(text))
        if found.parse is not Parse.TEXT:
            return replace(found, instead=plain(text) if kept is None else GIVEN, text=found.text)
        return replace(found, text=kept or (text if text is None else str(text)))

    def _chosen(self, found: Form, other: ast.expr, test: ast.expr) -> Form:
        if "environ" not in ast.unparse(test) and " is " not in ast.unparse(test) and not isinstance(test, ast.Name):
            return replace(found, through=f"{ast.unparse(other)} if not {ast.unparse(test)}"[:200])
        try:
            return replace(found, instead=plain(self._module.value(other)))
        except UnknownError:
            return replace(found, instead=Missing(reason=f"computed: {ast.unparse(other)[:200]}"))

    def _ended(self, node: ast.expr, parent: ast.AST | None, found: Form) -> Form:
        match parent:
            case None | ast.Lambda():
                return replace(found, returned=True)
            case ast.Return():
                return replace(found, returned=True)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if found.parse is Parse.TEXT and name not in self._followed:
                    return self.uses(name, found)
                return found
            case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
                return replace(found, parse=Parse.TRUTHY) if found.parse is Parse.TEXT else found
            case ast.FormattedValue() | ast.Dict() | ast.Call() | ast.keyword() | ast.For() | ast.Expr() | ast.Tuple():
                return found
        return (
            found
            if found.parse is not Parse.TEXT
            else replace(found, parse=Parse.UNKNOWN, through=ast.unparse(node)[:200])
        )

    def uses(self, name: str, start: Form) -> Form:
        """What becomes of a text that is kept under a name in this scope."""
        self._followed.add(name)
        reads = [one for one in ast.walk(self._scope) if isinstance(one, ast.Name) and one.id == name]
        loads = [one for one in reads if isinstance(one.ctx, ast.Load)]
        start = replace(start, folded=start.folded or any(self._folds_itself(one, name) for one in loads))
        forms = [self.form(one, start) for one in loads]
        told = [one for one in forms if one.parse not in (Parse.IS_SET, Parse.TEXT)]
        sure = [one for one in told if one.parse is not Parse.UNKNOWN]
        given = [one for one in sure if one.returned]
        if len(told) > len(sure) or (told and any(one.returned and one.parse is Parse.TEXT for one in forms)):
            return replace(start, parse=Parse.UNKNOWN, through=f"{name} is used in several ways")
        if given:
            return given[0]
        if sure and all((one.parse, one.choices) == (sure[0].parse, sure[0].choices) for one in sure):
            return sure[0]
        only_truth = [one for one in sure if one.parse is not Parse.TRUTHY]
        if len(only_truth) == 1:
            return only_truth[0]
        if told:
            return replace(start, parse=Parse.UNKNOWN, through=f"{name} is used in several ways")
        returned = any(one.returned for one in forms)
        return replace(start, returned=returned)

    def _folds_itself(self, node: ast.Name, name: str) -> bool:
        """Whether it stands in `value = value.lower()`."""
        attribute = self._parents.get(node)
        call = self._parents.get(attribute) if attribute is not None else None
        kept = self._parents.get(call) if call is not None else None
        return isinstance(attribute, ast.Attribute) and attribute.attr in _FOLDS and _assigns(kept, name)


def _assigns(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)


def _number(name: str, found: Form, node: ast.Call) -> Form:
    if name == "bool":
        forms = {Parse.TEXT: Parse.TRUTHY, Parse.INT: Parse.BOOL_INT}
        return replace(found, parse=forms.get(found.parse, found.parse))
    form = Parse.INT if name == "int" else Parse.FLOAT
    if found.parse in (Parse.TEXT, form):
        return replace(found, parse=form)
    return replace(found, through=ast.unparse(node)[:200])


def _from_table(table: ast.Dict, found: Form) -> Form:
    """{"1": True, "0": False}.get(text)."""
    pairs = {
        key.value: value.value
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(value, ast.Constant)
    }
    if len(pairs) != len(table.keys) or not all(isinstance(one, bool) for one in pairs.values()):
        return replace(found, parse=Parse.UNKNOWN, through=ast.unparse(table)[:200])
    on = tuple(str(key) for key, value in pairs.items() if value)
    return replace(
        found, parse=Parse.BOOL_WORDS, choices=on, off=tuple(str(key) for key in pairs if str(key) not in on)
    )
