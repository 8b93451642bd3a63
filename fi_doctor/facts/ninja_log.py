"""Whether the installed FlashInfer has all its modules built by ninja processes that share one log.

ninja keeps .ninja_log and .ninja_deps in its working folder and reads them once, at its start: of two that run in one
folder at the same time, one overwrites what the other has written, and what was lost is compiled again by the next
process that asks for the module.
Source: flashinfer/jit/core.py, JitSpec.build: run_ninja(jit_env.FLASHINFER_JIT_DIR, ...) in 0.5.3, where later
releases pass the folder of the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_ALL_MODULES = "FLASHINFER_JIT_DIR"  # the folder that holds those of the modules


def has_shared_log(root: Path) -> bool:
    """What the package in `root` does; False when its builder cannot be read or starts no ninja that we know."""
    try:
        return shares_log((root / "jit" / "core.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False


def shares_log(text: str) -> bool:
    """The same of the builder's source; raises SyntaxError or ValueError when that is not Python."""
    return any(_is_named(folder, _ALL_MODULES) for build in _builds(ast.parse(text)) for folder in _work_folders(build))


def _builds(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The methods that build one module: of JitSpec, or of its subclasses such as JitSpecNvcc."""
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name.startswith("JitSpec"):
            yield from (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "build")


def _work_folders(build: ast.FunctionDef) -> Iterator[ast.expr]:
    """What it hands to ninja as the working folder."""
    for call in ast.walk(build):
        if isinstance(call, ast.Call) and _is_named(call.func, "run_ninja"):
            yield from call.args[:1]
            yield from (keyword.value for keyword in call.keywords if keyword.arg == "workdir")


def _is_named(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found == name
    return False
