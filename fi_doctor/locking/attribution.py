"""Which inputs a row rests on: the names, not what is in them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.facts.files import read_text
from fi_doctor.facts.ninja_deps import sources
from fi_doctor.facts.vllm import python_files
from fi_doctor.locking.model import Key, key_of
from fi_doctor.locking.names import FLASHINFER, VLLM, WITHOUT_EFFECT, Names
from fi_doctor.locking.needs import always, gpus, imports_of, is_import, loads_group, needs_flashinfer
from fi_doctor.locking.python_files import PythonFiles, names_in_probe
from fi_doctor.model import (
    CellOutcome,
    Facts,
    Feature,
    FeatureRow,
    FlashInfer,
    KnowledgeBase,
    Missing,
    Outcome,
    ProbeSpec,
    VllmUse,
)

# Whole folders of FlashInfer: third parties' headers, which only a new version changes.
_FOREIGN = ("data/cccl/", "data/cutlass/", "data/spdlog/")
# Where nothing tells what a module is compiled from.
_ALL_SOURCES = ("data/csrc/", "data/include/", *_FOREIGN)
_BUILD_VARIABLES = (
    "CC",
    "CFLAGS",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CXX",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "LDFLAGS",
    "LIBRARY_PATH",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
)
# What Python is told of importing that sys.path does not show.
_START_VARIABLES = ("PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONWARNINGS")
_RANK_VARIABLES = ("NCCL_ALGO", "NCCL_P2P_DISABLE", "NCCL_PROTO", "NCCL_SHM_DISABLE", "NVSHMEM_DISABLE_P2P")
_TOOLS = ("bin/cudafe++", "bin/fatbinary", "bin/nvcc", "bin/nvlink", "bin/ptxas", "nvvm/bin/cicc")
_TORCH_FILES = ("version.py", "lib/libc10_cuda.so", "lib/libtorch_cpu.so", "lib/libtorch_cuda.so")
_COMPANIONS = ("flashinfer-cubin", "flashinfer-jit-cache")
# What PROBE["compiles"] names -> its package.
_MADE_BY = {"cute-dsl": "nvidia-cutlass-dsl", "cutile": "cuda-tile", "triton": "triton"}


class Attribution:
    """The inputs of the rows of one report, on the machine that it was made on."""

    def __init__(
        self,
        facts: Facts,
        kb: KnowledgeBase,
        specs: tuple[ProbeSpec, ...],
        uses: Mapping[Key, VllmUse | None],
        *,
        imports: Mapping[str, tuple[str, ...]],
    ) -> None:
        """imports: the groups of what the imports load and ask for."""
        self._facts = facts
        self._specs = {spec.id: spec for spec in specs}
        self._features = {feature.id: feature for feature in kb.features}
        self._uses = uses
        self._flashinfer = facts.flashinfer if isinstance(facts.flashinfer, FlashInfer) else None
        self._python = PythonFiles(Path(self._flashinfer.root)) if self._flashinfer else None
        self.groups: dict[str, tuple[str, ...]] = {}
        self._imports = imports

    def of(
        self, row: FeatureRow, outcomes: Iterable[Outcome], *, taken: AbstractSet[str] = frozenset()
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Inputs and groups of a row with these outcomes; `groups` then has those groups.

        taken: the imports that the lock has rows of. What they load is theirs; without them it is every row's own.
        """
        told = tuple(outcomes)
        specs = tuple(self._specs[one.probe] for one in told if one.probe in self._specs)
        found = Names()
        found.add(*always(row.feature, (one.probe for one in told)))
        found.files("torch", _TORCH_FILES)
        found.packages(name for spec in specs for name in spec.requires.packages)
        found.packages(_MADE_BY[tool] for spec in specs for tool in spec.compiles if tool in _MADE_BY)
        use = self._uses.get(key_of(row.feature, row.sm))
        self._add_vllm(found, use)
        ranks = max((spec.gpus for spec in specs), default=0)
        if ranks:
            found.add("driver", *gpus(row.sm, specs))
            self._add_libraries(found, ranks)
        groups = self._add_imports(found, imports_of(specs) - (frozenset() if is_import(row.feature) else taken))
        if self._python is not None and any(map(needs_flashinfer, specs)):
            groups.append(self._add_python(found, row.feature, specs, use))
            groups += self._add_modules(found, specs, told)
        return found.sorted(), tuple(sorted(groups))

    def _add_imports(self, found: Names, imports: AbstractSet[str]) -> list[str]:
        """The groups of what imports load; how Python starts and what it is told are the row's own."""
        if not imports:
            return []
        found.add("startup")
        found.variables(_START_VARIABLES)
        used = {loads_group(name) for name in imports}
        self.groups.update({group: names for group, names in self._imports.items() if group in used})
        return sorted(used)

    def _add_libraries(self, found: Names, ranks: int) -> None:
        names = (name for name in self._facts.libraries if name != "cuda" and (name != "nccl" or ranks > 1))
        found.add(*(f"library:{name}" for name in names))
        if ranks > 1:
            found.variables(_RANK_VARIABLES)

    def _add_vllm(self, found: Names, use: VllmUse | None) -> None:
        """The files of vLLM that name what it calls, and the variables that turn the call on or off."""
        if use is None:
            return
        actions = (*use.enable, *use.avoid)
        found.variables(action.setting for action in actions if action.setting and not action.setting.startswith("-"))
        entry = use.entry.rpartition(".")[2]
        found.files(VLLM, self._naming(entry) if entry and "." in use.entry else ())

    def _add_python(self, found: Names, feature: str, specs: tuple[ProbeSpec, ...], use: VllmUse | None) -> str:
        """The group of Python files that the row goes through; what these name is the row's own."""
        assert self._python is not None, "BUG: there is no FlashInfer to read"  # noqa: S101 - for the type checker
        found.add(f"package:{FLASHINFER}", *(f"package:{name}" for name in _COMPANIONS))
        group = f"python:{feature}"
        known = self._features.get(feature)
        if known is not None and known.entry == (FLASHINFER.partition("-")[0],):
            self.groups[group] = (f"package:{FLASHINFER}:**.py",)
            found.packages(("apache-tvm-ffi",))
            found.add("workspace")
            found.variables(("FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_VERSION_CHECK"))
            return group
        paths = self._python.closure(_dotted(known, specs, use))
        root = Path(self._flashinfer.root) if self._flashinfer else Path()
        names = Names()
        names.files(FLASHINFER, (path.relative_to(root).as_posix() for path in paths))
        names.files(FLASHINFER, (f"data/csrc/{name}" for name in self._python.templates(paths)))
        names.add(*self.groups.get(group, ()))  # of another GPU, for which vLLM may enter by another name
        self.groups[group] = names.sorted()
        found.variables(name for name in self._python.variables(paths) if not WITHOUT_EFFECT.search(name))
        found.packages(self._python.distributions(paths))
        if any(path.name == "artifacts.py" for path in paths):
            found.add("cubins")
        return group

    def _add_modules(self, found: Names, specs: tuple[ProbeSpec, ...], told: tuple[Outcome, ...]) -> list[str]:
        """The groups of the modules that nvcc compiled; libraries and what compiles are the row's own."""
        modules = {spec.id: spec.module for spec in specs if spec.has_build}
        compiled: set[str] = set()
        for cell, declared in ((cell, modules.get(one.probe, "")) for one in told for cell in _with_module(one)):
            names = cell.modules or self._cached(declared)
            where = cell.module_from.split(", ")
            if "jit-cache" in where and self._flashinfer:
                brought = [name for name in names if name in self._flashinfer.jit_cache_modules]
                found.add(*(f"jit-cache:{name}" for name in brought))
                names = tuple(name for name in names if name not in brought)
            if {"cache", "built", "subset"}.intersection(where):
                compiled.update(names)
                found.add(*(f"cache:{name}" for name in names if self._is_whole(cell, name)))
        if compiled:
            found.add("nvcc", "cccl", "host-compiler", "ninja", *(f"toolkit:{tool}" for tool in _TOOLS))
            found.variables(_BUILD_VARIABLES)
            found.packages(("apache-tvm-ffi",))
        for name in compiled:
            self.groups.setdefault(f"module:{name}", self._sources(name))
        return [f"module:{name}" for name in compiled]

    def _cached(self, declared: str) -> tuple[str, ...]:
        """Of an older report, which names no modules: the one that the probe declares, and those that go on with it."""
        cached = self._flashinfer.cached_modules if self._flashinfer else ()
        longer = tuple(name for name in cached if declared and name.startswith(declared))
        return (declared,) if declared in cached or (declared and not longer) else longer

    def _is_whole(self, cell: CellOutcome, name: str) -> bool:
        """Whether the library that was loaded lies in the cache; built in scratch folders or in part, it does not."""
        return cell.module_from != "subset" and self._flashinfer is not None and name in self._flashinfer.cached_modules

    def _sources(self, module: str) -> tuple[str, ...]:
        """FlashInfer's files that a module is compiled from; all sources where no log tells."""
        names = Names()
        flashinfer = self._flashinfer
        if flashinfer is None:
            return ()
        cache = flashinfer.cache_dir
        read = () if isinstance(cache, Missing) else sources(Path(cache) / "cached_ops", module)
        inside = _below(read, flashinfer.root)
        foreign = {folder for path in inside for folder in _FOREIGN if path.startswith(folder)}
        names.files(FLASHINFER, (path for path in inside if not path.startswith(_FOREIGN)))
        names.files(FLASHINFER, foreign if inside else _ALL_SOURCES)
        return names.sorted()

    def _naming(self, entry: str) -> tuple[str, ...]:
        """The files of vLLM that name a function or class of FlashInfer."""
        return tuple(sorted(path for path, text in self._calling.items() if entry in text))

    @functools.cached_property
    def _calling(self) -> dict[str, str]:
        """Every file of vLLM that names flashinfer, by its path below the package."""
        if isinstance(self._facts.vllm, Missing):
            return {}
        root = self._facts.vllm.root
        found = {}
        for path in _listed(root):
            text = read_text(Path(path))
            if isinstance(text, str) and "flashinfer" in text:
                found[os.path.relpath(path, root)] = text
        return found


def _listed(root: str) -> list[str]:
    """Up to the first folder that may not be looked into, as other readers of the package have it."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        found.extend(python_files(root))
    return found


def _with_module(outcome: Outcome) -> tuple[CellOutcome, ...]:
    """The cells that loaded a module; of an outcome that does not tell, all of them, as if it was in the cache."""
    told = tuple(cell for cell in outcome.cells if cell.module_from)
    return told or tuple(replace(cell, module_from="cache") for cell in outcome.cells)


def _below(paths: Iterable[str], root: str) -> list[str]:
    """Those of the paths that lie below the package, from there on; it may be reached through a link, as lib64 is."""
    roots = {root, os.path.realpath(root)}
    return [os.path.relpath(path, one) for path in paths for one in roots if Path(path).is_relative_to(one)]


def _dotted(feature: Feature | None, specs: tuple[ProbeSpec, ...], use: VllmUse | None) -> set[str]:
    """The names of FlashInfer by which vLLM and the probes enter it."""
    names = {*(feature.entry if feature else ()), *([use.entry] if use is not None and use.entry else [])}
    for spec in specs:
        text = read_text(Path(spec.path))
        names |= {*spec.requires.symbols, *(() if isinstance(text, Missing) else names_in_probe(text))}
    return names
