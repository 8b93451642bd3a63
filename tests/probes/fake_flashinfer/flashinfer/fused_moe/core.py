# ruff: noqa: PLR0917, FBT002, A002 - these are the signatures of FlashInfer
import functools

from flashinfer.autotuner import AutoTuner
from flashinfer.faults import has
from flashinfer.fused_moe.experts import compute

BUILT = []  # the architectures whose module was compiled and loaded
RAN = []  # the tactics of both GEMMs of each call, counted from the first of its GEMM
GEMM1_TACTICS, GEMM2_TACTICS = 2, 4  # an id of GEMM 2 may be below the number of its tactics


@functools.cache
def get_cutlass_fused_moe_module(backend="100", use_fast_build=False):
    BUILT.append(backend)
    return Module()


class Native:
    """What module.init() returns. ids_are_absolute is how a version understands the ids of GEMM 2."""

    ids_are_absolute = False

    def __getattr__(self, name):
        if name == "get_valid_tactics_for_shape" and self.ids_are_absolute:
            return lambda _stage, _n, _k: range(GEMM1_TACTICS + GEMM2_TACTICS)
        raise AttributeError(name)

    def get_gemm1_tactic_count(self):
        return GEMM1_TACTICS

    def numbers(self, ids):
        """The tactics that run: counted from the first of each GEMM."""
        first, second = ids
        if second >= 0 and not self.ids_are_absolute and second < GEMM2_TACTICS:
            second += GEMM1_TACTICS
        if second >= 0 and not GEMM1_TACTICS <= second < GEMM1_TACTICS + GEMM2_TACTICS:
            raise RuntimeError(f"Invalid gemm2 profile id: {second}")
        return max(first, 0), max(second - GEMM1_TACTICS, 0)


class MoERunner:
    gemm_idx_for_tuning = None

    def __init__(self):
        self.fused_moe_runner = Native()

    def get_valid_tactics(self, inputs, profile):
        ids = range(GEMM1_TACTICS), range(GEMM1_TACTICS, GEMM1_TACTICS + GEMM2_TACTICS)
        return list(ids[self.gemm_idx_for_tuning - 1])


class Module:
    def cutlass_fused_moe(self, output, inputs, options):
        ids, runner = [], MoERunner()
        for gemm in (1, 2) if not has("tactics_not_asked_for") else ():
            runner.gemm_idx_for_tuning = gemm
            name = f"trtllm::fused_moe::gemm{gemm}"
            ids.append(AutoTuner.get().choose_one(name, [runner], None, list(inputs), gemm_idx=gemm)[1])
        RAN.append(runner.fused_moe_runner.numbers(ids or (-1, -1)))
        if has("tactic_refused") and 1 in RAN[-1]:
            raise RuntimeError("[TensorRT-LLM][ERROR] it does not fit\nand why")
        compute(output, inputs, options, RAN[-1])


def cutlass_fused_moe(
    input,
    token_selected_experts,
    token_final_scales,
    fc1_expert_weights,
    fc2_expert_weights,
    output_dtype,
    quant_scales,
    fc1_expert_biases=None,
    fc2_expert_biases=None,
    swiglu_alpha=None,
    swiglu_beta=None,
    swiglu_limit=None,
    tp_size=1,
    tp_rank=0,
    ep_size=1,
    ep_rank=0,
    output=None,
    use_deepseek_fp8_block_scale=False,
    use_w4_group_scaling=False,
    tune_max_num_tokens=8192,
):
    if use_deepseek_fp8_block_scale and has("gate_closed"):
        raise NotImplementedError("not for this CUDA")
    if has("module_not_asked_for"):
        return input
    module = get_cutlass_fused_moe_module("90")
    inputs = [input, token_selected_experts, token_final_scales]
    options = {
        "fc1": fc1_expert_weights,
        "fc2": fc2_expert_weights,
        "scales": quant_scales,
        "biases": (fc1_expert_biases, fc2_expert_biases),
        "largest_bucket": tune_max_num_tokens,
        "swiglu": (swiglu_alpha, swiglu_beta, swiglu_limit),
        "kind": kind_of(input, fc1_expert_weights, use_deepseek_fp8_block_scale, use_w4_group_scaling),
    }
    module.cutlass_fused_moe(output, inputs, options)
    return [output]


def kind_of(input, weights, is_block, is_w4):
    names = {
        ("bfloat16", "bfloat16", False, False): "bf16",
        ("float8_e4m3fn", "float8_e4m3fn", False, False): "fp8_per_tensor",
        ("bfloat16", "float8_e4m3fn", True, False): "fp8_block",
        ("bfloat16", "uint8", False, True): "mxfp4_bf16",
    }
    types = tuple(str(tensor.dtype).removeprefix("torch.") for tensor in (input, weights))
    key = (*types, is_block, is_w4)
    if key not in names:
        raise RuntimeError(f"Could not construct fused moe op with {key}")
    return names[key]


def stand_in_for_a_graph(call):
    """A function that calls again, with what a graph may wrongly have kept from its capture."""
    from flashinfer.fused_moe import experts

    call()
    kept = [tensor.clone() for tensor in experts.LAST]

    def replay():
        experts.KEPT[:] = kept
        call()
        experts.KEPT.clear()

    return replay
