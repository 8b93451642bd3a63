"""The kernels in which faults are seeded: a probe's variant, the stand-in's entries, and which of its faults."""

from seeded import Kernel
from seeded_attentions import ATTENTIONS
from seeded_later import LATER

NORM = {"HIDDEN_SIZES": (64, 111, 500, 4096), "BATCH_SIZES": (1, 19)}
SPREAD = NORM | {"SPREAD_HIDDEN_SIZES": (500,)}
GELU = {"SIZES": (888, 8200), "BATCH_SIZES": (1, 19)}
EXPERTS = {"HIDDEN": 208, "INTERMEDIATE": 144, "TOKENS": (1, 37, 150)}
BLOCKS = {"HIDDEN": 384, "INTERMEDIATE": 256, "TOKENS": (37, 100)}
OUTPUT = "nan_element inf_element zero_element neighbour_element one_element_off last_row_dropped eps_ignored "
GEMMA = "one_not_added mean_over_too_many weight_changed eps_of_1e-6 "
GELUS = (
    "nan_element inf_element zero_element neighbour_element one_element_off not_written last_row_dropped tail_dropped "
    "input_changed gate_and_up_swapped up_ignored silu quick "
)
ROPE = (
    "positions_ignored position_off_by_one last_position_wrong sign_of_sin other_style key_not_rotated last_token_lost "
    "last_head_lost nan_element one_element_off rest_changed written_before_read "
)
MOE = (
    "expert_dropped router_ignored router_of_next_token last_choice_lost first_choice_for_all k_tail_dropped "
    "nan_element not_written last_token_dropped gate_up_swapped "
)
GEMM = (
    "k_tail_dropped column_swapped scale_of_a_twice scale_inverted last_rows_scaled rounded_coarsely row_repeated "
    "last_row_unwritten nan_element input_rounded "
)
BLOCK_GEMM = (
    "scale_of_next_block last_block_of_first_rows_dropped rounded_coarsely row_repeated last_row_unwritten nan_element "
)
SCALES = "layouts_exchanged scale_of_next_block scale_a_step_up last_scale_unwritten "
E2M1 = "rounded_toward_zero largest_is_4 sign_lost halves_swapped last_row_unwritten input_changed "
E4M3 = "ties_up rounded_toward_zero largest_is_240 sign_lost last_row_unwritten input_changed "
NO_TOKENS = "token_behind_vocabulary negative_token "
DRAWS = {"VOCABULARIES": (509, 1024), "CALLS": 12, "WIDE_COPIES": 128, "SMALL_COPIES": 4096}

