"""Where a package's source defines a dotted name, read without importing it.

Some of FlashInfer's files hold half a megabyte, and a syntax tree of one costs more than all other facts together. So
a file is reduced first: strings are blanked and the bodies of its top-level functions and classes are cut out, which
leaves its imports, assignments and `try` blocks on their own lines; only that is parsed.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from pathlib import Path

from fi_doctor.facts.branches import holds
from fi_doctor.facts.compiled import Compiled
from fi_doctor.facts.files import NOT_PYTHON, may_be_file, read_whole, why_not_python, why_unread
from fi_doctor.facts.recorded import Recorded
from fi_doctor.model import Data, Missing

# Of files that no Python has compiled, so many characters are parsed whole: less than 0.1 s on one core.
QUICK = 200_000
WHOLE = 1 << 40
_PYTHON = f"Python {sys.version_info.major}.{sys.version_info.minor}"  # which may be older than the examined one
_MAX_HOPS = 12  # of one name through `from .x import name`; FlashInfer needs three
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|" r"#[^\n]*",
    re.DOTALL,
)
_DEFINITION = re.compile(r"(?:async\s+def|def|class)\s+(\w+)")


class Binding(Data, frozen=True):
    """What a name is bound to at the top level of a module."""

    line: int
    module: str = ""  # ".core" for a name that is imported; "" when it is defined here
    name: str = ""  # its name there; "" when the module itself is bound


class Source:
    """One module's file: its top-level names, its star imports, and what else must be asked of the text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = read_whole(path).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        self.masked = _STRING_OR_COMMENT.sub(_blank, self.text)
        self.names: dict[str, Binding] = {}
        self.stars: list[str] = []
        self._read(ast.parse(skeleton(self.masked)).body, override=True)

    def member(self, class_line: int, name: str) -> int:
        """The line of a class's method or attribute; 0 when the class itself has none of that name."""
        pattern = re.compile(rf"(?:async\s+def|def)\s+{re.escape(name)}\b|{re.escape(name)}\s*[:=]")
        indent = 0
        lines = self.masked.split("\n")
        for number, (before, line) in enumerate(itertools.pairwise(lines[class_line - 1 :]), class_line + 1):
            bare = line.lstrip()
            depth = len(line) - len(bare)
            if not bare or before.endswith("\\"):
                continue
            if depth == 0 and bare[0] not in ")]}":
                return 0
            indent = indent or depth
            if depth == indent and pattern.match(bare):
                return number
        return 0

    def lazy(self, name: str) -> int:
        """The line that names it for the module's own __getattr__, which imports on first use; 0 without one."""
        if "__getattr__" not in self.names:
            return 0
        match = re.search(rf"""["']{re.escape(name)}["']""", self.text)
        return self.text.count("\n", 0, match.start()) + 1 if match else 0

    def _read(self, body: list[ast.stmt], *, override: bool) -> None:
        """Take the names that these statements bind; a fallback (except, else) never replaces a name."""
        for node in body:
            match node:
                case ast.If(test=test) | ast.While(test=test) if (is_true := holds(test)) is not None:
                    self._read(node.body if is_true else node.orelse, override=override)
                case ast.If() | ast.For() | ast.While():
                    self._read(node.body, override=override)
                    self._read(node.orelse, override=False)
                case ast.With():
                    self._read(node.body, override=override)
                case ast.Try():
                    self._read([*node.body, *node.orelse, *node.finalbody], override=override)
                    for handler in node.handlers:
                        self._read(handler.body, override=False)
                case _:
                    for name, binding in self._bindings(node):
                        if override or name not in self.names:
                            self.names[name] = binding

    def _bindings(self, node: ast.stmt) -> list[tuple[str, Binding]]:
        line = node.lineno
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                return [(name, Binding(line=line))]
            case ast.Assign(targets=targets):
                bound = [leaf for target in targets for leaf in ast.walk(target)]
                names = [leaf for leaf in bound if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)]
                return [(leaf.id, Binding(line=line)) for leaf in names]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                return [(name, Binding(line=line))]
            case ast.Import(names=names):
                return [(a.asname or a.name.partition(".")[0], Binding(line=line)) for a in names]
            case ast.ImportFrom(names=names):
                return self._imported(node, names)
        return []

    def _imported(self, node: ast.ImportFrom, names: list[ast.alias]) -> list[tuple[str, Binding]]:
        module = "." * node.level + (node.module or "")
        if names[0].name == "*":
            self.stars.append(module)
            return []
        return [(a.asname or a.name, Binding(line=a.lineno, module=module, name=a.name)) for a in names]


