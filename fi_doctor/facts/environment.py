"""Variables by allow-list: what decides how kernels are built and chosen is kept, secrets never are."""

from __future__ import annotations

from collections.abc import Mapping

from fi_doctor.model.secrets import HIDDEN, is_secret

_LONGEST = 4096  # characters kept of a value
_PREFIXES = (
    "CCACHE_",
    "CONDA_",
    "CUBLAS_",
    "CUBLASLT_",
    "CUDA_",
    "CUDNN_",
    "CUTE_DSL_",
    "CUTLASS_",
    "DG_",
    "FLASHINFER_",
    "FLASH_ATTN",
    "GLOO_",
    "HF_",
    "LD_",
    "NCCL_",
    "NINJA",
    "NVCC_",
    "NVIDIA_",
    "NVSHMEM_",
    "NVTE_",
    "OMP_",
    "PYTHON",
    "PYTORCH_",
    "SGLANG_",
    "SGL_",
    "TENSORRT_",
    "TILELANG_",
    "TLLM_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "TRTLLM_",
    "TRT_LLM_",
    "TVM_",
    "UCX_",
    "VLLM_",
    "XDG_",
)
_NAMES = frozenset(
    {
        "CC",
        "CFLAGS",
        "CMAKE_PREFIX_PATH",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "CPPFLAGS",
        "CUDACXX",
        "CUDAFLAGS",
        "CUDAHOSTCXX",
        "CXX",
        "CXXFLAGS",
        "C_INCLUDE_PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LDFLAGS",
        "LIBRARY_PATH",
        "LOCAL_RANK",
        "MAKEFLAGS",
        "MAX_JOBS",
        "NO_COLOR",
        "PATH",
        "RANK",
        "TMPDIR",
        "VIRTUAL_ENV",
        "WORLD_SIZE",
    }
)
_IMAGE_PREFIXES = ("NV_CUDA_", "VLLM_BUILD_", "VLLM_IMAGE_")
_IMAGE_NAMES = frozenset(
    {
        "CUDA_DRIVER_VERSION",
        "CUDA_VERSION",
        "NVIDIA_BUILD_ID",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_PRODUCT_NAME",
        "NVIDIA_PYTORCH_VERSION",
        "NVIDIA_SGLANG_VERSION",
        "NVIDIA_TENSORRT_LLM_VERSION",
        "NVIDIA_TRITON_SERVER_VERSION",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_VLLM_VERSION",
        "NV_CUDNN_VERSION",
        "NV_LIBNCCL_PACKAGE_VERSION",
        "PYTORCH_BUILD_VERSION",
        "PYTORCH_VERSION",
        "TENSORRT_VERSION",
        "TRT_LLM_VER",
    }
)


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that we know to matter, sorted by name, with secrets replaced and control characters made visible."""
    kept = (name for name in environ if name in _NAMES or name.startswith(_PREFIXES))
    return {neutralise(name): shown(name, environ[name]) for name in sorted(kept)}


def read_image(environ: Mapping[str, str]) -> dict[str, str]:
    """What the image says of itself, such as NVIDIA_PYTORCH_VERSION; empty when it says nothing."""
    kept = (name for name in environ if name in _IMAGE_NAMES or name.startswith(_IMAGE_PREFIXES))
    return {name: shown(name, environ[name]) for name in sorted(kept) if environ[name]}


def shown(name: str, value: str) -> str:
    """The value as it may be shown."""
    if is_secret(name, value):
        return HIDDEN
    return neutralise(value)


def neutralise(text: str) -> str:
    """The text with everything that a terminal or an encoder could stumble over made visible, and not too long."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text) - _LONGEST} more characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