NORMS = (
    Kernel(
        "norm_rmsnorm",
        "bf16",
        "norm:rmsnorm",
        SPREAD,
        "eps_ignored weight_ignored mean_over_too_many tail_dropped last_row_dropped not_written nan_element "
        "rounded_twice strides_ignored input_changed",
    ),
    Kernel(
        "norm_fused_add_rmsnorm",
        "bf16",
        "norm:fused_add_rmsnorm",
        NORM,
        "eps_ignored weight_ignored residual_not_added residual_not_written residual_nan_element input_not_written "
        "last_row_dropped nan_element",
    ),
    Kernel(
        "norm_gemma_rmsnorm",
        "bf16",
        "norm:gemma_rmsnorm",
        SPREAD,
        OUTPUT + GEMMA + "tail_dropped not_written input_changed one_added_in_dtype strides_ignored",
    ),
    Kernel(
        "norm_gemma_fused_add_rmsnorm",
        "fused_add_bf16",
        "norm:gemma_fused_add_rmsnorm",
        NORM,
        OUTPUT + GEMMA + "residual_not_added residual_not_written residual_nan_element input_not_written",
    ),
    Kernel(
        "norm_layernorm",
        "bf16",
        "norm:layernorm",
        SPREAD,
        OUTPUT + "tail_dropped gamma_changed beta_changed mean_not_taken_away unbiased_variance variance_as_difference "
        "rounded_twice scale_ignored scale_in_bf16 shift_ignored input_changed not_written in_place",
    ),
    Kernel(
        "activation_silu_and_mul",
        "bf16",
        "activation:silu_and_mul",
        GELU,
        "gate_and_up_swapped sigmoid gelu up_ignored tail_dropped last_row_dropped nan_element rounded_twice",
    ),
    Kernel("activation_gelu_and_mul", "bf16", "activation:gelu_and_mul", GELU, GELUS + "rounded_twice"),
    Kernel("activation_gelu_tanh_and_mul", "fp16", "activation:gelu_tanh_and_mul", GELU, GELUS + "cubic_term_off"),
    Kernel(
        "rope_apply",
        "cos_sin_neox",
        "rope:apply_rope_with_cos_sin_cache_inplace",
        {
            "MLA_CASES": ((7, 8, 1, 64, 64),),
            "FUSED_CASES": ((1, 4, 2, 128, 128), (19, 5, 1, 64, 32), (7, 2, 2, 128, 64), (3, 2, 1, 512, 512)),
        },
        ROPE + "cache_in_bf16 cos_and_sin_swapped magnitude_dropped cache_changed",
    ),
    Kernel(
        "rope_apply",
        "pos_ids_interleaved",
        "rope:apply_rope_pos_ids_inplace",
        {
            "FUSED_CASES": ((1, 4, 2, 128, 128), (19, 5, 1, 64, 32), (7, 2, 2, 128, 64), (3, 2, 1, 512, 512)),
            "CACHED_CASES": ((9, 2, 1, 128, 96),),
        },
        ROPE + "theta_ignored scale_ignored frequencies_of_whole_head angles_in_bf16",
    ),
    Kernel(
        "kv_append_paged",
        "nhd_page16",
        "page:append_paged_kv_cache",
        {"HEADS": ((1, 64), (5, 128))},
        "key_and_value_swapped value_lost last_token_lost wrong_page page_table_ignored position_off_by_one "
        "first_request_for_all neighbour_overwritten heads_reversed rounded nan_element",
    ),
    Kernel(
        "kv_append_mla",
        "page64",
        "page:append_paged_mla_kv_cache",
        {"APPENDED": (1, 0, 0, 37, 64, 20, 3, 70), "BEFORE": 64},
        "last_token_lost key_lost tail_dropped rounded nan_element neighbour_overwritten tokens_changed "
        "position_off_by_one first_request_for_all wrong_page page_table_ignored strides_ignored",
    ),
)

PRODUCTS = (
    *(
        Kernel("gemm_bmm_fp8", variant, "gemm:bmm_fp8", {"ROWS": (37, 100)}, GEMM + more)
        for variant, more in (
            ("auto_bf16", ""),
            ("batched_bf16", "weight_of_batch_0"),
            ("e5m2_bf16", "e5m2_as_e4m3"),
        )
    ),
    *(
        Kernel("gemm_fp8_block_sm90", variant, "gemm:fp8_blockscale_gemm_sm90", {}, BLOCK_GEMM + more)
        for variant, more in (
            ("swap_ab", "saturates rounded_toward_zero input_rounded scale_row_of_block_before"),
            ("bf16_weight", "saturates rounded_toward_zero largest_of_first_rows"),
            ("row_scales", "row_scales_as_block_scales"),
            ("fp8_input", "scales_read_column_by_column scale_row_of_block_before"),
        )
    ),
    *(
        Kernel("quant_fp4", variant, "fp4_quantization:fp4_quantize", {}, SCALES + E2M1 + more)
        for variant, more in (
            ("swizzled_128x4", "global_scale_ignored"),
            ("swizzled_8x4", "global_scale_ignored"),
            ("linear", "global_scale_ignored ties_up"),  # the others may be so near to a tie that either is right
        )
    ),
    Kernel("quant_fp4", "interleave", "fp4_quantization:block_scale_interleave", {}, SCALES + "padding_unwritten"),
    *(
        Kernel("quant_mxfp4", variant, entry, {}, SCALES + "exponent_rounded_down ties_up " + E2M1)
        for variant, entry in (
            ("swizzled", "fp4_quantization:mxfp4_quantize"),
            ("linear", "fp4_quantization:fp4_quantize"),
        )
    ),
    *(
        Kernel(
            "quant_mxfp8",
            variant,
            "fp8_quantization:mxfp8_quantize",
            {},
            SCALES + "exponent_rounded_down " + E4M3 + more,
        )
        for variant, more in (("swizzled", ""), ("linear", ""), ("padded", "padding_unwritten"))
    ),
    *(
        Kernel(name, variant, "fused_moe.core:compute", sizes, MOE + more)
        for name, variant, sizes, more in (
            ("moe_bf16", "tactic_0", EXPERTS, ""),
            ("moe_fp8_per_tensor", "tactic_0", EXPERTS, "fc1_scales_of_next_expert"),
            ("moe_fp8_block", "eager", BLOCKS, "fc1_scales_of_next_block fc2_scales_transposed"),
            ("moe_mxfp4_bf16", "tactic_0", BLOCKS, "fc1_scales_of_next_block fc2_scales_of_next_rows"),
        )
    ),
)

