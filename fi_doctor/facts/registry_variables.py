"""The environment variables that modules of a package read by themselves, also through functions of the package."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from typing import NamedTuple

from msgspec.structs import replace

from fi_doctor.facts.registry_expressions import Surroundings
from fi_doctor.facts.registry_reads import Form, parents_of, reads_in, start
from fi_doctor.facts.registry_source import Module, Modules, UnknownError
from fi_doctor.model.registry import Parse, Registered

_READ = ("getenv", "environ")
_NEWLINE = b"\n"
_NAME = re.compile(r"[A-Z][A-Z0-9_]{2,}")


class Reader(NamedTuple):
    """A function that reads the variable whose name it is given, def env_bool(name, default="0")."""

    module: Module
    function: ast.FunctionDef
    name_at: int  # of its parameters
    default_at: int | None
    default: ast.expr | None  # where it is none of its parameters
    form: Form


class Variables:
    """Collects the reads of several modules, in the order in which they are given."""

    def __init__(self) -> None:
        self.found: dict[str, Registered] = {}
        self.readers: dict[str, Reader] = {}
        self.asked: set[str] = set()  # those of which code asks whether they are set
        self._files: dict[str, list[str]] = {}

    def take(
        self, modules: Modules, texts: Mapping[str, bytes], unreadable: dict[str, str], wanted: Sequence[str] = _READ
    ) -> dict[str, Registered]:
        """Each variable that one of the files reads, by path. Functions that read one for others count in all of them.

        wanted: texts without one of which a function is not looked at.
        """
        self._each(modules, texts, unreadable, wanted, self._take_reads)
        calls = tuple(f"{name}(" for name in self.readers)
        self._each(modules, texts, unreadable, calls, self._take_calls)
        return {
            name: replace(one, read_in=tuple(self._files[name]), asks_if_set=name in self.asked)
            for name, one in sorted(self.found.items())
        }

    def mention(self, texts: Mapping[str, bytes], prefix: str) -> dict[str, Registered]:
        """The variables that files only name, "FLASHINFER_X", so that how they are read is not understood."""
        named = re.compile(rb"""["'](%s[A-Z0-9_]+)["']""" % prefix.encode())
        files: dict[str, list[str]] = {}
        places: dict[str, str] = {}
        for path, text in texts.items():
            for found in named.finditer(text) if prefix.encode() in text else ():
                name = found[1].decode()
                places.setdefault(name, f"{path}:{text.count(_NEWLINE, 0, found.start()) + 1}")
                if path not in files.setdefault(name, []):
                    files[name].append(path)
        form = Form(parse=Parse.UNKNOWN, through="it is only named")
        return {
            name: replace(registered(name, form, places[name]), read_in=tuple(found))
            for name, found in files.items()
            if name not in self.found
        }

    def _each(
        self,
        modules: Modules,
        texts: Mapping[str, bytes],
        unreadable: dict[str, str],
        wanted: Sequence[str],
        take: Callable[[Module], None],
    ) -> None:
        words = [word.encode() for word in wanted]
        for path, text in texts.items():
            if any(word in text for word in words):
                module = modules.around(path, wanted)
                if isinstance(module, Module):
                    take(module)
                else:
                    unreadable[path] = module.reason

    def _take_reads(self, module: Module) -> None:
        parents = parents_of(module.tree)
        reads = sorted(reads_in(parents), key=lambda one: (one[0].lineno, one[0].col_offset))
        for node, name, default, only_asks in reads:
            scope = _scope(node, parents)
            words = _strings(name, module) or _in_scope(name, scope, module)
            if not words and isinstance(name, ast.Name) and isinstance(scope, ast.FunctionDef) and not only_asks:
                self._take_reader(module, scope, name.id, default, (node, parents))
            for word in words:
                form = start(default, module)
                if only_asks:
                    self.asked.add(word)
                    form = Form(parse=Parse.IS_SET, instead=False)
                else:
                    form = Surroundings(module, scope, parents).form(node, form)
                self._keep(word, form, module, node.lineno)

    def _take_reader(
        self,
        module: Module,
        function: ast.FunctionDef,
        name: str,
        default: ast.expr | None,
        at: tuple[ast.expr, dict[ast.AST, ast.AST]],
    ) -> None:
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        if name not in names:
            return
        node, parents = at
        form = Surroundings(module, function, parents).form(node, Form())
        given = isinstance(default, ast.Name) and default.id in names
        default_at = names.index(default.id) if given and isinstance(default, ast.Name) else None
        reader = Reader(module, function, names.index(name), default_at, None if given else default, form)
        self.readers.setdefault(function.name, reader)

    def _take_calls(self, module: Module) -> None:
        calls = (node for node in ast.walk(module.tree) if isinstance(node, ast.Call))
        for call in calls:
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            reader = self.readers.get(called)
            if reader is None:
                continue
            given = _argument(call, reader, reader.name_at)
            for word in _strings(given, module) if given is not None else ():
                default = reader.default if reader.default_at is None else _argument(call, reader, reader.default_at)
                self._keep(word, _with_default(reader.form, default, module), module, call.lineno)

    def _keep(self, name: str, form: Form, module: Module, line: int) -> None:
        if not _NAME.fullmatch(name):
            return
        files = self._files.setdefault(name, [])
        if module.path not in files:
            files.append(module.path)
        old = self.found.get(name)
        new = registered(name, form, f"{module.path}:{line}")
        if old is None or (_weight(new) > _weight(old)):
            self.found[name] = new
        elif _weight(new) == _weight(old) and _differs(old, new):
            self.found[name] = replace(
                old, parse=Parse.UNKNOWN, choices=(), through=f"{old.source} and {new.source} differ"
            )


def registered(name: str, form: Form, place: str, type_: str = "") -> Registered:
    """A variable as one read of it has it."""
    return Registered(
        name=name,
        kind="env",
        type=type_,
        parse=form.parse,
        default=form.default,
        source=place,
        choices=form.choices,
        off=form.off,
        through=form.through,
    )


def _weight(one: Registered) -> int:
    """How much a read says: a test of whether it is set says least, a text little."""
    return {Parse.IS_SET: 0, Parse.TRUTHY: 1, Parse.TEXT: 1}.get(one.parse, 2)


def _differs(one: Registered, other: Registered) -> bool:
    return (one.parse, one.choices, one.off) != (other.parse, other.choices, other.off)


def _with_default(form: Form, default: ast.expr | None, module: Module) -> Form:
    given = start(default, module)
    text = given.text.lower() if form.folded and isinstance(given.text, str) else given.text
    return replaced(form, text=text, falsy=given.falsy)


def _strings(node: ast.expr, module: Module) -> tuple[str, ...]:
    """The name that an expression stands for; nothing where it is a parameter or put together."""
    try:
        found = module.value(node)
    except UnknownError:
        return ()
    return (found,) if isinstance(found, str) else ()


def _in_scope(node: ast.expr, scope: ast.AST, module: Module) -> tuple[str, ...]:
    """The names that a name of a function stands for: it is assigned one, or runs through several."""
    if not isinstance(node, ast.Name):
        return ()
    for one in ast.walk(scope):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == node.id:
                return _strings(value, module)
            case ast.For(target=ast.Name(id=name), iter=several) if name == node.id:
                return _each_string(several, module)
            case ast.comprehension(target=ast.Name(id=name), iter=several) if name == node.id:
                return _each_string(several, module)
    return ()


def _each_string(node: ast.expr, module: Module) -> tuple[str, ...]:
    try:
        found = module.value(node)
    except UnknownError:
        return ()
    several = found if isinstance(found, tuple) else ()
    return several if all(isinstance(one, str) for one in several) else ()


def _argument(call: ast.Call, reader: Reader, at: int) -> ast.expr | None:
    arguments = reader.function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    for one in call.keywords:
        if one.arg == names[at]:
            return one.value
    # A method is called without its first parameter.
    shift = 1 if names and names[0] in ("self", "cls") else 0
    if 0 <= at - shift < len(call.args):
        return call.args[at - shift]
    positional = [*arguments.posonlyargs, *arguments.args]
    back = at - len(positional)
    return arguments.defaults[back] if -len(arguments.defaults) <= back < 0 else None


def _scope(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST:
    """The function in which a node stands, or the module."""
    above: ast.AST = node
    while above in parents:
        above = parents[above]
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef):
            return above
    return above
