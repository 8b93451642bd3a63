"""The kernels of newer FlashInfer releases in which faults are seeded; a table as in seeded_kernels.py."""

from seeded import Kernel

GDN = {"SIZE": 32, "CASES": {"grouped": ((2, 4, (65, 1, 70)), (1, 3, (9, 3, 1)))}}
MAMBA = {"HEADS": 4, "DIM": 8, "STATE": 32, "BATCHES": ((5, 1), (9, 2))}
CUT = {"ragged": ((37, 500, 204), (4, 1096, 51)), "page_table": ((37, 500, 204), (4, 1096, 51))}
BF16 = {"SIZES": ((37, 272), (101, 272)), "DEEP": (8, 1104)}
RULE = (
    "first_state_dropped state_head_permuted state_element_off head_permuted gate_not_applied beta_not_applied "
    "keys_not_taken_back delta_rule_left_out own_token_not_read last_token_unwritten inf_element zero_element "
)
STEP = (
    "bias_ignored softplus_ignored decay_not_applied last_input_dropped heads_permuted skip_ignored state_not_updated "
    "row_unwritten rows_swapped state_element_off inf_element zero_element "
)
CHOICE = (
    "next_after_the_last largest_missed index_twice neighbour_index one_behind_the_length padding_is_zero "
    "short_row_unwritten last_index_dropped length_of_next_row "
)
PRODUCT = (
    "k_tail_dropped columns_swapped last_rows_scaled row_repeated last_row_unwritten nan_element rounded_twice "
    "sum_in_bf16 input_changed "
)
ROUNDED = (
    "last_row_unwritten rounded_toward_zero scale_of_next_group sign_lost half_a_group_looked_at neighbour_element "
    "scales_swapped largest_is_wrong eps_ignored scale_in_its_last_bits input_changed "
)

LATER = (
    Kernel("ssm_gdn", "grouped", "gdn_prefill:chunk_gated_delta_rule", GDN, RULE),
    *(
        Kernel("ssm_mamba", variant, "mamba:selective_state_update", MAMBA, STEP)
        for variant in ("f32_state", "bf16_state")
    ),
    Kernel(
        "sampling_top_k",
        "ragged",
        "topk:top_k_ragged_transform",
        {"CASES": CUT},
        CHOICE + "offset_of_next_row padding_moved",
    ),
    Kernel(
        "sampling_top_k",
        "page_table",
        "topk:top_k_page_table_transform",
        {"CASES": CUT},
        CHOICE + "not_mapped request_of_next_row neighbouring_page",
    ),
    Kernel("gemm_bf16", "cublaslt_bf16", "gemm:mm_bf16", BF16, PRODUCT),
    Kernel(
        "gemm_bf16",
        "cublaslt_bias_bf16",
        "gemm:mm_bf16",
        BF16,
        PRODUCT + "bias_ignored bias_of_next_column bias_before_rounding",
    ),
    *(
        Kernel(
            "quant_fp8",
            variant,
            "quantization.fp8_quantization:per_token_group_quant_8bit",
            {"ROWS": (1, 37, 101)},
            ROUNDED + more,
        )
        for variant, more in (("rows", "nan_element"), ("int8", "cut_off"))
    ),
)