SAMPLERS = (
    *(
        Kernel(
            "sampling_softmax", variant, "sampling:softmax", {"VOCABULARIES": (111, 1021), "BATCHES": (1, 7)}, faults
        )
        for variant, faults in (
            (
                "plain",
                (
                    "maximum_not_taken_off tail_dropped mask_leaks one_element_off nan_element last_row_dropped "
                    "input_changed"
                ),
            ),
            ("one_temperature", "temperature_ignored one_element_off"),
            ("temperature_of_each_row", "temperature_ignored first_temperature_for_all nan_element"),
        )
    ),
    *(
        Kernel("sampling_renorm", variant, f"sampling:{entry}", {"VOCABULARIES": (509, 1024)}, faults)
        for variant, entry, faults in (
            (
                "top_p_renorm",
                "top_p_renorm_probs",
                (
                    "top_p_ignored first_p_for_all top_p_too_large one_token_lost not_normalised one_element_off "
                    "nan_element"
                ),
            ),
            (
                "top_k_renorm",
                "top_k_renorm_probs",
                (
                    "top_k_ignored first_k_for_all one_token_too_many tie_lost one_token_lost not_normalised "
                    "one_element_off nan_element"
                ),
            ),
            (
                "top_k_mask",
                "top_k_mask_logits",
                "top_k_ignored one_token_too_many one_token_lost masked_with_zero logit_changed",
            ),
        )
    ),
    *(
        Kernel(
            "sampling_chain_speculative",
            variant,
            "sampling:chain_speculative_sampling",
            {"VOCABULARIES": (111, 512)},
            faults,
            light,
        )
        for variant, faults, light in (
            (
                "support",
                "always_accepts resamples_from_target padding_missing draft_shifted count_not_added emitted_off_by_one",
                "",
            ),
            ("law", "", "accepts_too_often"),
        )
    ),
    *(
        Kernel(f"sampling_{name}", variant, f"sampling:{entry}", DRAWS, NO_TOKENS + more, "skewed_by_5_percent")
        for name, variant, entry, more in (
            ("min_p", "min_p", "min_p_sampling_from_probs", "min_p_ignored largest_ignored rare_stray_token"),
            ("min_p", "from_logits", "sampling_from_logits", ""),
            (
                "top_k_top_p",
                "top_k_top_p",
                "top_k_top_p_sampling_from_logits",
                "top_k_ignored top_p_ignored rare_stray_token",
            ),
            ("top_k_top_p", "top_p", "top_p_sampling_from_probs", "top_p_ignored rare_stray_token"),
        )
    ),
)

KERNELS = (*NORMS, *ATTENTIONS, *PRODUCTS, *SAMPLERS, *LATER)
