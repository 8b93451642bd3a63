"""Asks the selectors that belong to no layer: sampling, all-reduce with and without fusion, and all-to-all.

Loaded by selecting.py, beside which it lies. No process group is made: links between GPUs and workspaces are tried by
vLLM at start-up only, and that is said.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any


def questions(config: Any, watch: Any) -> tuple[tuple[str, Callable[[], list[dict[str, Any]]]], ...]:
    """What is asked of vLLM's config, by operator."""
    return (
        ("sampling", lambda: _sampling(config, watch)),
        ("allreduce_fusion", lambda: _fusion(config)),
        ("allreduce", lambda: _allreduce(config)),
        ("all2all", lambda: _all2all(config)),
    )


def _sampling(config: Any, watch: Any) -> list[dict[str, Any]]:
    module = importlib.import_module("vllm.v1.sample.ops.topk_topp_sampler")
    before = len(watch.log)
    kind = module.TopKTopPSampler
    takes = inspect.signature(kind.__init__).parameters
    mode = config.model_config.logprobs_mode
    sampler = kind(mode) if "logprobs_mode" in takes else kind()
    forward = getattr(sampler.forward, "__name__", "")
    # forward_cuda calls FlashInfer; forward_native is torch (and, in newer releases, Triton).
    chosen = "FLASHINFER" if forward == "forward_cuda" else "PYTORCH"
    said = [heard["text"] for heard in watch.log[before:]]
    line = inspect.getsourcelines(kind.__init__)[1]
    return [
        {
            "chosen": chosen,
            "layers": "all",
            "held": {"forward": forward},
            "rejected": []
            if chosen == "FLASHINFER"
            else [{"name": "FLASHINFER", "why": " ".join(said) or "off by default"}],
            "how": f"asked vLLM's selector: vllm/v1/sample/ops/topk_topp_sampler.py:{line}",
        }
    ]


def _fusion(config: Any) -> list[dict[str, Any]]:
    """Whether the compile pass that fuses all-reduce with RMSNorm would be installed, and up to which size."""
    passes = config.compilation_config.pass_config
    on = bool(getattr(passes, "fuse_allreduce_rms", getattr(passes, "enable_fi_allreduce_fusion", False)))
    tp = config.parallel_config.tensor_parallel_size
    mode = getattr(config.compilation_config, "mode", getattr(config.compilation_config, "level", None))
    compiled = int(mode) == 3 if mode is not None else False
    size: Any = None
    if tp > 1 and hasattr(passes, "flashinfer_max_size"):
        size = passes.flashinfer_max_size(tp)
    why = ""
    if tp <= 1:
        why = "tensor parallel size is 1"
    elif not on:
        why = "PassConfig.fuse_allreduce_rms is off for this configuration"
    elif not compiled:
        why = f"the model is not compiled (mode {mode}), and the fusion is a compile pass"
    elif not size:
        why = "vLLM has no size limit for this GPU and number of ranks"
    return [
        {
            "chosen": "none" if why else "FLASHINFER",
            "layers": "all",
            "held": {"fuse_allreduce_rms": str(on), "mode": str(mode), "max_size": str(size)},
            "rejected": [{"name": "FLASHINFER", "why": why}] if why else [],
            "how": "read from vLLM's own config after its defaults were applied"
            + (f"; {_where(passes.flashinfer_max_size)}" if hasattr(passes, "flashinfer_max_size") else ""),
        }
    ]


def _allreduce(config: Any) -> list[dict[str, Any]]:
    """Which all-reduces are on and could be used by their tables; links between GPUs are not known here."""
    tp = config.parallel_config.tensor_parallel_size
    if tp <= 1:
        return [{"chosen": "none", "layers": "all", "rejected": [], "how": "tensor parallel size is 1"}]
    envs = importlib.import_module("vllm.envs")
    rejected, order = [], []
    flashinfer = _flashinfer_allreduce(config, envs, tp)
    if flashinfer:
        rejected.append({"name": "FLASHINFER", "why": flashinfer})
    else:
        order.append("FLASHINFER")
    custom = not config.parallel_config.disable_custom_all_reduce
    sizes = _custom_sizes()
    if custom and tp in sizes:
        order.append("CUSTOM")
    else:
        why = "disable_custom_all_reduce is set" if not custom else f"custom all-reduce serves {sizes} ranks, not {tp}"
        rejected.append({"name": "CUSTOM", "why": why})
    order.append("PYNCCL")
    how = (
        "read from vLLM's variables, config and tables; the workspace and the links between GPUs are tried at start-up"
    )
    return [{"chosen": order[0], "valid": order, "layers": "all", "rejected": rejected, "how": how}]


def _flashinfer_allreduce(config: Any, envs: Any, tp: int) -> str:
    """Why FlashInfer's plain all-reduce would not serve; "" when it would be tried."""
    try:
        on = envs.VLLM_ALLREDUCE_USE_FLASHINFER
    except AttributeError:
        return "this release has none"
    if not on:
        return "VLLM_ALLREDUCE_USE_FLASHINFER is off"
    try:
        module = importlib.import_module("vllm.distributed.device_communicators.flashinfer_all_reduce")
    except ImportError as error:
        return str(error)
    if not getattr(module, "fi_ar_available", True):
        return "FlashInfer or its comm module is not installed"
    limit = config.compilation_config.pass_config.flashinfer_max_size(tp)
    return "" if limit else f"no size limit for this GPU and {tp} ranks in vLLM's table"


def _custom_sizes() -> list[int]:
    module = importlib.import_module("vllm.distributed.device_communicators.custom_all_reduce")
    return list(module.CustomAllreduce._SUPPORTED_WORLD_SIZES)  # noqa: SLF001


def _all2all(config: Any) -> list[dict[str, Any]]:
    parallel = config.parallel_config
    backend = getattr(parallel, "all2all_backend", None)
    if (
        not parallel.enable_expert_parallel
        or parallel.data_parallel_size * getattr(parallel, "prefill_context_parallel_size", 1) <= 1
    ):
        why = "no experts are spread over data parallel ranks"
        return [{"chosen": "none", "layers": "experts", "rejected": [{"name": str(backend), "why": why}], "how": why}]
    how = "read from vLLM's own config after its checks (parallel_config.all2all_backend)"
    return [{"chosen": str(backend), "layers": "experts", "rejected": [], "how": how}]


def _where(method: Any) -> str:
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    return f"vllm/{code.co_filename.rpartition('/vllm/')[2]}:{code.co_firstlineno}" if code else ""
