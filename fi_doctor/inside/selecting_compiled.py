"""Compiled modules of the installed vLLM that cannot be loaded here, as empty modules with operators without code.

Loaded by selecting.py, beside which it lies; standard library, torch and vLLM only. On the machine that serves nothing
is replaced: only what cannot be loaded is, and each replacement is written into `said`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import mmap
import os
import re
import sys
import types
from typing import Any

# Paths go to and come from vLLM and torch as text.
# ruff: noqa: PTH110, PTH112, PTH118, PTH119, PTH120, PTH123, PTH208

# Compiled modules of vLLM that register operators. One that cannot be imported is stood in for by an empty module:
# the selectors then see operators that do not exist, which is said in the answer.
COMPILED = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm.cumem_allocator",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)


def stub_compiled(said: list[str]) -> None:
    """Put empty modules where compiled ones of the installed vLLM cannot be loaded here."""
    importlib.import_module("torch")  # its libraries are what the modules need
    vllm = importlib.import_module("vllm")
    root = os.path.dirname(str(vllm.__file__))
    for name in COMPILED:
        stem = os.path.join(root, *name.split(".")[1:])
        present = [stem + end for end in (".abi3.so", ".so") if os.path.exists(stem + end)]
        if not present:
            if _is_imported_by(root, name):
                sys.modules[name] = types.ModuleType(name)
                said.append(f"{name} is an empty module: it is not there")
            continue
        try:
            ctypes.CDLL(present[0])  # as an import loads it, without the package around it, which may refuse without it
        except OSError as error:
            sys.modules[name] = types.ModuleType(name)
            said.append(f"{name} is an empty module: {str(error).splitlines()[0]}")
    folder = os.path.join(root, "third_party", "deep_gemm")
    built = [name for name in (os.listdir(folder) if os.path.isdir(folder) else ()) if name.startswith("_C")]
    tags = (f"cpython-{sys.version_info[0]}{sys.version_info[1]}-", ".abi3.")
    ours = [os.path.join(folder, name) for name in built if any(tag in name for tag in tags)]
    why = "" if ours or not built else "it is compiled for other versions of Python"
    try:
        _ = [ctypes.CDLL(path) for path in ours]
    except OSError as error:
        why = str(error).splitlines()[0]
    if why:
        _stand_in("vllm.third_party.deep_gemm")
        said.append(f"vllm.third_party.deep_gemm is an empty module: {why}")


def _stand_in(name: str) -> None:
    """An empty module, also as an attribute of the package that holds it."""
    sys.modules[name] = module = types.ModuleType(name)
    module.__spec__ = importlib.util.spec_from_loader(name, None)
    parent, _, leaf = name.rpartition(".")
    with contextlib.suppress(ImportError):
        setattr(importlib.import_module(parent), leaf, module)


def stand_in_operators(said: list[str]) -> list[Any]:
    """Operators of compiled modules that cannot be loaded: defined with the schemas that the files hold, without code.

    Five of them only look at the capability; those answer, as csrc/ of vLLM has them for CUDA 12.8 and newer. What is
    returned keeps the definitions alive.
    """
    torch: Any = importlib.import_module("torch")
    vllm = importlib.import_module("vllm")
    root, libraries = os.path.dirname(str(vllm.__file__)), []
    empty = [line.partition(" is an empty module")[0] for line in said if " is an empty module" in line]
    for name in empty:
        path = os.path.join(root, *name.split(".")[1:]) + ".abi3.so"
        if not os.path.exists(path):
            continue
        space = name.rpartition(".")[2].replace("_stable_libtorch", "")
        library = torch.library.Library(space, "FRAGMENT")
        libraries.append(library)
        defined = sum(_is_defined(library, schema) for schema in _schemas(path))
        said.append(
            f"torch.ops.{space}: {defined} operators with the schemas of {os.path.basename(path)}, without code"
        )
    for library in libraries[:1]:
        for name, answer in _BY_CAPABILITY.items():
            if f"_C::{name}" in torch._C._dispatch_get_all_op_names():  # noqa: SLF001
                library.impl(name, answer, "CompositeImplicitAutograd")
        said.append("answers by the capability alone: " + ", ".join(_BY_CAPABILITY))
    return libraries


def _schemas(path: str) -> list[str]:
    """The operators' schemas, which are plain text in the file that registers them."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = re.findall(
            rb"\0([a-z][a-zA-Z0-9_.]{2,60}\([^\0()]*(?:\([a-zA-Z0-9!, ]*\)[^\0()]*)*\) *-> *[^\0]{1,80})(?=\0)", data
        )
    return [" ".join(schema.decode("ascii", "replace").split()) for schema in dict.fromkeys(found)]


def _is_defined(library: Any, schema: str) -> bool:
    try:
        library.define(schema)
    except RuntimeError:
        return False
    return True


_BY_CAPABILITY = {
    "cutlass_scaled_mm_supports_fp8": lambda sm: sm >= 89,
    "cutlass_scaled_mm_supports_block_fp8": lambda sm: sm >= 90,
    "cutlass_group_gemm_supported": lambda sm: sm in (90, 100, 103),
    "cutlass_sparse_scaled_mm_supported": lambda sm: sm == 90,
    "cutlass_scaled_mm_supports_fp4": lambda sm: 100 <= sm < 130,
}


def _is_imported_by(root: str, name: str) -> bool:
    """Whether platforms/cuda.py imports the module: a folder of Python files alone has no compiled ones."""
    try:
        with open(os.path.join(root, "platforms", "cuda.py"), encoding="utf-8") as file:
            return f"import {name} " in file.read().replace("\n", " ")
    except OSError:
        return False
