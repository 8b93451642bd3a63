"""What `import torch` maps, in its order, without importing it. Source: _load_global_deps in torch/__init__.py.

torch first opens libtorch_global_deps.so, then takes the CUDA libraries of the nvidia-* wheels on sys.path by hand
(which ones, and whether one that is absent ends this, differs between releases and is read from its source), then opens
its extension module with all the rest.
"""

from __future__ import annotations

import glob
import os
import re
from typing import NamedTuple

from fi_doctor.facts.files import read_whole
from fi_doctor.facts.loader import Process, Unresolved

# ruff: noqa: PTH118, PTH207 - the same glob as torch's, which takes the first of an unsorted listing

_PAIR = re.compile(r'"(\w+)"\s*[,:]\s*"(lib[\w-]+\.so\.\*\[0-9\])"')
_SINGLE = re.compile(r'_preload_cuda_deps\("(\w+)", "(lib[\w-]+\.so\.\*\[0-9\])"\)')
_ALL = re.compile(r"^\s+_preload_cuda_deps\((required=False)?\)", re.MULTILINE)


class Preloads(NamedTuple):
    """What a release of torch takes from wheels by hand: pairs of a folder below nvidia/ and a file pattern."""

    after_failure: tuple[tuple[str, str], ...]
    after_success: tuple[tuple[str, str], ...]
    only_beside: str  # after success only when a mapped path contains this
    all_required: bool  # after success the first one that is absent ends it


class Torch(NamedTuple):
    """An installed torch."""

    root: str  # its package folder
    cuda_major: str  # "13", "" for a build without CUDA


def parse_preloads(source: str) -> Preloads:
    """What this torch/__init__.py preloads.

    Up to 2.6 or so nvrtc and nvJitLink by single calls, later the whole table; from 2.14 on absent ones are skipped.
    """
    table = tuple(dict.fromkeys(_PAIR.findall(source)))
    singles = tuple(_SINGLE.findall(source))
    if singles:
        return Preloads(table, singles, "nvidia/cuda_runtime/lib/libcudart.so", all_required=True)
    everything = _ALL.search(source)
    after = table if everything else ()
    return Preloads(table, after, "libcudart.so", all_required=not (everything and everything.group(1)))


def load_torch(process: Process, torch: Torch, sys_path: tuple[str, ...]) -> tuple[Unresolved, ...]:
    """Map what `import torch` maps; the answer names what is not found and lets the import fail.

    What is found in spite of that stays mapped: it shows where the rest would come from.
    """
    try:
        source = read_whole(os.path.join(torch.root, "__init__.py")).decode(errors="replace")
    except OSError:  # then nothing can import it either, and its objects are all there is to look at
        source = ""
    preloads = parse_preloads(source)
    missing = _load_global_deps(process, torch, preloads, sys_path)
    for extension in sorted(glob.glob(os.path.join(glob.escape(torch.root), "_C.*so"))):
        missing += process.open(extension, partial=True)
    return missing


def _load_global_deps(
    process: Process, torch: Torch, preloads: Preloads, sys_path: tuple[str, ...]
) -> tuple[Unresolved, ...]:
    path = os.path.join(torch.root, "lib", "libtorch_global_deps.so")
    if not os.path.lexists(path):
        return ()
    missing = process.open(path)
    if not missing:
        if any(preloads.only_beside in mapped.path for mapped in process.mapped):
            _preload(process, torch, preloads.after_success, sys_path, required=preloads.all_required)
        return ()
    _preload(process, torch, preloads.after_failure, sys_path, required=True)
    return process.open(path, partial=True)


def _preload(
    process: Process, torch: Torch, pairs: tuple[tuple[str, str], ...], sys_path: tuple[str, ...], *, required: bool
) -> None:
    """Open the first match on sys.path of each pair; one that does not open ends it."""
    for folder, pattern in pairs:
        found = next((path for entry in sys_path for path in _matches(entry, torch, folder, pattern)), None)
        if found is None and required:
            return
        if found is not None and process.open(found):
            return


def _matches(entry: str, torch: Torch, folder: str, pattern: str) -> list[str]:
    """_get_cuda_dep_paths: nvidia/FOLDER/lib, nvidia/cuNN/lib, FOLDER/lib."""
    below = [os.path.join("nvidia", folder)]
    if torch.cuda_major:
        below.append(os.path.join("nvidia", f"cu{torch.cuda_major}"))
    below.append(folder)
    return [path for part in below for path in glob.glob(os.path.join(glob.escape(entry), part, "lib", pattern))]
