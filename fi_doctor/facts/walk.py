"""A call followed through its source for GPUs of one compute capability, as far as what it does there is certain.

Nothing is run. Arguments of the caller are not known; a branch that depends on them is left out, and what it may have
assigned is not known after it. Where such a branch may return, nothing behind it is certain.
"""

from __future__ import annotations

import ast
import itertools

from fi_doctor.facts.definitions import Definitions
from fi_doctor.facts.expressions import Expressions, RefusedError, Scope
from fi_doctor.facts.files import NOT_PYTHON
from fi_doctor.facts.symbols import Symbols
from fi_doctor.facts.values import UNKNOWN, Arguments, Function, Value

_MAX_CALLS = 500  # in all, of one call that is followed; FlashInfer's take up to twenty
_MAX_DEPTH = 8  # calls inside calls; FlashInfer's mixture of experts takes four down to its generator
# Decorators under which a first call runs the function's own body.
_TRANSPARENT = ("cache", "lru_cache", "flashinfer_api", "register_custom_op", "no_grad", "inference_mode")
_LISTED, _REQUIRED = "supported_compute_capability", "backend_requirement"
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class _ReturnedError(Exception):
    """The function is left with this value."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class _LostError(Exception):
    """From here on nothing is certain."""


# What calls gave, or where they were refused.
Known = dict[tuple[Function, Arguments], Value | RefusedError]


class Walk:
    """Calls on GPUs of one compute capability (90, 121).

    alike: what calls give that do not ask for the capability, shared by the walks for all of them.
    """

    def __init__(self, symbols: Symbols, definitions: Definitions, sm: int, *, alike: Known) -> None:
        self._symbols = symbols
        self._definitions = definitions
        self._sm = sm
        self._expressions = Expressions(symbols, definitions, self._capability, self._follow)
        self._depth = self._calls = 0
        self._known: Known = {}
        self._alike = alike
        self.has_asked = False  # whether the last call that was followed asked for the capability

    def refusal(self, function: Function, given: dict[str, Value]) -> RefusedError | None:
        """Where a call is refused for certain; of a class, making one of it. None where it is not.

        given: arguments by name; nothing is known of the others, defaults included.
        That the function is declared for other GPUs counts here, although calling it checks nothing.
        """
        self.has_asked = False
        self._depth = self._calls = 0
        try:
            node = self._definitions.at(function.path, function.line)
            if isinstance(node, _FunctionNode):
                self._check_listed(node, function)
            self._follow(function, Arguments(named=tuple(given.items())))
        except RefusedError as refused:
            return refused
        except NOT_PYTHON:  # nested too deeply, or a number too long to be written out
            return None
        return None

    def _follow(self, function: Function, arguments: Arguments) -> Value:
        """What a call gives."""
        self._calls += 1
        if self._depth > _MAX_DEPTH or self._calls > _MAX_CALLS:
            return UNKNOWN
        given = (function, arguments)
        if given in self._alike:
            return _given(self._alike[given])
        if given not in self._known:
            before, self.has_asked = self.has_asked, False
            self._depth += 1
            found = self._called(function, arguments)
            self._depth -= 1
            (self._known if self.has_asked else self._alike)[given] = found
            self.has_asked = self.has_asked or before
            return _given(found)
        self.has_asked = True
        return _given(self._known[given])

    def _capability(self) -> int:
        self.has_asked = True
        return self._sm

    def _called(self, function: Function, arguments: Arguments) -> Value | RefusedError:
        node = self._definitions.at(function.path, function.line)
        if isinstance(node, ast.ClassDef):
            node = _maker(node)
            arguments = arguments._replace(places=(UNKNOWN, *arguments.places))
        if not isinstance(node, ast.FunctionDef) or not self._definitions.is_plain(function.path, node):
            return UNKNOWN
        try:
            if self._pass_decorators(node, Scope(function.path, {})):
                self._block(node.body, Scope(function.path, self._bound(node, arguments, function)))
                return None
        except _ReturnedError as returned:
            return returned.value
        except RefusedError as refused:
            return refused
        except _LostError:
            pass
        return UNKNOWN

    def _bound(self, node: ast.FunctionDef, arguments: Arguments, function: Function) -> dict[str, Value]:
        """What the parameters hold."""
        given = node.args
        several = [*given.posonlyargs, *given.args]
        names = [one.arg for one in (*several, *given.kwonlyargs)]
        values: dict[str, Value] = dict.fromkeys(names, UNKNOWN)
        values |= {one.arg: UNKNOWN for one in (given.vararg, given.kwarg) if one is not None}
        if arguments.is_whole:
            outside = Scope(function.path, {})
            defaults = [*zip(reversed(several), reversed(given.defaults), strict=False)]
            defaults += [(one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
            values |= {one.arg: self._expressions.value(default, outside) for one, default in defaults}
        values |= {one.arg: value for one, value in zip(several, arguments.places, strict=False)}
        return values | {name: value for name, value in arguments.named if name in names}

    def _pass_decorators(self, node: ast.FunctionDef, scope: Scope) -> bool:
        """Whether a call comes to the function's body, for all that its decorators do."""
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = ast.unparse(called).rpartition(".")[2]
            if name == _REQUIRED and isinstance(decorator, ast.Call):
                self._check_required(decorator, scope)
            elif name not in (*_TRANSPARENT, _LISTED):
                return False
        return True

    def _check_listed(self, node: _FunctionNode, function: Function) -> None:
        """Hold @supported_compute_capability([90, 100]) against the GPU."""
        found = self._listed(node, function)
        if found is not None and self._capability() not in found[0]:
            raise RefusedError(function.path, found[1])

    def _check_required(self, decorator: ast.Call, scope: Scope) -> None:
        """@backend_requirement({backend: check}, common_check): what any of the checks is declared for.

        Without backends the common check decides. Its text is FlashInfer's utils.py.
        """
        named = {one.arg: one.value for one in decorator.keywords}
        given = dict(itertools.zip_longest(("backend_checks", "common_check"), decorator.args[:2])) | named
        backends = given.get("backend_checks")
        if not isinstance(backends, ast.Dict) or None in backends.keys:
            return
        checks = backends.values or [one for one in (given.get("common_check"),) if one is not None]
        lists: list[tuple[tuple[Value, ...], int]] = []
        for check in checks:
            function = self._expressions.value(check, scope)
            node = self._definitions.at(function.path, function.line) if isinstance(function, Function) else None
            if not isinstance(function, Function) or not isinstance(node, ast.FunctionDef):
                return
            found = self._listed(node, function)
            if found is None:
                return
            lists.append(found)
        if lists and not any(self._capability() in listed for listed, _ in lists):
            raise RefusedError(scope.path, decorator.lineno if backends.values else lists[0][1])

    def _listed(self, node: _FunctionNode, function: Function) -> tuple[tuple[Value, ...], int] | None:
        """The capabilities that a function is declared for, and the line; None where it says none, or none readable."""
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == _LISTED:
                value = self._expressions.value(decorator.args[0], Scope(function.path, {})) if decorator.args else None
                return (value, decorator.lineno) if isinstance(value, tuple) else None
        return None

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:  # noqa: C901, PLR0912 - one case a kind of statement
        match node:
            case ast.Return(value=value):
                raise _ReturnedError(None if value is None else self._expressions.value(value, scope))
            case ast.Raise():
                raise RefusedError(scope.path, node.lineno)
            case ast.Assert(test=test):
                if self._expressions.truth(test, scope) is False:
                    raise RefusedError(scope.path, node.lineno)
            case ast.If(test=test):
                holds = self._expressions.truth(test, scope)
                self._skip(node, scope) if holds is None else self._block(node.body if holds else node.orelse, scope)
            case ast.Expr(value=value):
                self._expressions.value(value, scope)
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign([target], value, scope)
            case ast.With(items=items) if not any("suppress" in ast.unparse(one) for one in items):
                for one in items:
                    self._expressions.value(one.context_expr, scope)
                    self._expressions.forget(one, scope)
                self._block(node.body, scope)
            case ast.Try(handlers=[]) if not any(self._definitions.returns(one) for one in node.finalbody):
                self._block([*node.body, *node.orelse, *node.finalbody], scope)
            case ast.ImportFrom(level=level, module=module, names=names):
                self._import("." * level + (module or ""), names, scope)
            case _:
                self._skip(node, scope)

    def _skip(self, node: ast.stmt, scope: Scope) -> None:
        """Leave out what is not known to be reached; raises _LostError where it may leave the function."""
        is_definition = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if not is_definition and self._definitions.returns(node):
            raise _LostError
        self._expressions.forget(node, scope)

    def _assign(self, targets: list[ast.expr], given: ast.expr, scope: Scope) -> None:
        value = self._expressions.value(given, scope)
        for target in targets:
            self._expressions.forget(target, scope)
            match target:
                case ast.Name(id=name) if not isinstance(given, (ast.List, ast.Set)):  # these may change afterwards
                    scope.names[name] = value
                case ast.Tuple(elts=parts) if isinstance(value, tuple) and len(parts) == len(value):
                    pairs = zip(parts, value, strict=True)
                    scope.names.update({part.id: one for part, one in pairs if isinstance(part, ast.Name)})

    def _import(self, module: str, names: list[ast.alias], scope: Scope) -> None:
        for alias in names:
            found = self._symbols.imported_in(scope.path, module, alias.name)
            is_callable = found is not None and self._definitions.is_function(*found)
            scope.names[alias.asname or alias.name] = Function(*found) if found and is_callable else UNKNOWN


def _given(found: Value | RefusedError) -> Value:
    if isinstance(found, RefusedError):
        raise found
    return found


def _maker(node: ast.ClassDef) -> ast.FunctionDef | None:
    """The __init__ of a class that says itself how one is made of it."""
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    is_plain = not node.decorator_list and not node.keywords and "__new__" not in methods
    return methods.get("__init__") if is_plain else None
