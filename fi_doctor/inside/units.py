"""What of a module one call needs: of the CUTLASS MoE module for SM90, of attention's, of the gated delta rule's.

Of the MoE module it is named by the types of activations and weights. The first tactic of both GEMMs is the one that is
compiled; it is also what a call takes that was not tuned. Read in FlashInfer 0.5.2 to 0.7.2: cutlass_heuristic.cpp
(get_candidate_configs_sm90: the order of the tactics), moe_gemm_template_dispatch.h (getTmaWarpSpecializedConfigs,
calcMaxWorkspaceSize), jit/fused_moe.py (the sources), jit/attention/modules.py (gen_customize_batch_prefill_module: a
source for each mask, ragged and paged), jit/gdn.py, topk.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

from typing import NamedTuple


class Launcher(NamedTuple):
    """A function template that starts a kernel, of which the module has hundreds of instances."""

    function: str
    header: str  # that declares it, seen from the folder of the dispatchers
    answer: str  # C++: what an instance that is not compiled does when it is asked for the memory that it needs
    wanted: tuple[str, ...]  # regular expressions: the instances to compile, one each
    macro: str = ""  # that instantiates it, where the generated sources use one
    macro_as: dict[str, str] = {}  # noqa: RUF012 - never changed. Template parameter -> what it is, by the macro's own
    returns: str = "void"


class Fallback(NamedTuple):
    """A class template that starts kernels for older GPUs, of which the dispatcher instantiates dozens."""

    name: str
    header: str  # that defines it, seen from the folder of the dispatchers
    function: str  # its one static function
    types: dict[str, str]  # template parameter -> what it is in this part
    answer: str  # C++: what it does when it is asked whether it can run


class Units(NamedTuple):
    """The units of one call. Sources that no glob in `optional` names are compiled in any case."""

    optional: tuple[str, ...]
    needed: tuple[str, ...] = ()  # of the optional ones
    instances: dict[str, str] = {}  # noqa: RUF012 - never changed. Source -> the class template to keep of it
    dispatcher: str = ""  # the source that calls the launchers
    launchers: tuple[Launcher, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()


_OPTIONAL = ("*.generated.cu", "moe_gemm_kernels_*.cu", "fp8_blockscale_gemm.cu")
_RUNNERS = "cutlass_fused_moe_instantiation.cu"
_FP4 = r"(?:__nv_fp4_e2m1|Fp4Type|SafeFP4)"
_SHAPE = "cute::Shape<cute::Int<{}>, cute::Int<{}>, cute::Int<{}>>"


def _grouped(types: str, tile_k: int) -> Launcher:
    """Activations and weights of one type. A kernel that is not compiled asks for no workspace and has no occupancy."""
    return Launcher(
        function="tma_warp_specialized_generic_moe_gemm_kernelLauncher",
        header="launchers/moe_gemm_tma_ws_launcher.h",
        answer="if (workspace_size != nullptr) { *workspace_size = 0; return; } "
        "if (kernel_occupancy != nullptr) { *kernel_occupancy = 0; return; }",
        wanted=(rf"Sm90, {types}, (?:void, )?EpilogueOpDefault, NONE, 128, 16, {tile_k}, 1, 1, 1(?:, false){{2,4}}\)",),
        macro="INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM",
        macro_as={
            "Arch": "cutlass::arch::ArchTag_",
            "T": "DataType_",
            "WeightType": "WeightType_",
            "OutputType": "OutputType_",
            "EpilogueSchedule": "EpilogueSchedule_",
            "EpilogueTag": "tensorrt_llm::cutlass_extensions::EpilogueTag_",
            "FUSION": "TmaWarpSpecializedGroupedGemmInput::EpilogueFusion::FUSION_",
            "TileShape": _SHAPE.format("CTA_M_", "CTA_N_", "CTA_K_"),
            "ClusterShape": _SHAPE.format("CGA_M_", "CGA_N_", "CGA_K_"),
            "IsMXFPX": "MXFPX_",
            "DYNAMIC_CGA": "DYNAMIC_CGA_",
            "BIAS": "BIAS_",
            "SwapAB": "SWAP_AB_",
        },
    )


def _mixed(types: str) -> Launcher:
    """Weights of fewer bits than the activations. The second instance is the one that is asked for the workspace."""

    def instance(m: int, n: int, k: int, schedule: str) -> str:
        shapes = f"{_SHAPE.format(m, n, k)}, {_SHAPE.format(1, 1, 1)}"
        return (
            rf"<{types}, tensorrt_llm::cutlass_extensions::EpilogueOpDefault, {shapes}, "
            rf"cutlass::gemm::KernelTmaWarpSpecialized{schedule}, [\w:]+, [\w:]+> \("
        )

    return Launcher(
        function="sm90_generic_mixed_moe_gemm_kernelLauncher",
        header="launchers/moe_gemm_tma_ws_mixed_input_launcher.h",
        answer="if (workspace_size != nullptr) { *workspace_size = 0; return; } "
        "if (inputs.occupancy != nullptr) { *inputs.occupancy = 0; return; }",
        wanted=(instance(64, 16, 128, "Pingpong"), instance(128, 64, 256, "Cooperative")),
    )


def _for_ampere(dtype: str) -> Fallback:
    """Activations and weights of one type. Such a kernel runs on SM90, too, when a tactic of SM80 is asked for."""
    return Fallback(
        name="genericMoeGemmKernelLauncher",
        header="moe_gemm_template_dispatch.h",
        function="call",
        types={"T": dtype, "WeightType": dtype},
        answer="if (inputs.occupancy != nullptr) { *inputs.occupancy = 0; return; }",
    )


def _of(
    kernels: str,
    runner: str,
    gemm: str,
    *launchers: Launcher,
    also: tuple[str, ...] = (),
    fallbacks: tuple[Fallback, ...] = (),
) -> Units:
    """The units of one kind of experts: the file of its kernels, and the two class templates that are instantiated."""
    return Units(
        optional=_OPTIONAL,
        needed=(kernels, *also),
        instances={_RUNNERS: rf"CutlassMoeFCRunner<{runner}>", kernels: rf"MoeGemmRunner<{gemm}>"},
        dispatcher=kernels,
        launchers=launchers,
        fallbacks=fallbacks,
    )


_BF16, _FP8 = "__nv_bfloat16", "__nv_fp8_e4m3"
FUSED_MOE_90 = {
    "bf16": _of(
        "moe_gemm_kernels_bf16_bf16.cu",
        f"{_BF16}, {_BF16}",
        f"{_BF16}, {_BF16}, {_BF16}",
        _grouped(f"{_BF16}, {_BF16}, {_BF16}", 64),
        fallbacks=(_for_ampere(_BF16),),
    ),
    "fp8_per_tensor": _of(
        "moe_gemm_kernels_fp8_fp8.cu",
        f"{_FP8}, {_FP8}, {_BF16}",
        f"{_FP8}, {_FP8}, {_BF16}",
        _grouped(f"{_FP8}, {_FP8}, {_BF16}", 128),
        fallbacks=(_for_ampere(_FP8),),
    ),
    # DeepGEMM, which NVRTC compiles at the first call, does the work; no launcher is called.
    "fp8_block": _of(
        "moe_gemm_kernels_bf16_fp8.cu",
        f"{_BF16}, {_FP8}, {_BF16}",
        f"{_BF16}, {_FP8}, {_BF16}",
        also=("fp8_blockscale_gemm.cu",),
    ),
    "mxfp4_bf16": _of(
        "moe_gemm_kernels_bf16_fp4.cu",
        f"{_BF16}, {_FP4}",
        f"{_BF16}, {_FP4}, {_BF16}",
        _mixed(f"{_BF16}, {_FP4}, {_BF16}"),
    ),
}
# Masks: 0 none, 1 causal, 2 custom, 3 of several items. No call of vLLM's takes the last two.
BATCH_PREFILL = {
    "no_mask_or_causal": Units(optional=("*_kernel_mask_[23].cu",)),
    "paged": Units(optional=("*_ragged_*kernel_mask_?.cu", "*_paged_*kernel_mask_[23].cu")),
    "paged_causal": Units(optional=("*_ragged_*kernel_mask_?.cu", "*_paged_*kernel_mask_[023].cu")),
    "ragged": Units(optional=("*_paged_*kernel_mask_?.cu", "*_ragged_*kernel_mask_[23].cu")),
}
# From FlashInfer 0.7 on. No call that asks for sorted or for the same results each time takes CUB.
TOPK = {"without_cub": Units(optional=("cub_topk.cu",))}
# The gated delta rule: a source for each type and, 1 or 0, g more heads of values than of queries, b and a gates, i a
# first state, c checkpoints (from FlashInfer 0.6.8). vLLM calls bf16 with both gates and a first state.
GDN_PREFILL_90 = {
    "as_vllm": Units(
        optional=(
            "gdn_prefill_kernel_half_*.cu",
            "gdn_prefill_kernel_bf16_g?b0*.cu",
            "gdn_prefill_kernel_bf16_g?b1a0*.cu",
            "gdn_prefill_kernel_bf16_g?b1a1i0*.cu",
            "gdn_prefill_kernel_bf16_*c1.cu",
        )
    ),
}


def units_of(module: str) -> dict[str, Units]:
    """What is known of a module, by the names of its parts; nothing of most."""
    if module == "fused_moe_90":
        return FUSED_MOE_90
    if module == "gdn_prefill_sm90":
        return GDN_PREFILL_90
    if module == "topk":
        return TOPK
    return BATCH_PREFILL if module.startswith("batch_prefill_") else {}


def few(module: str) -> int:
    """As many objects as its parts have at least: where no more is left of the whole, the whole is compiled."""
    return {"fused_moe_90": 20, "topk": 2}.get(module, 4)
