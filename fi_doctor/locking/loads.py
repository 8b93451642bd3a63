"""What an import loads, in words that a lock holds: sets of modules and files, by package.

A word is the dotted name of a module, which sys.path leads to, "./numpy.libs/libx.so", a file below an entry of
sys.path, or "/opt/x.py", a file elsewhere. A name that leads to nothing is a word too: it may lead to something one
day. "torch:numpy" are the words of numpy that `import torch` loads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from fi_doctor.facts.imports import Imports, Loaded
from fi_doctor.locking.names import WITHOUT_EFFECT
from fi_doctor.locking.resolving import NAMESPACE, Resolver

STANDARD = "standard-library"
_ELSEWHERE = "elsewhere"
# Variables of what is imported; others are asked for wherever the whole environment is copied.
_THEIRS = re.compile(r"CUTE_|FLASHINFER_|KINETO_|NPY_|NUMPY_|NVPL_|OPENBLAS_|PYTORCH_|TORCH|TRITON_|TVM_")
_TOLD_OTHERWISE = ("FLASHINFER_WORKSPACE_BASE",)  # the input "workspace" says whether it will do
_AT_START = ("sitecustomize", "usercustomize")  # Python imports them by itself, where there are any
_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")  # of the operating system, as the driver's libraries are
_DRIVER = ("libcuda.so", "libnvidia-")


def words(imports: Imports, version: str) -> dict[str, tuple[str, ...]]:
    """The words of each package, under "torch:numpy"; of the second import those that the first has not."""
    resolver = Resolver(imports.sys_path, version)
    found: dict[str, set[str]] = {}
    seen: set[str] = set()
    for one in imports.loaded:
        new = {*_words(one, resolver), *_AT_START} - seen
        seen |= new
        for word in new:
            found.setdefault(f"{one.name}:{_package(word, imports, resolver)}", set()).add(word)
    return {name: tuple(sorted(some)) for name, some in sorted(found.items())}


def groups(imports: Imports, words: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each import the inputs that it rests on: what it loads, by package, and the variables that it asks for."""
    found = {}
    for one in imports.loaded:
        loads = (f"loads:{name}" for name in words if name.partition(":")[0] == one.name)
        asked = (name for name in one.variables if _THEIRS.match(name) and name not in _TOLD_OTHERWISE)
        variables = (f"{'setting' if WITHOUT_EFFECT.search(name) else 'variable'}:{name}" for name in asked)
        found[f"loads:{one.name}"] = tuple(sorted({*loads, *variables}))
    return found


def file_of(word: str, resolver: Resolver) -> str:
    """The file that a word stands for now, "" for none; of a package of folders NAMESPACE."""
    if word.startswith("./"):
        return resolver.below(word[2:])
    if word.startswith("/"):
        return word if os.path.isfile(word) else ""  # noqa: PTH113 - some thousand of them
    return resolver.place(word).file


def _words(loaded: Loaded, resolver: Resolver) -> Iterator[str]:
    """Names that lead to what was loaded, and files that no name leads to."""
    led: set[str] = set()
    others: set[str] = set()
    names = {*loaded.asked, *loaded.files}
    names |= {name.rpartition(".")[0] for name in names if "." in name}  # a package of folders has no file
    for name in sorted(names - loaded.inner):
        file = loaded.files.get(name, "")
        if file and not os.path.isabs(file):  # noqa: PTH117 - what only pretends to be a module, as torch.classes does
            continue
        place = resolver.place(name).file
        is_led = not file or _same(file, place)
        if is_led or "." not in name:
            top, dot, _ = name.rpartition(".")
            if not dot or place or resolver.place(top).folders:
                yield name
                led.add(place)
        if not is_led:
            others.add(file)
    mapped = {path for path in loaded.mapped if not _is_of_system(path)}
    yield from (_shortest(path, resolver) for path in (others | mapped) - led if not _leads(path, led))


def _same(file: str, place: str) -> bool:
    if file == place:
        return True
    return place not in ("", NAMESPACE) and os.path.realpath(file) == os.path.realpath(place)


def _leads(path: str, led: set[str]) -> bool:
    """Whether a name leads to this file, which may have been reached through a link."""
    return os.path.realpath(path) in led


def _is_of_system(path: str) -> bool:
    return path.startswith(_SYSTEM) or os.path.basename(path).startswith(_DRIVER)  # noqa: PTH119


def _shortest(path: str, resolver: Resolver) -> str:
    below = [entry for entry in resolver.sys_path if path.startswith(f"{entry}/")]
    return f"./{path[len(max(below, key=len)) + 1 :]}" if below else path


def _package(word: str, imports: Imports, resolver: Resolver) -> str:
    """Which package a word belongs to."""
    if word.startswith("/"):
        return _ELSEWHERE
    top = word[2:].partition("/")[0] if word.startswith("./") else word.partition(".")[0]
    file = file_of(word if word.startswith("./") else top, resolver)
    standard = {os.path.normpath(folder) for folder in imports.standard}
    standard |= {f"{folder}/lib-dynload" for folder in standard}
    entry = next((entry for entry in resolver.sys_path if file.startswith(f"{entry}/{top}")), "")
    return STANDARD if entry in standard else top
