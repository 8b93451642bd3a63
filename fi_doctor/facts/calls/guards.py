"""What is known at a place of a Python file by the tests around it, and what these leave in doubt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from fi_doctor.facts.calls.expressions import parts_of
from fi_doctor.facts.calls.owners import instance
from fi_doctor.facts.calls.read_file import File
from fi_doctor.facts.calls.values import PACKAGE, UNKNOWN, Scope, Values, last_part

_ASKING = ("__version__", "version(", "signature(", "getfullargspec(")
_OF_ARGUMENTS = {"signature", "getfullargspec"}
_ASKED = "it stands below a test of FlashInfer's version, or of what a function takes"


class At(NamedTuple):
    """Where a walk is, and what is known there."""

    scope: Scope
    narrowed: dict[str, Values]  # "attn.wrapper" -> what isinstance leaves of it
    sure: frozenset[str] = frozenset()  # names that hasattr or find_spec has found
    lacking: frozenset[str] = frozenset()  # names that they have not
    doubt: str = ""  # why what does not fit may never be run, or do no harm
    is_forgiven: bool = False  # an AttributeError is caught


class Guards:
    """The tests of one file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._asking: set[str] = set()  # variables and functions that hold or give what a version or a signature says
        if file.names(_ASKING):
            self._asking = set(self._answers(file.tree))

    def after(self, test: ast.expr, at: At, *, holds: bool) -> At:
        """What is known where a test holds, or does not."""
        narrowed, sure, lacking = dict(at.narrowed), set(at.sure), set(at.lacking)
        for part, is_true in parts_of(test, holds=holds):
            match part:
                case ast.Call(func=ast.Name(id="isinstance"), args=[about, kinds]):
                    several = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
                    named = frozenset(instance(one) for kind in several for one in self._file.evaluate(kind, at.scope))
                    left = narrowed.get(key_of(about), self._file.evaluate(about, at.scope)) - named
                    narrowed[key_of(about)] = named if is_true else left or UNKNOWN
                case ast.Call(func=ast.Name(id="hasattr"), args=[owner, ast.Constant(value=str() as name)]):
                    owners = self._file.evaluate(owner, at.scope)
                    found = {f"{value.dotted}.{name}" for value in owners if value.dotted}
                    (sure if is_true else lacking).update(found)
                case ast.Call(args=[ast.Constant(value=str() as name)]) if last_part(part.func) == "find_spec":
                    (sure if is_true else lacking).add(name)
        doubt = _ASKED if self._asks(test, at.scope) else at.doubt
        return at._replace(narrowed=narrowed, sure=frozenset(sure), lacking=frozenset(lacking), doubt=doubt)

    def _asks(self, node: ast.AST, scope: Scope) -> bool:
        """Whether an expression depends on FlashInfer's version, or on what a function takes."""
        return any(self._is_asking(one, scope) for one in ast.walk(node))

    def _is_asking(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Name() | ast.Attribute():
                values = self._file.evaluate(node, scope)
                is_version = any(value.dotted.startswith(PACKAGE) for value in values) or PACKAGE in key_of(node)
                return last_part(node) in self._asking or (last_part(node) == "__version__" and is_version)
            case ast.Call(func=function, args=[ast.Constant(value=str() as name), *_]):
                return last_part(function) == "version" and name.startswith(PACKAGE)
            case ast.Call(func=function):
                return last_part(function) in _OF_ARGUMENTS
        return False

    def _answers(self, tree: ast.Module) -> Iterator[str]:
        """Names of the file to which an answer is assigned, and functions that give one."""
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value) if self._asks(value, self._file.top):
                    yield from map(last_part, targets)
                case ast.AnnAssign(target=target, value=ast.expr() as value) if self._asks(value, self._file.top):
                    yield last_part(target)
                case ast.FunctionDef(name=name, body=body):
                    gives = (one for part in body for one in ast.walk(part) if isinstance(one, ast.Return))
                    if any(one.value is not None and self._asks(one.value, self._file.top) for one in gives):
                        yield name


def key_of(node: ast.AST) -> str:
    """`attn.wrapper` of a name or attribute; "?" for anything else, which is never narrowed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{key_of(node.value)}.{node.attr}"
    return "?"
