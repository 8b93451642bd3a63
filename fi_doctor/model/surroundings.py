"""Compilers and what lies around the packages: nvcc and its host compiler, other distributions, Triton's ptxas, Ray."""

from __future__ import annotations

from pathlib import PurePosixPath

from fi_doctor.model.base import Data, Missing


class Site(Data, frozen=True, tag_field="kind", tag="site"):
    """What the folders of sys.path hold beside the packages that are looked at. Source: their listings."""

    leftovers: tuple[str, ...] = ()  # folders that an interrupted pip renamed, "/venv/.../~lashinfer"
    broken: dict[str, str] = {}  # watched distribution without METADATA, or without pip's RECORD -> its folder
    cuda_majors: dict[str, int] = {}  # distribution whose name says its CUDA, "cupy-cuda12x" -> 12
    by_uv: bool = False  # whether uv made the environment
    has_ray: bool = False  # whether Ray is installed
    # Every distribution on sys.path -> its version, by the name of its metadata; "" where that does not tell.
    installed: dict[str, str] = {}
    unlisted: str = "they were not listed"  # why it is not known what else is installed; "" where all was listed
    by_pth: dict[str, str] = {}  # folder of sys.path -> the .pth file that names it, "/site/zz.pth"
    # Folder of vLLM, torch or FlashInfer whose Python files were not compiled: no __pycache__ of the examined Python.
    uncompiled: tuple[str, ...] = ()
    # Package of vLLM's that lies in the current folder, "vllm" -> its __init__.py, and is not the one on sys.path.
    here: dict[str, str] = {}


class HostLimits(Data, frozen=True, tag_field="kind", tag="host-limits"):
    """The host compiler that nvcc calls, and which it takes by crt/host_config.h of its toolkit."""

    source: str  # that header
    newest_gcc: int | Missing  # major, inclusive
    newest_clang: int | Missing
    compiler: str | Missing  # that nvcc calls: -ccbin of its options, CC, NVCC_CCBIN, else g++ on PATH
    named_by: str  # "FLASHINFER_EXTRA_CUDAFLAGS", "CC", "NVCC_CCBIN", "PATH", ...
    family: str | Missing  # "gcc", "clang"
    major: int | Missing
    checked: bool  # False: -allow-unsupported-compiler is among nvcc's options


class Nvcc(Data, frozen=True, tag_field="kind", tag="nvcc"):
    """One nvcc. Source: `nvcc --version` and `nvcc --list-gpu-code`."""

    path: str  # as found
    resolved: str  # after symlinks
    found_by: str  # "CUDA_HOME", "CUDA_PATH", "PATH", "/usr/local/cuda*", "FLASHINFER_NVCC"
    version: str | Missing  # release, "13.0"
    build: str | Missing  # "13.0.88"
    architectures: tuple[str, ...] | Missing  # "sm_90", as nvcc lists them: without a and f variants

    @property
    def home(self) -> str:
        """The toolkit that CUDA_HOME would name: FlashInfer calls $CUDA_HOME/bin/nvcc; "" where it lies in none."""
        path = PurePosixPath(self.resolved)
        return str(path.parent.parent) if path.parts[-2:] == ("bin", "nvcc") else ""


class OtherToolkit(Data, frozen=True):
    """A toolkit that the JIT does not take, as FlashInfer's build lines would find it. Source: its files."""

    home: str  # what CUDA_HOME would name
    nvcc: str  # path of its nvcc, which is among the others
    lacks: tuple[str, ...]  # headers and libraries that every module needs: "cuda_runtime.h", "libcudart.so"
    modules_lack: tuple[str, ...]  # those that only some modules need
    cccl: str | Missing  # version of its CCCL headers


class Ptxas(Data, frozen=True, tag_field="kind", tag="ptxas"):
    """A ptxas that Triton calls. Source: its --version."""

    path: str
    found_by: str  # "TRITON_PTXAS_PATH", "triton"
    version: str | Missing  # release, "12.8"


class TritonPtxas(Data, frozen=True, tag_field="kind", tag="triton-ptxas"):
    """Which ptxas the installed Triton takes. Source: triton/backends/nvidia/bin and the variables that replace it."""

    common: Ptxas | Missing
    blackwell: Ptxas | Missing  # what newer Tritons take from SM100 on; Missing (absent) where they have no such file


class RayCopies(Data, frozen=True, omit_defaults=True, tag_field="kind", tag="ray-copies"):
    """Which variables the installed vLLM hands to Ray workers, beside those that envs.py registers.

    Source: vllm/ray/ray_env.py.
    """

    prefixes: tuple[str, ...]  # of the release; empty up to 0.14.1
    names: tuple[str, ...]
    source: str  # "ray/ray_env.py:36"
    # What the user's ray_non_carry_over_env_vars.json holds back, whatever else names it.
    kept_back: tuple[str, ...] = ()
