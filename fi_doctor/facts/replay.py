"""A small, closed interpreter that replays a rule of an installed package without importing the package.

FlashInfer changes its rules between releases (which architecture tag a GPU gets, which companion package is accepted),
so the rule is taken from the installed source and followed step by step, instead of being kept here once for each
version. Only plain decisions can be followed: assignments, if, for, try, calls of functions of the same file and of
what the caller models. Anything else raises Unreplayable, so that an unknown rule is never guessed. Nothing of the
package is executed, and nothing but values that the caller hands in can be reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace

from fi_doctor.facts.replay_values import (
    BUILTINS,
    PROGRAM_ERRORS,
    Unreplayable,
    attribute,
    binary,
    classes,
    element,
    iterable,
    unknown,
)

__all__ = ["PROGRAM_ERRORS", "Replay", "Unreplayable"]

_MAX_DEPTH = 20  # of calls; the rules go three deep
_MAX_STEPS = 10_000  # the rules take about a hundred; a loop that has no end in sight is not a rule


class _Return(Exception):  # noqa: N818 - control flow
    def __init__(self, value: object) -> None:
        self.value = value


class _Continue(Exception):  # noqa: N818 - control flow
    pass


class Replay:
    """One source file and the world that its rules may look at.

    world: values by global name; packages are SimpleNamespace objects. `warnings` are what the rules logged,
    `raised_at` the line of the last `raise`.
    """

    def __init__(self, text: str, world: Mapping[str, object]) -> None:
        tree = ast.parse(text)
        self.warnings: list[str] = []
        self.raised_at = 0
        self._steps = self._depth = 0
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        functions = {node.name: self._callable(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
        logger = SimpleNamespace(warning=self._warn, info=lambda *_: None, debug=lambda *_: None, error=self._warn)
        self._globals: dict[str, object] = {**BUILTINS, **_constants(tree), "logger": logger, **functions, **world}

    def call(self, name: str, *values: object) -> object:
        """Call a function of the file. Raises what the rule raises (PROGRAM_ERRORS), or Unreplayable."""
        function = self._globals.get(name)
        if not callable(function):
            raise Unreplayable(f"there is no function {name}")
        return function(*values)

    def construct(self, name: str) -> SimpleNamespace:
        """Make an object of a class of the file: what __init__ leaves in its attributes."""
        if name not in self._classes:
            raise Unreplayable(f"there is no class {name}")
        this = SimpleNamespace()
        for node in self._classes[name].body:
            if isinstance(node, ast.FunctionDef):
                static = any(isinstance(mark, ast.Name) and mark.id == "staticmethod" for mark in node.decorator_list)
                setattr(this, node.name, self._callable(node, None if static else this))
        getattr(this, "__init__")()  # noqa: B009 - the plain attribute would be SimpleNamespace's own
        return this

    def _warn(self, text: object, *values: object) -> None:
        self.warnings.append(str(text) % values if values else str(text))

    def _callable(self, node: ast.FunctionDef, this: object = None) -> Callable[..., object]:
        names = [argument.arg for argument in node.args.args]

        def function(*values: object, **named: object) -> object:
            given = values if this is None else (this, *values)
            scope = dict(zip(names, given, strict=False)) | named
            if set(scope) != set(names) or len(given) > len(names):
                raise Unreplayable(f"line {node.lineno}: {node.name} is called in an unknown way")
            if self._depth == _MAX_DEPTH:
                raise Unreplayable(f"line {node.lineno}: {node.name} calls itself too deep")
            self._depth += 1
            try:
                self._block(node.body, scope)
            except _Return as end:
                return end.value
            finally:
                self._depth -= 1
            return None

        return function

    def _block(self, body: Iterable[ast.stmt], scope: dict[str, object]) -> None:
        for node in body:
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise Unreplayable(f"line {node.lineno}: the rule takes more than {_MAX_STEPS} steps")
            self._statement(node, scope)

    def _statement(  # noqa: C901, PLR0912 - one case for each kind of statement
        self, node: ast.stmt, scope: dict[str, object]
    ) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                result = self._value(value, scope)
                for target in targets:
                    self._assign(target, result, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._value(value, scope), scope)
            case ast.Expr(value=value):
                self._value(value, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._block(body if self._value(test, scope) else orelse, scope)
            case ast.For(orelse=[]):
                self._loop(node, scope)
            case ast.Return(value=value):
                raise _Return(None if value is None else self._value(value, scope))
            case ast.Raise(exc=ast.expr() as error):
                self._raise(error, scope)
            case ast.Try(finalbody=[]):
                self._try(node, scope)
            case ast.Continue():
                raise _Continue
            case ast.Pass():
                pass
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                self._import(node, names, scope)
            case _:
                raise unknown(node)

    def _assign(self, target: ast.expr, value: object, scope: dict[str, object]) -> None:
        match target:
            case ast.Name(id=name):
                scope[name] = value
            case ast.Tuple(elts=elements):
                values = tuple(iterable(value))
                if len(values) != len(elements):
                    few = f"not enough values to unpack (expected {len(elements)}, got {len(values)})"
                    many = f"too many values to unpack (expected {len(elements)})"
                    raise ValueError(few if len(values) < len(elements) else many)
                for element, part in zip(elements, values, strict=True):
                    self._assign(element, part, scope)
            case ast.Attribute(value=base, attr=name):
                owner = self._value(base, scope)
                if not isinstance(owner, SimpleNamespace):
                    raise unknown(target)
                setattr(owner, name, value)
            case _:
                raise unknown(target)

    def _loop(self, node: ast.For, scope: dict[str, object]) -> None:
        for item in iterable(self._value(node.iter, scope)):
            self._assign(node.target, item, scope)
            try:
                self._block(node.body, scope)
            except _Continue:
                continue

    def _raise(self, node: ast.expr, scope: dict[str, object]) -> None:
        error = self._value(node, scope)
        if not isinstance(error, PROGRAM_ERRORS):
            raise unknown(node)
        self.raised_at = node.lineno
        raise error

    def _try(self, node: ast.Try, scope: dict[str, object]) -> None:
        try:
            self._block(node.body, scope)
        except PROGRAM_ERRORS as error:
            for handler in node.handlers:
                wanted = Exception if handler.type is None else self._value(handler.type, scope)
                if isinstance(error, classes(wanted, handler)):
                    self._block(handler.body, {**scope, handler.name: error} if handler.name else scope)
                    return
            raise
        self._block(node.orelse, scope)

    def _import(self, node: ast.stmt, names: list[ast.alias], scope: dict[str, object]) -> None:
        """An import binds what the caller models under that name, and nothing else can be imported."""
        for alias in names:
            if alias.name not in self._globals:
                raise unknown(node)
            scope[alias.asname or alias.name] = self._globals[alias.name]

    def _value(  # noqa: C901, PLR0912 - one case for each kind of expression
        self, node: ast.expr, scope: dict[str, object]
    ) -> object:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute(value=base, attr=name):
                return attribute(node, self._value(base, scope), name)
            case ast.Call(func=function, args=values, keywords=keywords):
                return self._call(node, function, values, keywords, scope)
            case ast.BoolOp(op=op, values=parts):
                return self._both_or_either(op, parts, scope)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand, scope)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
                return -number
            case ast.BinOp(left=left, op=op, right=right):
                return binary(node, op, self._value(left, scope), self._value(right, scope))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return binary(node, op, self._value(left, scope), self._value(right, scope))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._value(test, scope) else orelse, scope)
            case ast.Subscript(value=base, slice=index):
                return element(node, self._value(base, scope), self._value(index, scope))
            case ast.Tuple(elts=elements):
                return tuple(self._value(element, scope) for element in elements)
            case ast.List(elts=elements):
                return [self._value(element, scope) for element in elements]
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part, scope) for part in parts)
            case _:
                raise unknown(node)

    def _name(self, node: ast.expr, name: str, scope: dict[str, object]) -> object:
        if name in scope:
            return scope[name]
        if name not in self._globals:
            raise unknown(node)
        return self._globals[name]

    def _call(
        self,
        node: ast.expr,
        function: ast.expr,
        values: list[ast.expr],
        keywords: list[ast.keyword],
        scope: dict[str, object],
    ) -> object:
        called = self._value(function, scope)
        if not callable(called):
            raise unknown(node)
        named: dict[str, object] = {}
        for keyword in keywords:
            if keyword.arg is None:
                raise unknown(node)
            named[keyword.arg] = self._value(keyword.value, scope)
        result: object = called(*[self._value(value, scope) for value in values], **named)
        return result

    def _both_or_either(self, op: ast.boolop, parts: list[ast.expr], scope: dict[str, object]) -> object:
        result: object = None
        for part in parts:
            result = self._value(part, scope)
            if bool(result) is isinstance(op, ast.Or):
                return result
        return result

    def _text(self, node: ast.expr, scope: dict[str, object]) -> str:
        if isinstance(node, ast.FormattedValue) and node.format_spec is None:
            value = self._value(node.value, scope)
            return repr(value) if node.conversion == ord("r") else str(value)
        return str(self._value(node, scope))


def _constants(tree: ast.Module) -> dict[str, object]:
    found: dict[str, object] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                found[name] = value
    return found
