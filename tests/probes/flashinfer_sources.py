"""FlashInfer as source text: finds what a dotted name is in a wheel, without importing it, and binds calls to it."""

import ast
import inspect
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

MODULE_ATTRIBUTES = ("__file__", "__name__", "__path__")  # every module has them


class NotFoundInWheelError(LookupError):
    """The wheel has nothing of that name."""


@dataclass
class Sources:
    """The modules of one FlashInfer, read from a folder or straight from a wheel."""

    version: str
    root: Path  # a folder that holds flashinfer/, or a wheel
    trees: dict = field(default_factory=dict)

    def tree(self, module):
        """The parsed module, or None when there is none of that name."""
        if module not in self.trees:
            text = self._read(module.replace(".", "/") + "/__init__.py") or self._read(module.replace(".", "/") + ".py")
            self.trees[module] = ast.parse(text) if text is not None else None
        return self.trees[module]

    def is_package(self, module):
        return self._read(module.replace(".", "/") + "/__init__.py") is not None

    def _read(self, name):
        if self.root.is_dir():
            path = self.root / name
            return path.read_text(encoding="utf-8") if path.is_file() else None
        with zipfile.ZipFile(self.root) as wheel:
            return wheel.read(name).decode() if name in wheel.namelist() else None


def definitions(sources, dotted):
    """Every def, class or assignment that a dotted name may be (both sides of an if count), or else the module."""
    module, parts = "flashinfer", dotted.split(".")[1:]
    for place, part in enumerate(parts):
        found = _bound(sources, module, part)
        nodes = [item for item in found if isinstance(item, ast.AST)]
        if nodes and place < len(parts) - 1:
            raise TypeError(f"flashinfer {sources.version}: {module}.{part} is no module, {dotted} cannot be checked")
        if nodes:
            return nodes
        if not found and sources.tree(f"{module}.{part}") is None:
            raise NotFoundInWheelError(f"flashinfer {sources.version} has no {module}.{part}")
        module = found[0] if found else f"{module}.{part}"
    return [module]


def _bound(sources, module, name):
    """What a module binds a name to: defs, classes, or dotted names of modules."""
    tree = sources.tree(module)
    if tree is None:
        return []
    if name in MODULE_ATTRIBUTES:
        return [tree]
    found = []
    for node in _statements(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name:
            found.append(node)
        elif isinstance(node, ast.ImportFrom):
            found += _imported(sources, module, node, name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                found.append(node)
    return found


def _imported(sources, module, node, name):
    original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), None)
    if node.names[0].name == "*":
        return _bound(sources, _absolute(sources, module, node), name)
    if original is None:
        return []
    source = _absolute(sources, module, node)
    if source.partition(".")[0] != "flashinfer":
        return [node]  # from elsewhere: bound, but unreadable here
    # `from . import env` inside a package means the submodule, not a name that the package binds.
    if source != module and sources.tree(source) is not None and (found := _bound(sources, source, original)):
        return found
    return [f"{source}.{original}"] if sources.tree(f"{source}.{original}") is not None else []


def _absolute(sources, module, node):
    """The dotted name of the module that a from-import reads."""
    if not node.level:
        return node.module
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + sources.is_package(module)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(body):
    """The statements of a module, those inside if, try and with included."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _statements(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def signature(definition):
    """The signature of a def, or of a class's __init__ without self; decorators are taken to keep it."""
    arguments = definition.args if not isinstance(definition, ast.ClassDef) else None
    if arguments is None:
        init = next((node for node in definition.body if getattr(node, "name", "") == "__init__"), None)
        if init is None:
            return inspect.Signature([])
        arguments = init.args
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    parameters = []
    for place, argument in enumerate(positional):
        kind = kinds.POSITIONAL_ONLY if place < len(arguments.posonlyargs) else kinds.POSITIONAL_OR_KEYWORD
        parameters.append(kinds(argument.arg, kind, default=kinds.empty if place < required else None))
    if arguments.vararg:
        parameters.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parameters.append(kinds(argument.arg, kinds.KEYWORD_ONLY, default=kinds.empty if default is None else None))
    if arguments.kwarg:
        parameters.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters[1:] if isinstance(definition, ast.ClassDef) else parameters)


def bind(sources, dotted, call):
    """Raises NotFoundInWheelError or TypeError when the call does not fit what the wheel has under that name."""
    for definition in definitions(sources, dotted):
        if not isinstance(definition, (ast.FunctionDef, ast.ClassDef)):
            raise TypeError(f"flashinfer {sources.version}: {dotted} is no function whose signature can be read")
        if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
            k.arg is None for k in call.keywords
        ):
            raise TypeError(f"line {call.lineno}: * and ** in a call of {dotted} cannot be checked; write them out")
        keywords = {keyword.arg: None for keyword in call.keywords}
        try:
            signature(definition).bind(*[None] * len(call.args), **keywords)
        except TypeError as error:
            raise TypeError(f"flashinfer {sources.version}: {dotted}: {error}") from error


@dataclass(frozen=True)
class Use:
    """One use of a flashinfer name in a probe."""

    dotted: str
    line: int
    call: ast.Call | None  # None: named but not called
    guarded: bool  # inside `if hasattr(<its parent>, "<its last part>")`


def uses(tree):
    """Every use of a flashinfer name in a file, the longest dotted names only."""
    names = _aliases(tree)
    found = []
    _collect(tree, names, frozenset(), found)
    return found


def _aliases(tree):
    """Local name -> dotted flashinfer name, of all imports in the file."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "flashinfer":
                    names[alias.asname or "flashinfer"] = alias.name if alias.asname else "flashinfer"
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "flashinfer":
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _collect(node, names, guards, found):
    if isinstance(node, ast.If):
        _collect(node.test, names, guards, found)
        inner = guards | _guards(node.test, names)
        for child in node.body:
            _collect(child, names, inner, found)
        for child in node.orelse:
            _collect(child, names, guards, found)
        return
    dotted = _dotted(node.func if isinstance(node, ast.Call) else node, names)
    if dotted is not None:
        found.append(Use(dotted, node.lineno, node if isinstance(node, ast.Call) else None, dotted in guards))
    children = ast.iter_child_nodes(node)
    if dotted is not None:
        children = [*node.args, *node.keywords] if isinstance(node, ast.Call) else []
    for child in children:
        _collect(child, names, guards, found)


def _guards(test, names):
    """The names that `hasattr(module, "name")` and `hasattr(...) and ...` make sure of."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    guards = set()
    for part in parts:
        if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "hasattr":
            owner = _dotted(part.args[0], names)
            if owner is not None and isinstance(part.args[1], ast.Constant):
                guards.add(f"{owner}.{part.args[1].value}")
    return frozenset(guards)


def _dotted(node, names):
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])
