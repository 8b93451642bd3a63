"""Examples for the rules on shared objects."""

from __future__ import annotations

import factory as make
from msgspec.structs import replace
from rule_examples import Example

from fi_doctor.model import Binaries, Binary, Facts

_SITE = make.SITE
_CORE = f"{_SITE}/vllm/_C_stable_libtorch.abi3.so"
_CACHE = "/home/user/.cache/flashinfer/0.7.2.post1/90a/cached_ops"


_IN_CACHE = make.flashinfer(cache_dir=_CACHE.removesuffix("/cached_ops"))


def binary(path: str, *units: str, owner: str = "vllm", **changes) -> Binary:
    base = Binary(path=path, owner=owner, units=dict.fromkeys(units, 3), ptx={}, needed=(), unresolved=())
    return replace(base, **changes)


def machine(*files: Binary, sm: int = 90, cuda: str = "13.0", unread: dict[str, str] | None = None, **changes) -> Facts:
    """A machine with one GPU on which these were read."""
    return make.facts(
        gpus=make.gpu_facts(make.gpu(sm=sm), cuda=cuda),
        packages={
            "vllm": make.package("vllm", "0.33.0", requires=("torch==2.14.0",)),
            "torch": "2.13.0",
            "apache-tvm-ffi": "0.1.2",
            "flashinfer-jit-cache": "0.7.2.post1+cu130",
        },
        binaries=Binaries(files=files, unread=unread or {}),
        **changes,
    )


def _core(*units: str, sm: int = 90, cuda: str = "13.0", **changes) -> Facts:
    return machine(binary(_CORE, *units, **changes), sm=sm, cuda=cuda)


def _torch(*units: str, sm: int) -> Facts:
    return machine(binary(f"{_SITE}/torch/lib/libtorch_cuda.so", *units, owner="torch"), sm=sm)


def _cached(*units: str, **changes) -> Facts:
    return machine(binary(f"{_CACHE}/norm/norm.so", *units, owner="flashinfer cache", **changes))


def _jit_cache(*units: str, **changes) -> Facts:
    path = f"{_SITE}/flashinfer_jit_cache/jit_cache/norm/norm.so"
    return machine(binary(path, *units, owner="flashinfer-jit-cache", **changes))


def _named(*units: str, sm: int) -> Facts:
    return machine(binary("/opt/my ext/kernels.so", *units, owner="--binary"), sm=sm)


_PTX = {"compute_80": "9.0"}


def _moved_torch(cuda: str, sm: int) -> Facts:
    """Of one that is not here no library was read."""
    gpus, tools = make.gpu_facts(make.gpu(sm=sm)), make.toolkit(torch_cuda=cuda)
    return make.facts(gpus=gpus, toolkit=tools, binaries=make.missing("it is of a move that was not made"))


EXAMPLES: dict[str, Example] = {
    "cached-module-needs-other-tvm-ffi": Example(
        _cached("sm_90a", unresolved=("TVMFFIHandleInitOnce",)),
        _jit_cache("sm_90a", unresolved=("TVMFFIHandleInitOnce",)),
    ),
    "jit-cache-needs-other-tvm-ffi": Example(
        _jit_cache("sm_90a", unresolved=("TVMFFIHandleInitOnce",)),
        _jit_cache("sm_90a", unresolved=make.missing("/x/tvm_ffi/lib: No such file or directory")),
    ),
    "cached-module-cannot-be-loaded": Example(
        machine(unread={f"{_CACHE}/norm/norm.so": "it is empty"}, flashinfer=_IN_CACHE),
        machine(unread={"/c/0.6.13/90a/cached_ops/norm/norm.so": "it is empty"}, flashinfer=_IN_CACHE),
    ),
    "cached-module-needs-other-cudart": Example(_cached("sm_90a", needed=("libcudart.so.12",)), _cached("sm_90a")),
    # A cubin of the same major runs from its minor on, and not below.
    "vllm-binary-lacks-this-gpu": Example(_core("sm_86 sm_90a", sm=80), _core("sm_80 sm_90a", sm=86)),
    "vllm-binary-only-by-ptx-jit": Example(
        _core("sm_90 compute_80", "sm_100f", sm=110, ptx=_PTX), _core("sm_90 compute_80", "sm_100f", sm=103, ptx=_PTX)
    ),
    # CUDA 13.0 brought PTX 9.0, so a driver of 12.9 does not compile it.
    "vllm-ptx-newer-than-driver": Example(
        machine(
            binary(f"{_SITE}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "sm_80 compute_80", ptx=_PTX),
            sm=120,
            cuda="12.9",
        ),
        machine(
            binary(f"{_SITE}/vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "sm_80 compute_80", ptx=_PTX),
            sm=120,
            cuda="13.0",
        ),
    ),
    "vllm-kernels-for-sibling-gpu": Example(
        _core("sm_90 sm_120", "sm_120a", sm=121), _core("sm_90 sm_120", "sm_120f", sm=121)
    ),
    "torch-binary-lacks-this-gpu": Example(_torch("sm_75 sm_80", "sm_90a", sm=120), _torch("sm_80 sm_120", sm=121)),
    "torch-cuda-older-than-gpu": Example(_moved_torch("12.6", sm=100), _moved_torch("12.8", sm=103)),
    # One for an architecture of FlashInfer's list may serve another GPU; 100a is not in the list.
    "cached-module-for-other-gpu": Example(_cached("sm_100a"), _cached("sm_90a")),
    "jit-cache-lacks-this-gpu": Example(_jit_cache("sm_100a", "sm_120f"), _jit_cache("sm_100a", "sm_80 sm_90")),
    "named-binary-lacks-this-gpu": Example(_named("sm_90a", sm=100), _named("sm_90a", sm=90)),
    "vllm-needs-other-cudart": Example(
        _core("sm_90", needed=("libcudart.so.12",)), _core("sm_90", needed=("libcudart.so.13",))
    ),
    "vllm-built-for-other-torch": Example(
        _core("sm_90", unresolved=("torch_exception_get_what",)), _core("sm_90", unresolved=make.missing("cut off"))
    ),
    "extension-built-for-other-torch": Example(
        machine(binary(f"{_SITE}/vllm/_qutlass_C.abi3.so", "sm_100f", unresolved=("torch_new_stable_ivalue",))),
        machine(binary(f"{_SITE}/vllm/_qutlass_C.abi3.so", "sm_100f")),
    ),
}