class Symbols:
    """The names of one installed package; each file is read at most once.

    whole: how many characters are parsed whole, so that an error inside a function is found too. What a Python has
    compiled as it is needs none of it.
    """

    def __init__(self, root: Path, label: str, *, whole: int = 0) -> None:
        self._root = root
        self._label = label  # "flashinfer 0.5.3", for reasons
        self._whole = whole
        self._compiled = Compiled()
        self._recorded = Recorded(root)
        self._sources: dict[Path, Source | Missing] = {}
        self._named: dict[tuple[Path, str], tuple[Path, int] | None] = {}

    def where(self, dotted: str) -> str | Missing:
        """Where the package defines `flashinfer.norm.rmsnorm`: "norm/__init__.py:41", below the package folder."""
        first, *parts = dotted.split(".")
        if first != self._root.name or not parts:
            return Missing(reason=f"{dotted} is no name of the package {self._root.name}")
        module = self._root
        while len(parts) > 1 and self._file(module / parts[0]) is not None:
            module /= parts.pop(0)
        found = self._find(module, parts[0], 0)
        if found is None:
            return self._absent(dotted, module)
        if isinstance(found, Missing):
            return found
        path, line = found
        if len(parts) == 1:
            return self.place(path, line)
        return self._inside(dotted, path, line, parts[1:])

    def named_in(self, path: Path, name: str) -> tuple[Path, int] | None:
        """The file and line that define what a file of the package calls `name`; None where that is not known."""
        if (path, name) not in self._named:
            module = path.parent if path.name == "__init__.py" else path.with_suffix("")
            found = self._find(module, name, 0)
            self._named[path, name] = None if isinstance(found, Missing) else found
        return self._named[path, name]

    def imported_in(self, path: Path, module: str, name: str) -> tuple[Path, int] | None:
        """The same for a name that a file imports from `module`, ".core", inside a function."""
        target = self._target(path, module)
        found = self._find(target, name, 0) if target is not None else None
        return None if isinstance(found, Missing) else found

    def source(self, path: Path) -> Source | Missing:
        """A file of the package, read once."""
        if path not in self._sources:
            try:
                self._sources[path] = self._read(path)
            except OSError as error:
                self._sources[path] = Missing(reason=f"{path}: {why_unread(error)}")
            except NOT_PYTHON as error:
                self._sources[path] = Missing(reason=f"{path} cannot be parsed by {_PYTHON}: {why_not_python(error)}")
        return self._sources[path]

    def _read(self, path: Path) -> Source:
        source = Source(path)
        if len(source.text) <= self._whole and not self._compiled.has(path):
            self._whole -= len(source.text)
            ast.parse(source.text)
        return source

    def _inside(self, dotted: str, path: Path, line: int, rest: list[str]) -> str | Missing:
        """A member of the class at that line."""
        source = self.source(path)
        number = source.member(line, rest[0]) if isinstance(source, Source) and len(rest) == 1 else 0
        if number:
            return self.place(path, number)
        reason = f"{self._label} has no {dotted} ({self.place(path, line)} was read, not what it inherits)"
        return Missing(reason=reason)

    def _find(self, module: Path, name: str, hops: int) -> tuple[Path, int] | Missing | None:
        """The file and line that define a name of a module; None when the module has no such name."""
        path = self._file(module)
        if path is None or hops > _MAX_HOPS:
            return None
        source = self.source(path)
        if isinstance(source, Missing):
            return source
        binding = source.names.get(name)
        if binding is not None:
            return self._follow(path, name, binding, hops)
        submodule = self._file(module / name)
        if submodule is not None and path.name == "__init__.py":
            return submodule, 1
        for star in source.stars:
            target = self._target(path, star)
            found = self._find(target, name, hops + 1) if target is not None and name[:1] != "_" else None
            if found is not None:
                return found
        line = source.lazy(name)
        return (path, line) if line else None

    def _follow(self, path: Path, name: str, binding: Binding, hops: int) -> tuple[Path, int] | Missing | None:
        if not binding.module:
            return path, binding.line
        target = self._target(path, binding.module)
        if target is None:
            return path, binding.line  # it comes from another package
        if self._file(target) == path:  # `from . import norm` binds the submodule
            submodule = self._file(target / binding.name)
            return (submodule, 1) if submodule is not None else None
        found = self._find(target, binding.name, hops + 1)
        if found is None and self._file(target) is None:
            reason = f"{self.place(path, binding.line)} imports {name} from {binding.module}, which is not there"
            return Missing(reason=f"{self._label}: {reason}")
        return found

    def _target(self, path: Path, module: str) -> Path | None:
        """The module that `from MODULE import` in this file means, without suffix; None outside the package."""
        dots = len(module) - len(module.lstrip("."))
        parts = module[dots:].split(".") if module[dots:] else []
        if dots == 0:
            return self._root.joinpath(*parts[1:]) if parts[0] == self._root.name else None
        base = path.parent
        for _ in range(dots - 1):
            base = base.parent
        return base.joinpath(*parts) if base.is_relative_to(self._root) else None

    def _file(self, module: Path) -> Path | None:
        package, plain = module / "__init__.py", module.with_name(module.name + ".py")
        # One that cannot be looked at may be there: it is read, and why that fails is the answer.
        if may_be_file(package):
            return package
        return plain if module != self._root and may_be_file(plain) else None

    def _absent(self, dotted: str, module: Path) -> Missing:
        path = self._file(module)
        if doubt := self._altered(dotted, module):
            return Missing(reason=f"{self._label}: {doubt}, so it is not known whether it has {dotted}")
        read = f"{self.place(path)} read" if path else f"no module {module.relative_to(self._root.parent)}"
        return Missing(reason=f"{self._label} has no {dotted} ({read})", absent=True)

    def _altered(self, dotted: str, module: Path) -> str:
        """Which file on the way is not as it was installed: a damaged file says nothing of what a release lacks."""
        next_name = dotted.split(".")[len(module.relative_to(self._root.parent).parts)]
        for place in (module, module / next_name):
            below = place.relative_to(self._root)
            for name in (below / "__init__.py", below.with_suffix(".py") if below.name else below):
                if how := self._recorded.altered(name.as_posix()):
                    return f"{name.as_posix()} is not as it was installed ({how})"
        return ""

    def place(self, path: Path, line: int = 0) -> str:
        """How a place is written: "norm/__init__.py:41", below the package folder."""
        place = path.relative_to(self._root).as_posix()
        return f"{place}:{line}" if line else place


def skeleton(masked: str) -> str:
    """A module without the bodies of its top-level functions and classes, on the same lines.

    masked: its text with blanked strings, so that column 0 begins a statement, closes a bracket or goes on after a
    backslash.
    """
    kept: list[str] = []
    cut = continued = False
    for line in masked.split("\n"):
        first = line[:1]
        if cut and (continued or not first or first in " \t\r)]}"):
            kept.append("")
        elif continued:
            kept.append(line)
        else:
            definition = _DEFINITION.match(line)
            cut = first == "@" or definition is not None
            kept.append(line if not cut else f"def {definition[1]}(): 0" if definition else "")
        continued = line.endswith("\\")
    return "\n".join(kept)


def _blank(match: re.Match[str]) -> str:
    """An empty string in place of a string, over as many lines; nothing in place of a comment."""
    text = match.group()
    return "" if text[0] == "#" else '""' + "\\\n" * text.count("\n")
