"""vllm/envs.py: its table of variables, one entry for each, as what its functions and lambdas make of a text."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator
from dataclasses import replace

from msgspec.structs import replace as replaced

from fi_doctor.facts.registry_expressions import Surroundings
from fi_doctor.facts.registry_fields import plain
from fi_doctor.facts.registry_reads import Form, parents_of, reads_in, start
from fi_doctor.facts.registry_source import Module, Modules, UnknownError, is_enum, members
from fi_doctor.facts.registry_variables import registered
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered, Value

_TABLE = "environment_variables"
# The makers of readers that envs.py has: of one word, and of several parted by commas.
_CHOICES = {"env_with_choices": False, "env_list_with_choices": True, "env_set_with_choices": True}
_DEPRECATED = "deprecated_env"  # its last argument is what reads; before are the release that ends it, and a hint
_SET_DEFAULT = "get_env_or_set_default"
_LINE = re.compile(r"^", re.MULTILINE)
_ASKED = re.compile(
    r"""(?:getenv\(|environ\.get\(|environ\[|setdefault\()\s*["'](\w+)["']|["'](\w+)["'] (?:not )?in os\.environ"""
)
_MEMBERS = re.compile(r"__import__\('([\w.]+)'.*?\)\.(\w+)\.__members__")


def read_envs(modules: Modules) -> dict[str, Registered] | Missing:
    """The table of envs.py; Missing where there is none."""
    module = modules.at("envs.py")
    if isinstance(module, Missing):
        return module
    table = module.constants.get(_TABLE)
    if not isinstance(table, ast.Dict):
        return Missing(reason=f"{modules.root / 'envs.py'} has no table {_TABLE}")
    types = dict(_annotations(module.tree))
    return {name: _entry(name, key.lineno, value, module, types) for name, key, value in _entries(table)}


def read_elsewhere(modules: Modules) -> set[str]:
    """The variables that envs.py reads outside of their own entry, as VLLM_USE_RUST_FRONTEND."""
    module = modules.at("envs.py")
    table = module.constants.get(_TABLE) if isinstance(module, Module) else None
    if isinstance(module, Missing) or not isinstance(table, ast.Dict):
        return set()
    own: dict[str, list[range]] = {}
    for name, key, value in _entries(table):
        own[name] = [range(key.lineno, (value.end_lineno or value.lineno) + 1)]
        if isinstance(value, ast.Name) and (function := module.functions.get(value.id)):
            own[name].append(range(function.lineno, (function.end_lineno or function.lineno) + 1))
    starts = [found.start() for found in _LINE.finditer(module.text)]
    reads = ((found[1] or found[2], bisect.bisect(starts, found.start())) for found in _ASKED.finditer(module.text))
    return {name for name, line in reads if name in own and not any(line in span for span in own[name])}


def _entries(table: ast.Dict) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, key, value


def _entry(name: str, line: int, value: ast.expr, module: Module, types: dict[str, str]) -> Registered:
    place = f"envs.py:{line}"
    form = _form(name, value, module)
    if form.parse is Parse.TEXT and types.get(name) == "bool":
        form = replace(form, parse=Parse.TRUTHY)  # VLLM_HAS_FLASHINFER_CUBIN in 0.11.0: "0" is true
    return replaced(registered(name, form, place, types.get(name, "")), deprecated=_warning(value))


def _warning(value: ast.expr) -> str:
    """What is told whoever sets it: in which release it ends, and what to set instead."""
    match value:
        case ast.Call(func=ast.Name(id=name), args=[_, *words, _]) if name == _DEPRECATED:
            return ": ".join(str(one.value) for one in words if isinstance(one, ast.Constant))
    return ""


def _form(name: str, value: ast.expr, module: Module) -> Form:
    match value:
        case ast.Call(func=ast.Name(id=maker)) if maker in _CHOICES:
            return _of_choices(value, module, several=_CHOICES[maker])
        case ast.Call(func=ast.Name(id=maker)) if maker == _SET_DEFAULT:
            return Form(instead=Missing(reason=f"computed: {ast.unparse(value)[:200]}"))
        case ast.Name(id=function) if function in module.functions:
            return _of_reads(name, module.functions[function], module)
        case ast.Lambda():
            return _of_reads(name, value, module)
        case ast.Call(func=ast.Name(id=wrapper), args=[*_, inner]) if wrapper == _DEPRECATED:
            return _form(name, inner, module)
    return Form(parse=Parse.UNKNOWN, through=ast.unparse(value)[:200])


def _of_reads(name: str, scope: ast.AST, module: Module) -> Form:
    """The form of the first read of this variable; where it is read in another function, that one's."""
    parents = parents_of(scope)
    forms = [
        Surroundings(module, scope, parents).form(node, start(default, module))
        for node, word, default, only_asks in _ordered(parents)
        if not only_asks and isinstance(word, ast.Constant) and word.value == name
    ]
    if forms:
        form = next((one for one in forms if one.parse is not Parse.IS_SET), forms[0])
        if isinstance(scope, ast.FunctionDef) and any(asks for *_, asks in _ordered(parents)):
            return replace(form, instead=Missing(reason=f"computed: {scope.name}()"))
        return form
    called = [
        node.func.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in module.functions
    ]
    if isinstance(scope, ast.Lambda) and len(called) == 1:
        return _of_reads(name, module.functions[called[0]], module)
    return Form(parse=Parse.UNKNOWN, through=ast.unparse(scope)[:200])


def _ordered(parents: dict[ast.AST, ast.AST]) -> list[tuple[ast.expr, ast.expr, ast.expr | None, bool]]:
    return sorted(reads_in(parents), key=lambda one: (one[0].lineno, one[0].col_offset))


def _of_choices(call: ast.Call, module: Module, *, several: bool) -> Form:
    given = {one.arg: one.value for one in call.keywords}
    names = ("env_name", "default", "choices", "case_sensitive")
    given.update(dict(zip(names, call.args, strict=False)))
    choices = _choices(given.get("choices"), module)
    case = given.get("case_sensitive")
    any_case = isinstance(case, ast.Constant) and case.value is False
    form = Parse.CHOICES_LIST if several else Parse.CHOICE_ANY_CASE if any_case else Parse.CHOICE
    return Form(
        parse=form if choices else Parse.UNKNOWN, choices=choices, instead=_default(given.get("default"), module)
    )


def _choices(node: ast.expr | None, module: Module) -> tuple[str, ...]:
    """The words of a list, or of a lambda that names an enum's members."""
    if node is None:
        return ()
    if isinstance(node, ast.Lambda):
        if found := _MEMBERS.search(ast.unparse(node.body)):
            return _members(found[1], found[2], module.modules)
        node = node.body
    try:
        words = module.value(node)
    except UnknownError:
        return ()
    return tuple(str(one) for one in words) if isinstance(words, tuple) else ()


def _members(dotted: str, name: str, modules: Modules) -> tuple[str, ...]:
    module = modules.dotted(dotted)
    try:
        origin, there = module.origin(name) if module else (None, "")
    except UnknownError:
        return ()
    node = origin.classes.get(there) if origin else None
    return members(node) if node is not None and is_enum(node) else ()


def _default(node: ast.expr | None, module: Module) -> Value | Missing:
    if node is None:
        return None
    try:
        return plain(module.value(node))
    except UnknownError:
        return Missing(reason=f"computed: {ast.unparse(node)[:200]}")


def _annotations(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The types that stand under `if TYPE_CHECKING`."""
    for node in tree.body:
        for one in node.body if isinstance(node, ast.If) else ():
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                yield one.target.id, ast.unparse(one.annotation)
