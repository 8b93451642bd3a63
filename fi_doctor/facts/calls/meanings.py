"""What the expressions of one Python file may stand for; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from fi_doctor.facts.calls.arguments import given
from fi_doctor.facts.calls.expressions import alternatives, contents, parsed_text, with_given
from fi_doctor.facts.calls.hiding import COMPREHENSIONS, inner_scope
from fi_doctor.facts.calls.importing import imported_module
from fi_doctor.facts.calls.owners import Class, Function, called, instance, takers
from fi_doctor.facts.calls.values import (
    IMPORT,
    NOTHING,
    OPTIONAL,
    PACKAGE,
    UNKNOWN,
    Scope,
    Value,
    Values,
    last_part,
    named_by_text,
)

Imported = Callable[[str, str], Values | None]

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


class Meanings:
    """The members of one file's classes, and what an expression in it is by them and by the names of its scope.

    imported: (module, name) -> the values of a name of another file, None where that file is not FlashInfer's caller.
    forgiven: calls that import what may be absent.
    """

    def __init__(self, imported: Imported, forgiven: Iterable[ast.Call]) -> None:
        self.words: set[str] = set()  # of members and functions, those that may be FlashInfer's
        self.added: set[str] = set()  # members of FlashInfer's objects that the file sets
        self._members: dict[str, Values] = {}  # of any object in this file, by their name
        self._set_by_others: dict[str, Values] = {}  # of objects of which it is not known what they are
        self._imported = imported
        self._forgiven = frozenset(forgiven)

    def evaluate(self, node: ast.expr | None, scope: Scope) -> Values:
        """What an expression may stand for."""
        match node:
            case None | ast.Constant(value=None) | ast.List(elts=[]) | ast.Dict(keys=[]):
                return NOTHING
            case ast.Name(id=name):
                return scope.look_up(name)
            case ast.Attribute(value=base, attr=name):
                return self._member(self.evaluate(base, scope), name)
            case ast.Call():
                return self._called(node, scope)
            case ast.IfExp() | ast.BoolOp() | ast.NamedExpr() | ast.Await():
                return frozenset(value for one in alternatives(node) for value in self.evaluate(one, scope))
            case ast.Subscript(value=base):
                return frozenset(value.element() for value in self.evaluate(base, scope))
        if isinstance(node, COMPREHENSIONS):
            scope = inner_scope(node, scope, self.evaluate)
        return frozenset(value.held() for one in contents(node) for value in self.evaluate(one, scope)) or UNKNOWN

    def annotated(self, node: ast.expr | None, scope: Scope) -> Values:
        """What has this annotation: an instance of each class that it names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = parsed_text(node.value)
        match node:
            case None | ast.Constant():
                return NOTHING
            case ast.BinOp(left=one, right=other):
                return self.annotated(one, scope) | self.annotated(other, scope)
            case ast.Subscript(value=outer, slice=inner):
                several = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                found = frozenset(value for one in several for value in self.annotated(one, scope)) - UNKNOWN
                if last_part(outer) in _PASSING:
                    return found or UNKNOWN
                found = frozenset(value.held() for value in found if value.dotted)
                return found if found and last_part(outer) in _HOLDING else UNKNOWN
            case ast.Name() | ast.Attribute():
                return frozenset(instance(value) for value in self._type(node, scope))
        return UNKNOWN

    def inherited(self, node: ast.ClassDef, scope: Scope) -> Iterator[Class]:
        """Those of its bases that are classes of vLLM's, as far as they were read."""
        for base in node.bases:
            for value in self.evaluate(base.value if isinstance(base, ast.Subscript) else base, scope):
                if isinstance(value.owner, Class) and not value.made:
                    yield value.owner

    def named(self, call: ast.Call, scope: Scope) -> Value | None:
        """What a call imports or asks for by a text; one of vLLM's own that imports is taken to do without."""
        module = imported_module(call)
        if module is None or self.evaluate(call.func, scope) != UNKNOWN:
            return named_by_text(call)
        return Value(module[0], OPTIONAL if call in self._forgiven else IMPORT)

    def note(self, owners: Values, name: str, values: Values) -> None:
        """An attribute is set: of instances of vLLM's classes, or of what is not known."""
        self.added |= {f"{value.dotted}.{name}" for value in owners if value.dotted}
        classes = [value.owner.attributes for value in owners if isinstance(value.owner, Class)]
        for attributes in (self._members, *(classes or [self._set_by_others])):
            attributes[name] = attributes.get(name, NOTHING) | values
        if any(value.dotted for value in values):
            self.words.add(name)
        self.learn(name, values)

    def define(self, owner: Class, function: Function) -> None:
        """A method stands in the body of a class."""
        owner.methods.setdefault(function.name, set()).add(function)
        bound = frozenset({Value("", owner=function, made=True)})
        self._members[function.name] = self._members.get(function.name, NOTHING) | bound

    def learn(self, name: str, values: Values) -> None:
        """A name is bound to what is vLLM's own: note what a text has to name for it to matter in it."""
        for value in values:
            if isinstance(value.owner, Class):
                words = set(value.owner.words())
                self.words |= words | {name} if words else words
            elif isinstance(value.owner, Function) and value.owner.is_giving():
                self.words.add(name)

    def _type(self, node: ast.expr, scope: Scope) -> Values:
        """What a dotted name stands for in an annotation."""
        if isinstance(node, ast.Attribute):
            return self._member(self._type(node.value, scope), node.attr)
        return scope.look_up(node.id, is_type=True) if isinstance(node, ast.Name) else UNKNOWN

    def _member(self, owners: Values, name: str) -> Values:
        found: set[Value] = set()
        for value in owners:
            if value.dotted.startswith(PACKAGE):
                found.add(value.attribute(name))
            elif value.dotted:
                found |= self._imported(value.dotted, name) or UNKNOWN
            elif isinstance(value.owner, Class):
                own = value.owner.find(name)
                found |= own if own is not None else self._set_by_others.get(name, NOTHING) | UNKNOWN
            else:
                found |= self._members.get(name, NOTHING) | UNKNOWN  # whatever this file's classes have of that name
        return frozenset(found)

    def _called(self, node: ast.Call, scope: Scope) -> Values:
        named = self.named(node, scope)
        if named is not None:
            module = imported_module(node)
            return frozenset({named if module is None or module[1] else named._replace(dotted=PACKAGE)})
        name = last_part(node.func)
        match name:
            case "getattr" if len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
                asked = str(node.args[1].value)
                owners = self.evaluate(node.args[0], scope)
                return frozenset(value.attribute(asked)._replace(lookup=OPTIONAL) for value in owners)
            case "partial" if node.args:
                held = given(node, scope.function).without_first()
                return frozenset(with_given(value, held) for value in self.evaluate(node.args[0], scope))
            case "cast" if len(node.args) == len(("type", "value")):
                return self.annotated(node.args[0], scope)
        inside = self.evaluate(node.func.value, scope) if isinstance(node.func, ast.Attribute) else NOTHING
        if name in _TAKING and any(value.dotted.endswith("[]") for value in inside):
            return inside if name in ("values", "copy") else frozenset(value.element() for value in inside)
        values = self.evaluate(node.func, scope)
        self._pass(values, node.args, scope)
        return frozenset(one for value in values for one in called(value)) or UNKNOWN

    def _pass(self, functions: Values, arguments: list[ast.expr], scope: Scope) -> None:
        """Note what functions of vLLM are given, where it may be FlashInfer's."""
        several = [(function, is_bound) for value in functions for function, is_bound in takers(value)]
        if not several:
            return
        for number, argument in enumerate(arguments):
            if isinstance(argument, ast.Starred):
                return
            values = self.evaluate(argument, scope) if isinstance(argument, ast.Name | ast.Attribute) else UNKNOWN
            for function, is_bound in several:
                if function.take(number, values, is_bound=is_bound):
                    self.words.add(function.name)
