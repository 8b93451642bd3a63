"""How the installed FlashInfer has its modules built, and what its cache holds that keeps a build from being as today.

Two habits of its builder matter, and both are read off the source: whether the ninjas of all modules share one log, and
whether a module's build.ninja, once written, is kept.
Source: flashinfer/jit/core.py, JitSpec.build, and generate_ninja_build_for_op in jit/cpp_ext.py, which writes the lines
`cuda_home = ` and `nvcc = `.
"""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fi_doctor.facts.files import NOT_PYTHON, read_head, read_whole
from fi_doctor.model import JitToolkit

# ruff: noqa: PTH208 - a cache may hold hundreds of modules, and names are all that is wanted of most

_ALL_MODULES = "FLASHINFER_JIT_DIR"  # the folder that holds those of the modules
_MOST_FILES = 512  # build files that are read
_MOST_STALE = 64  # that are told
_HEAD_BYTES = 4096  # of each: the two lines are among the first five
_OWN_NVCC = "$cuda_home/bin/nvcc"  # what FLASHINFER_NVCC replaces


class Builder(NamedTuple):
    """The habits of a builder.

    shares_log: ninja keeps .ninja_log and .ninja_deps in its working folder and reads them once, at its start: of two
    that run in one folder at the same time, one overwrites what the other has written, and what was lost is compiled
    again by the next process that asks for the module. So in 0.5.3; later releases pass the folder of the module.

    keeps_files: build.ninja is written only where there is none, so that a module goes on being built with the toolkit
    of its first try. So in 0.6.7.post3; later releases write it for every build.
    """

    shares_log: bool = False
    keeps_files: bool = False


def read_builder(root: Path) -> Builder:
    """That of the package in `root`; one without habits when it cannot be read or starts no ninja that we know."""
    try:
        return parse_builder(read_whole(root / "jit" / "core.py").decode())
    except (OSError, *NOT_PYTHON):
        return Builder()


def parse_builder(text: str) -> Builder:
    """The habits in the builder's source; raises one of NOT_PYTHON when that is not Python."""
    builds = list(_builds(ast.parse(text)))
    folders = (folder for build in builds for folder in _work_folders(build))
    return Builder(
        shares_log=any(_is_named(folder, _ALL_MODULES) for folder in folders),
        keeps_files=any(_writes_once(build) for build in builds),
    )


def read_stale(folder: Path, jit: JitToolkit, environ: Mapping[str, str]) -> dict[str, str]:
    """Modules below `folder` (cached_ops) whose build.ninja names another toolkit than would be written today.

    Each with both, in words: "cuda_home = /usr/local; now /usr/local/cuda-13.0".
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    heads = ((name, _read_head(folder / name / "build.ninja")) for name in names[:_MOST_FILES])
    told = ((name, difference(head, jit.cuda_home, environ)) for name, head in heads)
    return dict(itertools.islice(((name, words) for name, words in told if words), _MOST_STALE))


def difference(head: str, cuda_home: str, environ: Mapping[str, str]) -> str:
    """What the first lines of a build.ninja say otherwise than would be written today, in words; "" for nothing.

    Two names of one folder, such as /usr/local/cuda and what it links to, are no difference.
    """
    pairs = (line.partition("=") for line in head.splitlines())
    said = {name.strip(): value.strip() for name, _, value in pairs if not name.startswith(" ")}
    then = said.get("cuda_home")
    if then is None:
        return ""  # nothing that FlashInfer has written
    if not _is_same(then, cuda_home):
        return f"cuda_home = {then}; now {cuda_home}"
    nvcc_then, nvcc = said.get("nvcc", _OWN_NVCC), environ.get("FLASHINFER_NVCC", _OWN_NVCC)
    if not _is_same(_expand(nvcc_then, then), _expand(nvcc, cuda_home)):
        return f"nvcc = {nvcc_then}; now {nvcc}"
    return ""


def _builds(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """The methods that build one module: of JitSpec, or of its subclasses such as JitSpecNvcc."""
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name.startswith("JitSpec"):
            yield from (item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "build")


def _work_folders(build: ast.FunctionDef) -> Iterator[ast.expr]:
    """What it hands to ninja as the working folder."""
    for call in _calls(build, "run_ninja"):
        yield from call.args[:1]
        yield from (keyword.value for keyword in call.keywords if keyword.arg == "workdir")


def _writes_once(build: ast.FunctionDef) -> bool:
    """Whether every build.ninja that it writes hangs on there being none."""
    guarded = {
        call
        for node in ast.walk(build)
        if isinstance(node, ast.If) and any(_is_named(part, "is_ninja_generated") for part in ast.walk(node.test))
        for call in _calls(node, "write_ninja")
    }
    return bool(guarded) and guarded == set(_calls(build, "write_ninja"))


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_named(node.func, name))


def _is_named(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Name(id=found) | ast.Attribute(attr=found):
            return found == name
    return False


def _read_head(path: Path) -> str:
    try:
        return read_head(path, _HEAD_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _expand(command: str, cuda_home: str) -> str:
    return command.replace("${cuda_home}", cuda_home).replace("$cuda_home", cuda_home)


def _is_same(one: str, other: str) -> bool:
    try:
        return one == other or os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # a null character: nothing is called so
        return False
