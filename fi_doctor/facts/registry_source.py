"""The modules of a package as the registry's readers see them: their constants, classes and imports."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fi_doctor.facts.files import NOT_PYTHON, why_not_python
from fi_doctor.facts.registry_text import only_around, read_python, skeleton
from fi_doctor.model import Missing

_OPERATIONS: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
_COPIES = ("list", "tuple", "set", "frozenset", "sorted")
_DEEPEST = 12  # of names that stand for names
_LARGEST = 1 << 62


class UnknownError(Exception):
    """What an expression gives cannot be told without running it."""


class Module:
    """One file of the package."""

    def __init__(self, modules: Modules, path: str, text: str, tree: ast.Module) -> None:
        self.modules = modules
        self.path = path  # "config/kernel.py"
        self.text = text
        self.tree = tree
        self.constants: dict[str, ast.expr] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.imports: dict[str, tuple[str, str]] = {}  # name here -> (dotted module, name there)
        self._lines: list[str] = []
        self._index(tree.body)

    def _index(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.constants.setdefault(name, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.constants.setdefault(name, value)
                case ast.ClassDef(name=name):
                    self.classes[name] = node
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.functions[name] = node
                case ast.ImportFrom(module=str(module), names=names, level=0):
                    self.imports.update({one.asname or one.name: (module, one.name) for one in names})
                case ast.ImportFrom(module=module, names=names, level=level):
                    parts = self.path.split("/")[:-level]
                    dotted = ".".join([self.modules.root.name, *parts, *([module] if module else [])])
                    self.imports.update({one.asname or one.name: (dotted, one.name) for one in names})
                case ast.If(body=inner, orelse=other):
                    self._index(inner)
                    self._index(other)
                case ast.Try(body=inner):
                    self._index(inner)

    def lines(self, node: ast.stmt) -> str:
        """The lines of the file in which a statement stands."""
        if not self._lines:
            self._lines = self.text.split("\n")
        return "\n".join(self._lines[node.lineno - 1 : node.end_lineno])

    def origin(self, name: str) -> tuple[Module, str]:
        """The module that defines what a name stands for here, and its name there. Errors: UnknownError."""
        here, there = self, name
        for _ in range(_DEEPEST):
            if there in here.classes or there in here.constants or there in here.functions:
                return here, there
            if there not in here.imports:
                break
            dotted, there = here.imports[there]
            found = self.modules.dotted(dotted)
            if found is None:
                break
            here = found
        raise UnknownError(name)

    def value(self, node: ast.expr, depth: int = 0) -> object:  # noqa: C901, PLR0912 - one case for each form
        """What a constant expression gives; members of enums give their name. Errors: UnknownError."""
        if depth > _DEEPEST:
            raise UnknownError(ast.unparse(node))
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                module, there = self.origin(name)
                if there in module.constants:
                    return module.value(module.constants[there], depth + 1)
            case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
                return self._several(elts, depth)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(keys, values, strict=True)
                return {str(self.value(key, depth + 1)): self.value(one, depth + 1) for key, one in pairs if key}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                found = self.value(operand, depth + 1)
                if isinstance(found, int | float):
                    return -found
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
                return _computed(op, self.value(left, depth + 1), self.value(right, depth + 1))
            case ast.Call(func=ast.Name(id="str" | "int" | "float" as name), args=[one], keywords=[]):
                return _converted(name, self.value(one, depth + 1))
            case ast.Call(func=ast.Name(id=name), args=[one], keywords=[]) if name in _COPIES:
                found = self.value(one, depth + 1)
                if isinstance(found, tuple | dict):
                    return tuple(found)
            case ast.Call(func=ast.Name(id=name), args=[], keywords=[]) if name in _COPIES:
                return ()
            case ast.Call(func=ast.Name(id="get_args"), args=[one]):
                return tuple(self.options(one, depth))
            case ast.Call(func=ast.Attribute(value=one, attr="keys"), args=[]):
                found = self.value(one, depth + 1)
                if isinstance(found, dict):
                    return tuple(found)
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                module, there = self.origin(name)
                if there in module.classes:
                    return module.member(module.classes[there], attr, depth)
        raise UnknownError(ast.unparse(node))

    def member(self, node: ast.ClassDef, name: str, depth: int = 0) -> object:
        """What an attribute of a class holds; of an enum its name. Errors: UnknownError."""
        if is_enum(node) and name in members(node):
            return name
        for one in node.body:
            if isinstance(one, ast.AnnAssign | ast.Assign) and one.value is not None:
                target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
                if isinstance(target, ast.Name) and target.id == name:
                    return self.value(one.value, depth + 1)
        raise UnknownError(f"{node.name}.{name}")

    def options(self, node: ast.expr, depth: int = 0) -> Iterator[object]:
        """The options of a Literal, and of those in it; also of a name that stands for one. Errors: UnknownError."""
        match node:
            case ast.Name(id=name) if depth < _DEEPEST:
                module, there = self.origin(name)
                if there in module.constants:
                    yield from module.options(module.constants[there], depth + 1)
                    return
            case ast.Subscript(value=ast.Name(id="Literal") | ast.Attribute(attr="Literal"), slice=inner):
                for one in inner.elts if isinstance(inner, ast.Tuple) else [inner]:
                    if isinstance(one, ast.Constant | ast.Attribute):
                        yield self.value(one)
                    else:
                        yield from self.options(one.value if isinstance(one, ast.Starred) else one, depth + 1)
                return
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from self.options(left, depth + 1)
                yield from self.options(right, depth + 1)
                return
        raise UnknownError(ast.unparse(node))

    def _several(self, elts: list[ast.expr], depth: int) -> tuple[object, ...]:
        found: list[object] = []
        for one in elts:
            if isinstance(one, ast.Starred):
                inner = self.value(one.value, depth + 1)
                if not isinstance(inner, tuple):
                    raise UnknownError(ast.unparse(one))
                found += inner
            else:
                found.append(self.value(one, depth + 1))
        return tuple(found)


class Modules:
    """The files of a package folder, each read and parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._read: dict[str, Module | Missing] = {}

    def at(self, path: str) -> Module | Missing:
        """A file by its path below the package, "config/kernel.py"; bodies of functions may be left out of it."""
        if path not in self._read:
            self._read[path] = self._load(path)
        return self._read[path]

    def around(self, path: str, wanted: Sequence[str]) -> Module | Missing:
        """A file without the functions and classes that hold none of these texts: most of them are about kernels."""
        text = read_python(self.root / path)
        if isinstance(text, Missing):
            return text
        found = self._parsed(path, text, only_around(text, wanted))
        return found if isinstance(found, Module) else self._parsed(path, text, text)

    def dotted(self, name: str) -> Module | None:
        """A module of this package by its dotted name; None where it is another package's, or cannot be read."""
        first, _, rest = name.partition(".")
        if first != self.root.name:
            return None
        path = rest.replace(".", "/")
        places = (f"{path}.py", f"{path}/__init__.py") if path else ("__init__.py",)
        found = (self.at(place) for place in places)
        return next((one for one in found if isinstance(one, Module)), None)

    def _load(self, path: str) -> Module | Missing:
        text = read_python(self.root / path)
        if isinstance(text, Missing):
            return text
        found = self._parsed(path, text, skeleton(text))
        return found if isinstance(found, Module) else self._parsed(path, text, text)

    def _parsed(self, path: str, text: str, written: str) -> Module | Missing:
        try:
            return Module(self, path, text, ast.parse(written))
        except NOT_PYTHON as error:
            return Missing(reason=f"{self.root / path} is not Python: {why_not_python(error)}")


def is_enum(node: ast.ClassDef) -> bool:
    """Whether a class is an enum by the names of its bases."""
    return any("Enum" in ast.unparse(base) for base in node.bases)


def members(node: ast.ClassDef) -> tuple[str, ...]:
    """The names of an enum's members."""
    names = [
        target.id
        for one in node.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    ]
    return tuple(names)


def _computed(op: ast.operator, left: object, right: object) -> object:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if isinstance(op, ast.Pow | ast.LShift) and not (numbers and abs(right) < 64):  # type: ignore[arg-type] # numbers
        raise UnknownError("a power")
    if numbers or (isinstance(op, ast.Add) and type(left) is type(right) and isinstance(left, str | tuple)):
        try:
            found = _OPERATIONS[type(op)](left, right)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise UnknownError(str(error)) from error
        if not isinstance(found, int) or abs(found) < _LARGEST:
            return found
    raise UnknownError("an operation")


def _converted(name: str, value: object) -> object:
    if not isinstance(value, str | int | float):
        raise UnknownError(name)
    try:
        return {"str": str, "int": int, "float": float}[name](value)
    except (ValueError, OverflowError) as error:
        raise UnknownError(name) from error
