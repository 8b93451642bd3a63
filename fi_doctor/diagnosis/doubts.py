"""What about a model and its deployment vLLM refuses, and what may change a choice in a way that is not known. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Deployment, Facts, Missing, Package, ServedModel, Vllm
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Effect
from fi_doctor.model.numbers import whole
from fi_doctor.model.traits import SAMPLER

# What else may change a choice, which the table does not know: globs of options and variables -> operators.
MAY_CHANGE = {
    "--limit-mm-per-prompt": ("attention",),
    "--language-model-only": ("attention",),
    "--attention-config*": ("attention",),
    "--block-size": ("attention",),
    "--calculate-kv-scales": ("attention",),
    "--config": ("all2all", "allreduce", "allreduce_fusion", "attention", "linear", "mixer", "moe", "sampling"),
    "--decode-context-parallel-size": ("attention",),
    "--disable-sliding-window": ("attention",),
    "--distributed-executor-backend": ("allreduce", "allreduce_fusion"),
    "--kda-*-backend": ("mixer",),
    "--kv-cache-dtype-skip-layers": ("attention",),
    "--kv-transfer-config*": ("attention",),
    "--mamba-*": ("mixer",),
    "--model-impl": ("attention", "moe", "linear", "mixer"),
    "--nnodes": ("allreduce", "allreduce_fusion", "all2all"),
    "--performance-mode": ("attention", "moe", "linear"),
    "--prefill-context-parallel-size": ("attention",),
    "--runner": ("attention", "sampling"),
    "--convert": ("attention", "sampling"),
    "--spec-*": ("attention", "sampling"),
    "--additional-config*": ("mixer",),
    "--dtype": ("attention", "moe", "linear"),
    "--gdn-prefill-backend": ("mixer",),
    "--hf-overrides": ("attention", "moe", "linear", "sampling"),
    "--kernel-config*": ("moe", "linear"),
    "--linear-backend": ("linear",),
    "--logprobs-mode": ("sampling",),
    "--quantization*": ("moe", "linear"),
    "--speculative-config*": ("attention", "sampling"),
    "--compilation-config*": ("allreduce_fusion",),
    "--optimization-level": ("allreduce_fusion",),
    "--disable-custom-all-reduce": ("allreduce",),
    "VLLM_ATTENTION_BACKEND": ("attention",),
    "VLLM_USE_TRTLLM_*ATTENTION": ("attention",),
    "VLLM_FLASH_ATTN_VERSION": ("attention",),
    "VLLM_*FLASHINFER_PREFILL": ("attention",),
    "VLLM_USE_FLASHINFER_MOE_*": ("moe",),
    "VLLM_FLASHINFER_MOE_BACKEND": ("moe",),
    "VLLM_MXFP4_*": ("moe",),
    "VLLM_*DEEP_GEMM*": ("moe", "linear"),
    "VLLM_TEST_FORCE_FP8_MARLIN": ("moe", "linear"),
    "VLLM_NVFP4_GEMM_BACKEND": ("linear",),
    "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER": ("linear",),
    "VLLM_DISABLED_KERNELS": ("linear",),
    SAMPLER: ("sampling",),
    "VLLM_*ALLREDUCE*": ("allreduce", "allreduce_fusion"),
    "VLLM_ALL2ALL_BACKEND": ("all2all",),
    "VLLM_BATCH_INVARIANT": ("allreduce", "allreduce_fusion", "attention", "linear", "moe", "sampling"),
}
# Of these the table asks, where they are set on the machine; what a file sets for the server it does not know.
ASKED = ("VLLM_BATCH_INVARIANT", SAMPLER)
_ALL = ("attention", "linear", "mixer", "moe")
# Globs of fields of config.json -> the operators whose kernel depends on them; the first that matches counts.
_DECIDE = {
    "config.json": (),  # how the file is encoded
    "*config_groups*": ("linear", "moe"),
    "*kv_cache*": ("attention",),
    "*quantization_config*": ("attention", "linear", "moe"),
    "*compression_config*": ("attention", "linear", "moe"),
    # How many layers have experts, how positions are scaled, what is drafted: no choice asks.
    "*moe_layer*": (),
    "*sparse_step": (),
    "*mlp_only_layers": (),
    "*dense_replace": (),
    "*rope_*": (),
    "*num_nextn_predict_layers": (),
    "*mtp*": (),
    "*expert*": ("moe",),
    "*moe_*": ("moe",),
    "*dtype": _ALL,
    "*architectures": _ALL,
    "*model_type": _ALL,
}
_OTHERS = ("attention", "mixer")  # sizes and kinds of layers
_ATTENDING = ("full", "window", "chunked", "mla", "sparse_mla")
_MLA = ("mla", "sparse_mla")
_WHEELS = re.compile(r"(?:cu|rocm)\d[\d.]*|cpu|xpu")  # what vLLM's own wheels have behind the +
_BE = {True: "is", False: "are"}
_CONFIG = "config.json"
_CUBINS = "VLLM_HAS_FLASHINFER_CUBIN"  # with which vLLM does not ask the network
# Options with which its file is not all that counts.
_OTHER_CONFIG = ("--config", "--hf-overrides", "--hf-config-path", "--config-format")


class Refusal(NamedTuple):
    """One reason. effect: FAILS where vLLM does not start, UNKNOWN where it may not."""

    effect: Effect
    why: str


def of_fields(model: ServedModel) -> dict[str, tuple[str, ...]]:
    """Fields that were not taken -> the operators of which no kernel is known then."""
    found = {f"{field} of the model's configuration": _decided_by(field) for field in model.unread}
    return {name: operators for name, operators in found.items() if operators}


def of_operators(unread: Mapping[str, tuple[str, ...]], choices: Iterable[Choice]) -> tuple[Refusal, ...]:
    """Fields that were not taken and without which the model does not seem to have what they tell of."""
    there = {choice.operator for choice in choices}
    told = {field: ", ".join(sorted({*operators} - there)) for field, operators in unread.items()}
    return tuple(
        Refusal(Effect.UNKNOWN, f"{field} makes no sense, and there may be {words}")
        for field, words in told.items()
        if words and not there & {*unread[field]}
    )


def refusals(model: ServedModel, deployment: Deployment) -> tuple[Refusal, ...]:
    """How the sizes of a model and of its deployment go together.

    Source: vllm/config/model.py, verify_with_parallel_config; vllm/distributed/utils.py, divide and get_pp_indices;
    the class Attention, vllm/attention/layer.py or model_executor/layers/attention/attention.py (0.14.1 to 0.33.0).
    """
    found = []
    tp, pp = deployment.tensor_parallel, deployment.pipeline_parallel
    attending = next((one for one in model.attention if one.kind in _ATTENDING and one.heads), None)
    is_sure = not any(flag in deployment.flags for flag in _OTHER_CONFIG) and not any(of_fields(model).values())
    if why := model.unread.get(_CONFIG):
        found.append(Refusal(Effect.FAILS if is_sure else Effect.UNKNOWN, f"{_CONFIG}: {why}"))
    if attending is not None and attending.heads % tp:
        why = f"the {attending.heads} attention heads cannot be divided among {tp} GPUs, which vLLM asks for"
        found.append(Refusal(Effect.FAILS if is_sure else Effect.UNKNOWN, why))
    elif attending is not None and attending.heads // tp % max(attending.kv_heads // tp, 1):
        why = f"{attending.heads} heads cannot be shared among {attending.kv_heads} of keys and values"
        found.append(Refusal(Effect.FAILS if is_sure else Effect.UNKNOWN, f"{why}, which vLLM asks for on each GPU"))
    elif attending is not None and attending.kind not in _MLA and not _divide(attending.kv_heads, tp):
        why = f"{attending.kv_heads} heads of keys and values neither divide nor are divided by {tp} GPUs"
        found.append(Refusal(Effect.UNKNOWN, f"{why}, which most models of vLLM ask for"))
    layers = sum(one.count for one in model.attention)
    if pp > layers:
        found.append(
            Refusal(
                Effect.UNKNOWN, f"{pp} stages of a pipeline for the {layers} layers that are told of leave some empty"
            )
        )
    return tuple(found)


def of_network(choice: Choice, model: ServedModel, facts: Facts) -> str:
    """Why FlashInfer may not be taken for attention with sinks though the table names it; "" where nothing hinders.

    Source: has_nvidia_artifactory, vllm/utils/flashinfer.py (0.14.1 to 0.33.0).
    """
    has_sinks = any(layers.sinks for layers in model.attention)
    if not (choice.operator == "attention" and choice.is_flashinfer and has_sinks):
        return ""
    if isinstance(facts.packages.get("flashinfer-cubin"), Package) or _switch(facts.environment.get(_CUBINS)):
        return ""
    return "without flashinfer-cubin vLLM takes it for sinks only if NVIDIA's server answers when it starts"


def of_gpus(deployment: Deployment, facts: Facts) -> str:
    """What is left open where the machine has fewer GPUs than the deployment needs; "" where it has them.

    The answer holds for others of their kind. Source: vllm/config/parallel.py, __post_init__ (0.14.1 to 0.33.0).
    """
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return ""
    seen = sum(not isinstance(gpu.cuda_index, Missing) for gpu in gpus)
    size = deployment.world_size
    needed = size * deployment.data_parallel
    if needed <= seen:
        return ""
    starts = "" if size <= seen else f"; with fewer than {size} vLLM starts only over Ray or several nodes"
    return f"whether there are {needed} GPUs of this kind for it, of which {seen} {_BE[seen == 1]} seen here{starts}"


def of_build(facts: Facts) -> str:
    """Why the installed vLLM is not the release whose version it has, as far as is known; "" where nothing says so.

    Of files that changed and kept their size only those that decide are seen (facts/contents.py), and of a package
    without a RECORD none.
    """
    package, vllm = facts.packages.get("vllm"), facts.vllm
    if not isinstance(package, Package) or isinstance(package.version, Missing):
        return ""
    if isinstance(vllm, Vllm) and vllm.altered:
        name, how = min(vllm.altered.items())
        others = f", and {len(vllm.altered) - 1} more" if len(vllm.altered) > 1 else ""
        return f"{name} is not as it was installed ({how}){others}"
    if package.editable:
        return f"it is installed from {package.location}, where it can be edited"
    if package.claims:
        return f"its metadata say {package.claims} and its files {package.version}"
    if (version := parse_version(package.version)) is None:
        return f"{package.version} is no version of a release"
    is_release = not version.is_prerelease and (version.local is None or _WHEELS.fullmatch(version.local))
    return "" if is_release else f"{package.version} is no version of a release"


def _switch(value: str | None) -> bool:
    return bool(whole(value or ""))


def _divide(heads: int, tp: int) -> bool:
    """Whether each GPU has as many, or each head is on as many GPUs."""
    return not heads or heads % tp == 0 or tp % heads == 0


def _decided_by(field: str) -> tuple[str, ...]:
    return next((found for glob, found in _DECIDE.items() if fnmatch.fnmatchcase(field, glob)), _OTHERS)
