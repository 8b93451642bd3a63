"""One Python file: what its names, the attributes in it and its functions stand for; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from fi_doctor.facts.branches import holds
from fi_doctor.facts.calls.expressions import forgives
from fi_doctor.facts.calls.hiding import rebound
from fi_doctor.facts.calls.importing import forgiven
from fi_doctor.facts.calls.meanings import Imported, Meanings
from fi_doctor.facts.calls.owners import Class, Function
from fi_doctor.facts.calls.values import (
    IMPORT,
    NOTHING,
    OPTIONAL,
    PACKAGE,
    UNKNOWN,
    Scope,
    Value,
    Values,
    imports,
    is_of,
    last_part,
)

_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)
_PROPERTIES = {"property", "cached_property"}
_Def = ast.FunctionDef | ast.AsyncFunctionDef


class File:
    """One file: its tree, and what its names, classes and functions stand for; `imported` as for Meanings.

    check: is called at each step, and raises when it takes too long.
    """

    def __init__(
        self, text: str, imported: Imported = lambda _, __: None, check: Callable[[], None] = lambda: None
    ) -> None:
        self.check = check
        self.tree = ast.parse(text)
        self._lines = text.split("\n")
        self.top = Scope()
        self.scopes: dict[ast.AST, Scope] = {}
        self._classes: dict[ast.ClassDef, Class] = {}
        self._functions: dict[_Def, Function] = {}
        self._imported = imported
        self._meanings = Meanings(imported, forgiven(self.tree, text))
        self.evaluate = self._meanings.evaluate
        self.named = self._meanings.named
        for node in self.tree.body:  # what stands above may be of a class below
            if isinstance(node, _Def):
                self._define(node, self.top)
            elif isinstance(node, ast.ClassDef):
                self._declare(node, self.top)
        for _ in range(2):  # what a method reads may be set by one that stands below it
            self._block(self.tree.body, self.top, IMPORT)

    def concerns(self, node: ast.stmt, scope: Scope, more: Iterable[str] = ()) -> bool:
        """Whether a statement's text names anything that may be FlashInfer's; most do not, and are passed over.

        more: names that may be so there alone.
        """
        first = min((one.lineno for one in getattr(node, "decorator_list", ())), default=node.lineno)
        text = "\n".join(self._lines[first - 1 : node.end_lineno])
        return (
            PACKAGE in text
            or any(word in text for word in self._meanings.words)
            or any(word in text for word in scope.all_words())
            or any(word in text for word in more)
        )

    def names(self, words: Iterable[str]) -> bool:
        """Whether one of the words stands anywhere in it."""
        return any(word in line for line in self._lines for word in words)

    def sets(self, dotted: str) -> bool:
        """Whether the file itself has put that into an object of FlashInfer: what is there is vLLM's own."""
        return is_of(dotted, self._meanings.added)

    def _block(self, body: Iterable[ast.stmt], scope: Scope, lookup: str) -> None:
        for node in body:
            self._statement(node, scope, lookup)

    def _statement(self, node: ast.stmt, scope: Scope, lookup: str) -> None:
        self.check()
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope, lookup)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope, lookup)
            case ast.ClassDef():
                self._class(node, scope, lookup)
            case ast.Global() | ast.Nonlocal():
                scope.declare(node)
            case _ if isinstance(node, _SIMPLE) and not self.concerns(node, scope):
                self._hide(node, scope)
            case _:
                for name in rebound(node):
                    scope.bind(name, UNKNOWN)
                self._assign(node, scope)
                self._nested(node, scope, lookup)

    def _assign(self, node: ast.stmt, scope: Scope) -> None:
        """What the statement itself binds, and what it gives back."""
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                annotated = self._meanings.annotated(annotation, scope)
                self._set(target, annotated | self.evaluate(value, scope) - UNKNOWN, scope)
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
        value = getattr(node, "value", None)
        for target in targets:
            if target is not None:
                is_nothing = not isinstance(value, ast.Call) and self.evaluate(value, scope) == NOTHING
                self._set(target, NOTHING if is_nothing else UNKNOWN, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope, lookup: str, *, is_type: bool = False) -> None:
        for name, values in imports(node, self._imported, lookup):
            scope.bind(name, values, is_type=is_type)
            self._meanings.learn(name, values)

    def _nested(self, node: ast.stmt, scope: Scope, lookup: str) -> None:
        if isinstance(node, ast.If | ast.While) and (is_true := holds(node.test)) is not None:
            self._block(node.body if is_true else node.orelse, scope, lookup)
            never = ast.Module(node.orelse if is_true else node.body, [])
            for one in ast.walk(never):
                if isinstance(one, ast.Import | ast.ImportFrom):
                    self._import(one, scope, lookup, is_type=True)
            return
        self._block(getattr(node, "body", ()), scope, OPTIONAL if forgives(node) else lookup)
        for name in ("orelse", "finalbody"):
            self._block(getattr(node, name, ()), scope, lookup)
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._block(part.body, scope, lookup)

    def _function(self, node: _Def, outer: Scope, lookup: str) -> None:
        """A def; one in the body of a class does not see the names of that body."""
        function, values = self._define(node, outer)
        if outer.owner is not None:
            self._meanings.define(outer.owner, function)
        if not self.concerns(node, outer):
            return
        scope = self.scopes[node] = Scope(outer if outer.owner is None else outer.outer, function=node)
        scope.names["return"] = NOTHING
        self._arguments(node, function, outer, scope)
        self._block(node.body, scope, lookup)
        declared = self._meanings.annotated(node.returns, outer)
        given_back = declared if declared - UNKNOWN else scope.names["return"]
        if given_back - UNKNOWN:
            function.gives |= given_back
            self._meanings.learn(node.name, values)

    def _arguments(self, node: _Def, function: Function, outer: Scope, scope: Scope) -> None:
        arguments = node.args
        several = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        for number, argument in enumerate(several):
            annotated = self._meanings.annotated(argument.annotation, outer)
            scope.bind(argument.arg, annotated or function.passed(number))
        if several and function.drops and outer.owner is not None:
            scope.names[several[0].arg] = frozenset({Value("", owner=outer.owner, made=function.drops == "self")})
        for extra in (arguments.vararg, arguments.kwarg):
            if extra is not None:
                scope.names[extra.arg] = UNKNOWN

    def _class(self, node: ast.ClassDef, outer: Scope, lookup: str) -> None:
        made, values = self._declare(node, outer)
        for base in self._meanings.inherited(node, outer):
            made.inherit(base)
        inner = self.scopes[node] = Scope(outer if outer.owner is None else outer.outer, made)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                self._meanings.note(values, one.target.id, self._meanings.annotated(one.annotation, outer))
                if one.value is not None:
                    inner.bind(one.target.id, self.evaluate(one.value, inner))
            else:
                self._statement(one, inner, lookup)
        self._meanings.learn(node.name, values)

    def _define(self, node: _Def, scope: Scope) -> tuple[Function, Values]:
        function = self._functions.setdefault(node, _function_of(node, scope))
        values = frozenset({Value("", owner=function)})
        scope.bind(node.name, values)
        return function, values

    def _declare(self, node: ast.ClassDef, scope: Scope) -> tuple[Class, Values]:
        made = self._classes.setdefault(node, Class(node.name))
        values = frozenset({Value("", owner=made)})
        scope.bind(node.name, values)
        return made, values

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
                self._meanings.learn(name, values)
            case ast.Attribute(value=base, attr=name):
                self._meanings.note(self.evaluate(base, scope), name, values)
            case ast.Subscript(value=base):
                self._hold(base, values, scope)
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
            self._hold(call.func.value, self.evaluate(call.args[0], scope), scope)

    def _hold(self, holder: ast.expr, values: Values, scope: Scope) -> None:
        """A list or dict holds these, of which only FlashInfer's are noted."""
        held = frozenset(value.held() for value in values if value.dotted)
        if held:
            self._set(holder, held, scope)


def _function_of(node: _Def, outer: Scope) -> Function:
    names = {last_part(one) for one in node.decorator_list}
    is_static = outer.owner is None or "staticmethod" in names
    is_of_class = "classmethod" in names or node.name == "__new__"
    return Function(
        node.name,
        is_property=bool(names & _PROPERTIES),
        drops="" if is_static else "cls" if is_of_class else "self",
    )
