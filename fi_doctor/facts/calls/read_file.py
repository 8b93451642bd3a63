"""One Python file: what its names, the attributes in it and its functions stand for; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from fi_doctor.facts.calls.expressions import alternatives, contents, forgives, parsed_text, with_given
from fi_doctor.facts.calls.values import (
    IMPORT,
    NOTHING,
    OPTIONAL,
    PACKAGE,
    UNKNOWN,
    Scope,
    Value,
    Values,
    given,
    imports,
    last_part,
    named_by_text,
)

_PASSING = {"Optional", "Union", "ClassVar", "Final", "Annotated", "InitVar"}
_HOLDING = {
    "dict",
    "Dict",
    "defaultdict",
    "OrderedDict",
    "list",
    "List",
    "tuple",
    "Tuple",
    "Sequence",
    "Mapping",
    "set",
    "deque",
}
_TAKING = {"get", "pop", "setdefault", "values", "copy"}
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef)


class File:
    """One file: its tree, and what its names, attributes and functions stand for.

    imported: (module, name) -> the values of a name of another file, None where that file is not FlashInfer's caller.
    """

    def __init__(self, text: str, imported: Callable[[str, str], Values | None] = lambda _, __: None) -> None:
        self.tree = ast.parse(text)
        self._lines = text.split("\n")
        self.top = Scope()
        self.scopes: dict[ast.AST, Scope] = {}
        self.attributes: dict[str, Values] = {}  # of any object in this file, by the attribute's name
        self.returns: dict[str, Values] = {}  # what a function of this file gives
        self._passed: dict[tuple[str, int], Values] = {}  # (function, number of the argument) -> what this file passes
        self._imported = imported
        self._words: set[str] = set()  # of attributes and functions, those that may be FlashInfer's
        for _ in range(2):  # what a method reads may be set by one that stands below it
            self._block(self.tree.body, self.top, IMPORT)

    def concerns(self, node: ast.stmt, scope: Scope, more: Iterable[str] = ()) -> bool:
        """Whether a statement's text names anything that may be FlashInfer's; most do not, and are passed over.

        more: names that may be so there alone.
        """
        text = "\n".join(self._lines[node.lineno - 1 : node.end_lineno])
        return (
            PACKAGE in text
            or any(word in text for word in self._words)
            or any(word in text for word in scope.all_words())
            or any(word in text for word in more)
        )

    def evaluate(self, node: ast.expr | None, scope: Scope) -> Values:
        """What an expression may stand for."""
        match node:
            case None | ast.Constant(value=None) | ast.List(elts=[]) | ast.Dict(keys=[]):
                return NOTHING
            case ast.Name(id=name):
                return scope.look_up(name)
            case ast.Attribute(value=base, attr=name):
                return self._attribute(base, name, scope)
            case ast.Call():
                return self._called(node, scope)
            case ast.IfExp() | ast.BoolOp() | ast.NamedExpr() | ast.Await():
                return frozenset(value for one in alternatives(node) for value in self.evaluate(one, scope))
            case ast.Subscript(value=base):
                return frozenset(value.element() for value in self.evaluate(base, scope))
        return frozenset(value.held() for one in contents(node) for value in self.evaluate(one, scope)) or UNKNOWN

    def annotated(self, node: ast.expr | None, scope: Scope) -> Values:
        """What has this annotation: an instance of each class of FlashInfer that it names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = parsed_text(node.value)
        match node:
            case None | ast.Constant():
                return NOTHING
            case ast.BinOp(left=one, right=other):
                return self.annotated(one, scope) | self.annotated(other, scope)
            case ast.Subscript(value=outer, slice=inner):
                several = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                found = frozenset(value for one in several for value in self.annotated(one, scope) if value.dotted)
                if last_part(outer) in _PASSING:
                    return found or UNKNOWN
                return frozenset(value.held() for value in found if last_part(outer) in _HOLDING) or UNKNOWN
            case ast.Name() | ast.Attribute():
                return frozenset(value.called() for value in self.evaluate(node, scope))
        return UNKNOWN

    def _attribute(self, base: ast.expr, name: str, scope: Scope) -> Values:
        found: set[Value] = set()
        for value in self.evaluate(base, scope):
            if value.dotted.startswith(PACKAGE):
                found.add(value.attribute(name))
            else:
                named = self._imported(value.dotted, name) if value.dotted else None
                found |= named if named is not None else self.attributes.get(name, UNKNOWN)
        return frozenset(found)

    def _called(self, node: ast.Call, scope: Scope) -> Values:
        named = named_by_text(node)
        if named is not None:
            return frozenset({named})
        name = last_part(node.func)
        match name:
            case "getattr" if len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                asked = str(node.args[1].value)
                owners = self.evaluate(node.args[0], scope)
                return frozenset(value.attribute(asked)._replace(lookup=OPTIONAL) for value in owners)
            case "partial" if node.args:
                held = given(node)._replace(number=len(node.args) - 1)
                return frozenset(with_given(value, held) for value in self.evaluate(node.args[0], scope))
            case "cast" if len(node.args) == len(("type", "value")):
                return self.annotated(node.args[0], scope)
        inside = self.evaluate(node.func.value, scope) if isinstance(node.func, ast.Attribute) else NOTHING
        if name in _TAKING and any(value.dotted.endswith("[]") for value in inside):
            return inside if name in ("values", "copy") else frozenset(value.element() for value in inside)
        values = self.evaluate(node.func, scope)
        if values == UNKNOWN:
            self._pass(name, node.args, scope)
        if values == UNKNOWN and name in self.returns:
            return self.returns[name]
        return frozenset(value.called() for value in values) or UNKNOWN

    def _pass(self, function: str, arguments: list[ast.expr], scope: Scope) -> None:
        """Note what a function of this file is given, where it may be FlashInfer's."""
        for number, argument in enumerate(arguments):
            values = self.evaluate(argument, scope) if isinstance(argument, ast.Name | ast.Attribute) else UNKNOWN
            key = (function, number)
            if key in self._passed or any(value.dotted for value in values):
                self._passed[key] = self._passed.get(key, NOTHING) | values
                self._words.add(function)

    def _block(self, body: Iterable[ast.stmt], scope: Scope, lookup: str) -> None:
        for node in body:
            self._statement(node, scope, lookup)

    def _statement(self, node: ast.stmt, scope: Scope, lookup: str) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                for name, value in imports(node, self._imported, lookup):
                    scope.bind(name, value)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope, lookup)
            case ast.ClassDef():
                self._class(node, scope, lookup)
            case _ if isinstance(node, _SIMPLE) and not self.concerns(node, scope):
                self._hide(node, scope)
            case _:
                self._assign(node, scope)
                self._nested(node, scope, lookup)

    def _assign(self, node: ast.stmt, scope: Scope) -> None:
        """What the statement itself binds, and what it gives back."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._set(target, self.annotated(annotation, scope) | self.evaluate(value, scope) - UNKNOWN, scope)
            case ast.For(target=target, iter=source) | ast.AsyncFor(target=target, iter=source):
                self._set(target, frozenset(value.element() for value in self.evaluate(source, scope)), scope)
            case ast.Return(value=value):
                self._return(value, scope)
            case ast.Expr(value=ast.Call() as call):
                self._note_call(call, scope)
            case ast.With(items=items) | ast.AsyncWith(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, item.context_expr, scope)

    def _hide(self, node: ast.stmt, scope: Scope) -> None:
        """A name that is bound to something else: it is not what the name of an outer scope is."""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if target is not None:
                is_nothing = self.evaluate(getattr(node, "value", None), scope) == NOTHING
                self._set(target, NOTHING if is_nothing else UNKNOWN, scope)

    def _nested(self, node: ast.stmt, scope: Scope, lookup: str) -> None:
        self._block(getattr(node, "body", ()), scope, OPTIONAL if forgives(node) else lookup)
        for name in ("orelse", "finalbody"):
            self._block(getattr(node, name, ()), scope, lookup)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(part.body, scope, lookup)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, outer: Scope, lookup: str) -> None:
        outer.bind(node.name, UNKNOWN)
        if not self.concerns(node, outer):
            return
        scope = self.scopes[node] = Scope(outer)
        scope.names["return"] = NOTHING
        arguments = node.args
        positional = (*arguments.posonlyargs, *arguments.args)
        first = 1 if positional and positional[0].arg in ("self", "cls") else 0
        for number, argument in enumerate((*positional, *arguments.kwonlyargs), -first):
            passed = self._passed.get((node.name, number), UNKNOWN)
            scope.bind(argument.arg, self.annotated(argument.annotation, outer) or passed)
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                scope.names[extra.arg] = UNKNOWN
        self._block(node.body, scope, lookup)
        declared = self.annotated(node.returns, outer)
        given_back = declared if declared - UNKNOWN else scope.names["return"]
        if given_back - UNKNOWN:
            self.returns[node.name] = self.returns.get(node.name, NOTHING) | given_back
            self._words.add(node.name)

    def _class(self, node: ast.ClassDef, outer: Scope, lookup: str) -> None:
        outer.bind(node.name, UNKNOWN)
        inner = Scope(outer)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                self._note(one.target.id, self.annotated(one.annotation, outer))
            elif isinstance(one, _NESTED):
                self._function(one, inner, lookup)
            else:
                self._statement(one, inner, lookup)

    def _bind(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, part in zip(target.elts, value.elts, strict=True):
                self._set(one, self.evaluate(part, scope), scope)
            return
        self._set(target, self.evaluate(value, scope), scope)

    def _set(self, target: ast.expr, values: Values, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                scope.bind(name, values)
            case ast.Attribute(attr=name):
                self._note(name, values)
            case ast.Subscript(value=base):
                if values - UNKNOWN:
                    self._set(base, frozenset(value.held() for value in values - UNKNOWN), scope)
            case ast.Tuple(elts=several) | ast.List(elts=several):
                for one in several:
                    self._set(one, UNKNOWN, scope)

    def _return(self, value: ast.expr | None, scope: Scope) -> None:
        if "return" in scope.names:
            scope.names["return"] |= self.evaluate(value, scope)

    def _note_call(self, call: ast.Call, scope: Scope) -> None:
        """`list.append(x)` puts x into the list; `f(x)` gives it to a function of this file."""
        self.evaluate(call, scope)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "append" and call.args:
            values = self.evaluate(call.args[0], scope) - UNKNOWN
            if values:
                self._set(call.func.value, frozenset(value.held() for value in values), scope)

    def _note(self, attribute: str, values: Values) -> None:
        self.attributes[attribute] = self.attributes.get(attribute, NOTHING) | values
        if any(value.dotted for value in values):
            self._words.add(attribute)
