"""Which Python files of the installed FlashInfer a call goes through, by what each imports; nothing is imported.

Where a package's __init__ hands names on, only the files that define the names that are asked for are followed: else
everything would rest on everything.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fi_doctor.facts.files import NOT_PYTHON, is_file, read_text
from fi_doctor.facts.symbols import Symbols
from fi_doctor.model import Missing

# What a file of FlashInfer imports -> the distribution that brings it.
DISTRIBUTIONS = {
    "cuda": "cuda-python",
    "cudnn": "nvidia-cudnn-frontend",
    "cutlass": "nvidia-cutlass-dsl",
    "triton": "triton",
    "tvm_ffi": "apache-tvm-ffi",
}

_VARIABLE = re.compile(r"""["']((?:FLASHINFER|TRTLLM|TLLM|CUTE_DSL|CUTLASS|TRITON|NCCL|CUDA|TVM)_[A-Z0-9_]+)["']""")
_TEMPLATE = re.compile(r"""["']([\w./-]+\.jinja)["']""")
_DOTTED = re.compile(r"\bflashinfer(?:\.\w+)+")


class PythonFiles:
    """The Python files of one package; each is parsed at most once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._symbols = Symbols(root, root.name)
        self._texts: dict[Path, str] = {}
        self._imports: dict[Path, frozenset[str]] = {}

    def closure(self, names: Iterable[str]) -> tuple[Path, ...]:
        """The files that define these dotted names, those that they import, and so on, sorted.

        The package's own __init__ always counts; it is not followed.
        """
        found: set[Path] = set()
        rest = [path for name in names for path in self._files_of(name)]
        while rest:
            path = rest.pop()
            if path in found:
                continue
            found.add(path)
            if path.name != "__init__.py" or path.parent != self._root:
                rest += [one for name in self._imported(path) for one in self._files_of(name)]
        return tuple(sorted({*found, self._root / "__init__.py"}))

    def variables(self, paths: Iterable[Path]) -> frozenset[str]:
        """The environment variables that these files name."""
        return frozenset(name for path in paths for name in _VARIABLE.findall(self._text(path)))

    def templates(self, paths: Iterable[Path]) -> frozenset[str]:
        """The Jinja files that these files name, of which sources are made."""
        return frozenset(name for path in paths for name in _TEMPLATE.findall(self._text(path)))

    def distributions(self, paths: Iterable[Path]) -> frozenset[str]:
        """The other packages that these files import, by distribution."""
        tops = {name.partition(".")[0] for path in paths for name in self._imported(path)}
        return frozenset(DISTRIBUTIONS[top] for top in tops if top in DISTRIBUTIONS)

    def _files_of(self, dotted: str) -> list[Path]:
        """The file that defines a name, and the __init__ of each package on the way to where it is asked for."""
        first, *parts = dotted.split(".")
        if first != self._root.name:
            return []
        files: list[Path] = []
        module = self._root
        for number, part in enumerate(parts):
            package, plain = module / part / "__init__.py", module / f"{part}.py"
            if is_file(package):
                module /= part
                if number < len(parts) - 1:
                    continue
                return [package]
            if is_file(plain):
                return [plain]
            where = self._symbols.where(".".join([first, *parts[: number + 1]]))
            if isinstance(where, str):
                files.append(self._root / where.rpartition(":")[0])
            elif is_file(module / "__init__.py") and module != self._root:
                files.append(module / "__init__.py")
            break
        return files

    def _imported(self, path: Path) -> frozenset[str]:
        if path not in self._imports:
            self._imports[path] = frozenset(_imports(self._text(path), self._package_of(path)))
        return self._imports[path]

    def _package_of(self, path: Path) -> str:
        return ".".join(path.parent.relative_to(self._root.parent).parts)

    def _text(self, path: Path) -> str:
        if path not in self._texts:
            text = read_text(path)
            self._texts[path] = "" if isinstance(text, Missing) else text
        return self._texts[path]


def names_in_probe(text: str) -> frozenset[str]:
    """The dotted FlashInfer names that a probe imports or calls; not the packages in which it calls something."""
    found = set(_DOTTED.findall(text))
    found |= {name for name in _imports(text, "") if name.startswith("flashinfer.")}
    return frozenset(name for name in found if not any(other.startswith(f"{name}.") for other in found))


def _imports(text: str, package: str) -> Iterator[str]:
    """Every dotted name that a file imports, at any depth: `from ..jit import gen` gives flashinfer.jit.gen."""
    try:
        tree = ast.parse(text)
    except NOT_PYTHON:
        return
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parts, *([module] if module else [])])
                yield from (base if alias.name == "*" else f"{base}.{alias.name}" for alias in names)
