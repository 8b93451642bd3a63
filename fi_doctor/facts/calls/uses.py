"""Every use of a FlashInfer name in one Python file: where it is imported, read, handed on, and called with what."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from fi_doctor.facts.branches import holds, running
from fi_doctor.facts.calls.arguments import Given, given
from fi_doctor.facts.calls.expressions import forgives
from fi_doctor.facts.calls.guards import At, Guards, key_of
from fi_doctor.facts.calls.hiding import inner_scope
from fi_doctor.facts.calls.read_file import File
from fi_doctor.facts.calls.use import CALLED, COMPUTED, HANDED_ON, NAMED, Use, is_held
from fi_doctor.facts.calls.values import (
    LAZY,
    NOTHING,
    OPTIONAL,
    OWN,
    PACKAGE,
    Scope,
    Value,
    Values,
    goes_without,
    is_flashinfer,
    is_of,
    last_part,
)

_CAUGHT = "a TypeError of it is caught"
_NO_ATTRIBUTE = {"AttributeError", "Exception", "BaseException"}
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def uses(file: File) -> list[Use]:
    """All uses in the order of the file; a name that is looked for and done without has lookup `optional`."""
    walk = _Walk(file)
    walk.block(file.tree.body, At(file.top, {}))
    return walk.found


class _Walk:
    def __init__(self, file: File) -> None:
        self.found: list[Use] = []
        self._file = file
        self._guards = Guards(file)
        self._at = At(file.top, {})
        self._words: dict[str, tuple[str, ...]] = {}  # what a comprehension's name goes through

    def block(self, body: Iterable[ast.stmt], at: At) -> None:
        """The statements of one block; what a test makes sure of holds for the rest of it."""
        for node in body:
            self._file.check()
            if not self._file.concerns(node, at.scope, at.narrowed):
                if isinstance(node, _LEAVING):
                    return
                continue
            self._at = at
            self._statement(node, at)
            if isinstance(node, _LEAVING):
                return  # what stands below it is never run
            if isinstance(node, ast.Assert):
                at = self._guards.after(node.test, at, holds=True)
            elif isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVING):
                at = self._guards.after(node.test, at, holds=False)
            elif isinstance(node, ast.Assign):
                keys = {key_of(target) for target in node.targets}
                at = at._replace(narrowed={key: values for key, values in at.narrowed.items() if key not in keys})

    def _statement(self, node: ast.stmt, at: At) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, at.scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._definition(node, at)
            case ast.If(test=test) | ast.While(test=test) if (is_true := holds(test)) is not None:
                self.block(node.body if is_true else node.orelse, at)
            case ast.If(test=test, body=body, orelse=orelse):
                self._visit(test)
                self.block(body, self._guards.after(test, at, holds=True))
                self.block(orelse, self._guards.after(test, at, holds=False))
            case ast.Try():
                doubt = at.doubt or (_CAUGHT if goes_without(node, {"TypeError"}) else "")
                is_forgiven = at.is_forgiven or goes_without(node, _NO_ATTRIBUTE)
                self.block(node.body, at._replace(doubt=doubt, is_forgiven=is_forgiven))
                for part in (*(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                    self.block(part, at)
            case ast.With() if forgives(node):
                self._parts(node, at._replace(is_forgiven=True))
            case _:
                self._parts(node, at)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, at: At) -> None:
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call) and (values := self._known(decorator)):
                self._add(CALLED, values, decorator, Given(1, ()))
            else:
                self._visit(decorator)
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._visit(base)
            self.block(node.body, at._replace(scope=self._file.scopes.get(node, at.scope)))
        elif node in self._file.scopes:
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._visit(default)
            self.block(
                node.body,
                at._replace(
                    scope=self._file.scopes[node],
                    narrowed={},
                    doubt="" if at.doubt == _CAUGHT else at.doubt,
                    is_forgiven=False,
                ),
            )

    def _parts(self, node: ast.stmt, at: At) -> None:
        """The expressions of any other statement, and the blocks in it."""
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, ast.expr):
                    self._visit(one)
                elif isinstance(one, ast.withitem):
                    self._visit(one.context_expr)
                elif isinstance(one, ast.match_case):
                    self.block(one.body, at)
        for name in ("body", "orelse"):
            self.block(getattr(node, name, ()), at)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import) and is_flashinfer(alias.name):
                dotted, bound = alias.name, alias.asname or PACKAGE
            elif isinstance(node, ast.ImportFrom) and not node.level and is_flashinfer(node.module or ""):
                dotted, bound = f"{node.module}.{alias.name}", alias.asname or alias.name
            else:
                continue
            lookups = {value.lookup for value in scope.look_up(bound) if value.dotted in (dotted, PACKAGE)}
            lookup = OPTIONAL if OPTIONAL in lookups else next(iter(lookups), OPTIONAL)
            self._add(NAMED, frozenset({Value(dotted, lookup)}), alias)

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._call(node)
            case ast.Attribute():
                self._read(node)
            case ast.IfExp() | ast.BoolOp():
                self._choice(node)
            case ast.List(elts=several):
                self._pairs(several)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._inside(node)
            case _:
                self._children(node)

    def _choice(self, node: ast.IfExp | ast.BoolOp) -> None:
        """A part of `and` and `or` is run after those before it, one of `x if test else y` after the test."""
        before = self._at
        parts = running(node)
        if isinstance(node, ast.IfExp):
            self._visit(node.test)
            for one in parts:
                self._at = self._guards.after(node.test, before, holds=one is node.body)
                self._visit(one)
        else:
            for one in parts:
                self._visit(one)
                self._at = self._guards.after(one, self._at, holds=isinstance(node.op, ast.And))
        self._at = before

    def _inside(self, node: ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """What has names of its own; the tests of a comprehension hold for what it gives."""
        before, words = self._at, dict(self._words)
        scope = inner_scope(node, before.scope, self._file.evaluate)
        seen = {key: values for key, values in before.narrowed.items() if key.partition(".")[0] not in scope.names}
        self._at = before._replace(scope=scope, narrowed=seen)
        for one in () if isinstance(node, ast.Lambda) else node.generators:
            self._words[key_of(one.target)] = _strings(one.iter)
            self._visit(one.iter)
            for test in one.ifs:
                self._visit(test)
                self._at = self._guards.after(test, self._at, holds=True)
        for name, value in ast.iter_fields(node):
            if name != "generators":
                self._visit(value)
        self._at, self._words = before, words

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _read(self, node: ast.Attribute) -> None:
        values = self._known(node) if isinstance(node.ctx, ast.Load) else NOTHING
        if values:
            self._add(NAMED, values, node)
        if not values or any("(" in value.dotted for value in values):
            self._visit(node.value)

    def _pairs(self, several: list[ast.expr]) -> None:
        """A list of ("flashinfer.norm", "rmsnorm"), which vLLM looks for before it chooses FlashInfer."""
        for one in several:
            match one:
                case ast.Tuple(elts=[ast.Constant(value=str() as module), ast.Constant(value=str() as name)]) if (
                    is_flashinfer(module)
                ):
                    self._add(NAMED, frozenset({Value(f"{module}.{name}", OPTIONAL)}), one)
                case _:
                    self._visit(one)

    def _call(self, node: ast.Call) -> None:
        self._file.check()
        function = last_part(node.func)
        named = self._file.named(node, self._at.scope)
        if named is not None:
            self._add(NAMED, frozenset({named}), node)
        elif function in ("getattr", "hasattr") and len(node.args) > 1:
            self._looked_up(node)
        elif function == "partial" and node.args and (held := self._known(node.args[0])):
            passed = given(node, self._at.scope.function).without_first()
            self._add(CALLED, held, node, passed, is_partial=True)
        elif values := self._known(node.func):
            self._add(CALLED, values, node, given(node, self._at.scope.function))
        if not isinstance(node.func, ast.Name):
            self._visit(
                node.func.value if isinstance(node.func, ast.Attribute) and self._known(node.func) else node.func
            )
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            handed = self._known(argument) if isinstance(argument, ast.Name | ast.Attribute) else NOTHING
            if handed and not any("(" in value.dotted for value in handed) and function not in _LOOKS:
                self._add(HANDED_ON, handed, argument)
            elif not isinstance(argument, ast.Name):
                self._visit(argument)

    def _looked_up(self, node: ast.Call) -> None:
        owner, name = node.args[0], node.args[1]
        for value in self._known(owner):
            words = self._words.get(key_of(name), ())
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                words = (name.value,)
            for word in words:
                self._add(NAMED, frozenset({Value(f"{value.dotted}.{word}", OPTIONAL)}), node)
            if not words:
                self._add(COMPUTED, frozenset({value}), node)

    def _known(self, node: ast.expr) -> Values:
        values = self._evaluate(node)
        return values if any(value.dotted for value in values) else NOTHING

    def _evaluate(self, node: ast.expr) -> Values:
        narrowed = self._at.narrowed
        if narrowed and (key := key_of(node)) in narrowed:
            return narrowed[key]
        if isinstance(node, ast.Attribute) and (key := key_of(node.value)) in narrowed:
            return frozenset(value.attribute(node.attr) for value in narrowed[key])
        return self._file.evaluate(node, self._at.scope)

    def _add(
        self, how: str, values: Values, node: ast.AST, passed: Given | None = None, *, is_partial: bool = False
    ) -> None:
        known = sorted((value for value in values if is_flashinfer(value.dotted.partition("(")[0])), key=str)
        known = [value for value in known if not value.dotted.endswith("[]")]
        if how != CALLED:
            known = [value for value in known if not value.dotted.endswith("()")]
        if not known:
            return
        is_own = any(self._file.sets(value.dotted) for value in known)
        at = self._at
        is_optional = [at.is_forgiven or is_of(value.dotted, at.sure) for value in known]
        lookups = {OPTIONAL if one else value.lookup for one, value in zip(is_optional, known, strict=True)}
        lookup = next((one for one in (OPTIONAL, LAZY) if one in lookups), known[0].lookup)
        every = tuple(value.given.and_more(passed) if value.given else passed for value in known if passed is not None)
        self.found.append(
            Use(
                names=tuple(value.dotted for value in known),
                line=getattr(node, "lineno", 0),
                how=how,
                lookup=OWN if is_own else lookup,
                given=tuple(one for one in every if one is not None),
                may_differ=is_own or len(known) < len(values),
                is_partial=is_partial,
                doubt=at.doubt,
                is_held=all(is_held(node, value.dotted) for value in known),
                sure=at.sure,
                lacking=at.lacking,
            )
        )


_LOOKS = {"isinstance", "callable", "hasattr", "getattr", "issubclass", "super", "signature"}


def _strings(node: ast.expr) -> tuple[str, ...]:
    several = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
    return tuple(one.value for one in several if isinstance(one, ast.Constant) and isinstance(one.value, str))
