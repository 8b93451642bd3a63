"""Every use of a FlashInfer name in one Python file: where it is imported, read, handed on, and called with what."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from fi_doctor.facts.branches import holds, running
from fi_doctor.facts.calls.arguments import Given, given
from fi_doctor.facts.calls.expressions import parts_of
from fi_doctor.facts.calls.owners import instance
from fi_doctor.facts.calls.read_file import File
from fi_doctor.facts.calls.values import (
    LAZY,
    NOTHING,
    OPTIONAL,
    OWN,
    PACKAGE,
    UNKNOWN,
    Scope,
    Value,
    Values,
    goes_without,
    is_flashinfer,
    is_of,
    last_part,
)

CALLED, NAMED, HANDED_ON, COMPUTED = "called", "named", "handed on", "computed"
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Use(NamedTuple):
    """One use; several names where it is one of them, depending on what the file does before."""

    names: tuple[str, ...]
    line: int
    how: str
    lookup: str
    given: tuple[Given, ...] = ()  # for each name, of a call; a partial's arguments are among them
    may_differ: bool = False  # whether it may be something that is not FlashInfer's
    is_partial: bool = False  # what functools.partial holds: more may follow
    is_tried: bool = False  # a TypeError of it is caught


class _At(NamedTuple):
    """Where the walk is, and what is known there."""

    scope: Scope
    narrowed: dict[str, Values]  # "attn.wrapper" -> what isinstance leaves of it
    sure: frozenset[str]  # names that hasattr has been asked about
    is_tried: bool


def uses(file: File) -> list[Use]:
    """All uses in the order of the file; a name that is looked for and done without has lookup `optional`."""
    walk = _Walk(file)
    walk.block(file.tree.body, _At(file.top, {}, frozenset(), is_tried=False))
    return walk.found


class _Walk:
    def __init__(self, file: File) -> None:
        self.found: list[Use] = []
        self._file = file
        self._at = _At(file.top, {}, frozenset(), is_tried=False)
        self._words: dict[str, tuple[str, ...]] = {}  # what a comprehension's name goes through

    def block(self, body: Iterable[ast.stmt], at: _At) -> None:
        """The statements of one block; what a test makes sure of holds for the rest of it."""
        for node in body:
            if not self._file.concerns(node, at.scope, at.narrowed):
                continue
            self._at = at
            self._statement(node, at)
            if isinstance(node, ast.Assert):
                at = self._after(node.test, at, holds=True)
            elif isinstance(node, ast.If) and isinstance(node.body[-1], _LEAVING):
                at = self._after(node.test, at, holds=False)
            elif isinstance(node, ast.Assign):
                keys = {_key(target) for target in node.targets}
                at = at._replace(narrowed={key: values for key, values in at.narrowed.items() if key not in keys})

    def _statement(self, node: ast.stmt, at: _At) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, at.scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._definition(node, at)
            case ast.If(test=test) | ast.While(test=test) if (is_true := holds(test)) is not None:
                self.block(node.body if is_true else node.orelse, at)
            case ast.If(test=test, body=body, orelse=orelse):
                self._visit(test)
                self.block(body, self._after(test, at, holds=True))
                self.block(orelse, self._after(test, at, holds=False))
            case ast.Try():
                tried = at.is_tried or goes_without(node, {"TypeError"})
                self.block(node.body, at._replace(is_tried=tried))
                for part in (*(handler.body for handler in node.handlers), node.orelse, node.finalbody):
                    self.block(part, at)
            case _:
                self._parts(node, at)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, at: _At) -> None:
        for decorator in node.decorator_list:
            self._visit(decorator)
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._visit(base)
            self.block(node.body, at)
        elif node in self._file.scopes:
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._visit(default)
            self.block(node.body, _At(self._file.scopes[node], {}, at.sure, is_tried=False))

    def _parts(self, node: ast.stmt, at: _At) -> None:
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
                for one in (*running(node), *([node.test] if isinstance(node, ast.IfExp) else [])):
                    self._visit(one)
            case ast.List(elts=several):
                self._pairs(several)
            case ast.GeneratorExp(generators=[one]) | ast.ListComp(generators=[one]):
                self._words[_key(one.target)] = _strings(one.iter)
                self._children(node)
                self._words.clear()
            case _:
                self._children(node)

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
            words = self._words.get(_key(name), ())
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
        if narrowed and (key := _key(node)) in narrowed:
            return narrowed[key]
        if isinstance(node, ast.Attribute) and (key := _key(node.value)) in narrowed:
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
        lookups = {OPTIONAL if is_of(value.dotted, self._at.sure) else value.lookup for value in known}
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
                is_tried=self._at.is_tried,
            )
        )

    def _after(self, test: ast.expr, at: _At, *, holds: bool) -> _At:
        """What is known where a test holds, or does not."""
        narrowed, sure = dict(at.narrowed), set(at.sure)
        for part, is_true in parts_of(test, holds=holds):
            match part:
                case ast.Call(func=ast.Name(id="isinstance"), args=[about, kinds]):
                    several = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
                    named = frozenset(instance(one) for kind in several for one in self._file.evaluate(kind, at.scope))
                    left = narrowed.get(_key(about), self._file.evaluate(about, at.scope)) - named
                    narrowed[_key(about)] = named if is_true else left or UNKNOWN
                case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str() as name)]) if is_true:
                    owners = self._file.evaluate(owner, at.scope)
                    sure |= {f"{value.dotted}.{name}" for value in owners if value.dotted}
                case ast.Call(args=[ast.Constant(value=str() as name)]) if (
                    is_true and last_part(part.func) == "find_spec"
                ):
                    sure.add(name)
        return at._replace(narrowed=narrowed, sure=frozenset(sure))


_LOOKS = {"isinstance", "callable", "hasattr", "getattr", "issubclass", "super", "signature"}


def _key(node: ast.AST) -> str:
    """`attn.wrapper` of a name or attribute; "?" for anything else, which is never narrowed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_key(node.value)}.{node.attr}"
    return "?"


def _strings(node: ast.expr) -> tuple[str, ...]:
    several = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else []
    return tuple(one.value for one in several if isinstance(one, ast.Constant) and isinstance(one.value, str))
