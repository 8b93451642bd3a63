"""The attention kernels in which faults are seeded."""

from seeded import Kernel

WORKSPACE = {"WORKSPACE_BYTES": 16}
PROMPTS = WORKSPACE | {"PROMPTS": (((3, 77), (1, 18), (0, 21), (33, 150), (1, 400)),), "HEADS": ((4, 2), (2, 2))}
STEPS = WORKSPACE | {"STEPS": ((1, 16, 17, 128, 129), (300, 3, 144, 16, 1)), "HEADS": ((4, 2), (2, 2))}
ATTENTION = (
    "scale_ignored wrong_last_page last_key_lost key_and_value_swapped kv_heads_interleaved heads_swapped coarse "
    "last_row_off_by_4_percent nan_element query_changed lse_natural "
)
MERGE = "natural_base weights_alike last_state_lost last_row_off_by_4_percent large_lse_overflows nan_element "
LATENT = (
    "last_key_dropped slot_next_to_last wrong_page page_table_ignored scale_ignored rotary_ignored query_quiet_missing "
    "part_lost parts_weighted_alike sums_in_log2 head_permuted head_unwritten head_zero rounded_coarsely "
    "tolerance_thrice nan_element lse_natural query_written cache_written "
)
XQA = (
    "last_key_dropped wrong_page heads_interleaved key_and_value_swapped scale_ignored value_scale_wrong "
    "head_unwritten head_zero head_permuted four_tolerances nan_element "
)
PAGED_PREFILL = ("prefill <- _paged:BatchPrefillWithPagedKVCacheWrapper",)
PAGED_DECODE = ("decode <- _paged:BatchDecodeWithPagedKVCacheWrapper", "decode <- _paged:fast_decode_plan")
RAGGED = (*PAGED_PREFILL, "prefill <- _paged:BatchPrefillWithRaggedKVCacheWrapper")
SINKS = (*PAGED_PREFILL, "attention <- _paged:BatchAttentionWithAttentionSinkWrapper")
PREFILL_RUN = "_paged:BatchPrefillWithPagedKVCacheWrapper.run"
DECODE_RUN = "_paged:BatchDecodeWithPagedKVCacheWrapper.run"
XQA_BATCH = ("decode <- _xqa_calls:xqa_batch_decode_with_kv_cache",)
XQA_PLAIN = (
    "decode <- _decode_xqa_plain:trtllm_batch_decode_with_kv_cache",
    "decode <- _decode_xqa_plain:xqa_batch_decode_with_kv_cache",
)

ATTENTIONS = (
    Kernel(
        "attention_decode",
        "tc_d128",
        "decode:BatchDecodeWithPagedKVCacheWrapper.run",
        WORKSPACE | {"SHORT": (1, 15, 0, 17), "LONG": (1, 15, 300, 0, 129), "HEADS": ((8, 2),)},
        "last_key_dropped wrong_page page_table_ignored hnd_as_nhd heads_interleaved parts_weighted_alike "
        "last_part_lost last_request_unwritten nan_element rounded_coarsely key_and_value_swapped rest_of_page_read "
        "query_strides_ignored lse_natural",
    ),
    Kernel(
        "attention_prefill",
        "fa2_d64",
        "prefill:_Wrapper._attend",
        {
            "BATCHES": {"short": ((3, 20), (1, 18)), "long": ((1, 40), (0, 21), (37, 37), (0, 0), (19, 33), (1, 300))},
            "WORKSPACE_BYTES": 1024,
        },
        "no_causal_mask mask_at_top_left one_key_too_many diagonal_hidden last_key_dropped first_key_dropped "
        "heads_interleaved normalised_twice value_coarse value_scaled request_not_written natural_log lse_not_written "
        "nan_element last_columns_lost",
    ),
    Kernel(
        "attention_sinks",
        "xqa_d64",
        "decode:xqa_batch_decode_with_kv_cache",
        {"WORKSPACE": 2**16, "DECODE": ((1, 1), (1, 17), (1, 130)), "SPLIT_DECODE": ((1, 700),)},
        "sink_dropped sink_times_log2e sinks_rotated page_ends_read last_token_lost nan_element",
    ),
    Kernel(
        "attention_sinks",
        "fa2_d64",
        "attention:BatchAttentionWithAttentionSinkWrapper.run",
        {
            "PREFILL": ((1, 1), (15, 15), (0, 20), (3, 100)),
            "DECODE": ((1, 1), (1, 17), (1, 130)),
            "SPLIT": ((3, 700),),
            "SPLIT_DECODE": ((1, 700),),
            "WORKSPACE": 9 * 2**20,
        },
        "sink_dropped sink_scaled sink_times_log2e sink_over_log2e sinks_rotated sinks_reversed first_sink_for_all "
        "sink_of_kv_head last_token_lost kv_heads_interleaved nan_element not_written",
    ),
    Kernel(
        "attention_mixed_groups",
        "fa2_sinks_first",
        PREFILL_RUN,
        WORKSPACE
        | {"HEADS": {"sinks": (8, 2), "plain": (4, 2)}, "STEPS": (((4, 200), (4, 17)), ((4, 301), (70, 70), (4, 16)))},
        "wrong_last_page last_key_lost heads_swapped coarse last_row_off_by_4_percent nan_element last_row_unwritten "
        "query_changed second_plan_taken_for_both first_window_taken_for_both sinks_of_last_call sink_dropped "
        "sink_log2 window_ignored window_one_longer window_one_shorter window_missed_by_one_head",
        places=SINKS,
    ),
    Kernel(
        "attention_window",
        "fa2_d128",
        PREFILL_RUN,
        PROMPTS,
        ATTENTION + "last_row_unwritten window_ignored window_one_longer window_one_shorter window_missed_by_one_head "
        "window_of_last_query_only",
        places=PAGED_PREFILL,
    ),
    Kernel(
        "attention_window",
        "tc_d128",
        DECODE_RUN,
        STEPS,
        ATTENTION + "last_row_unwritten window_ignored window_one_longer window_one_shorter window_missed_by_one_head",
        places=PAGED_DECODE,
    ),
    Kernel(
        "attention_soft_cap",
        "fa2_d128",
        PREFILL_RUN,
        PROMPTS,
        ATTENTION
        + "last_row_unwritten soft_cap_ignored soft_cap_times_log2e soft_cap_halved soft_cap_missed_by_one_head",
        places=PAGED_PREFILL,
    ),
    Kernel(
        "attention_fp8_kv",
        "auto_bf16q_d128",
        PREFILL_RUN,
        PROMPTS,
        ATTENTION + "last_row_unwritten k_scale_ignored v_scale_ignored scales_swapped values_saturate",
        places=(*PAGED_PREFILL, "utils <- _paged:determine_attention_backend"),
    ),
    Kernel(
        "attention_fp8_kv",
        "fa3_fp8q_d128",
        PREFILL_RUN,
        PROMPTS,
        "k_scale_ignored v_scale_ignored scales_swapped values_saturate q_scale_ignored wrong_last_page last_key_lost "
        "key_and_value_swapped kv_heads_interleaved heads_swapped nan_element last_row_unwritten lse_natural",
        places=(*PAGED_PREFILL, "utils <- _paged:determine_attention_backend"),
    ),
    *(
        Kernel(
            "attention_ragged",
            variant,
            "_paged:BatchPrefillWithRaggedKVCacheWrapper.run " + PREFILL_RUN,
            WORKSPACE
            | {
                "HEADS": ((4, 2), (2, 2)),
                "BATCHES": (((3, 77), (1, 18), (0, 21), (40, 130)),),
                "WITHOUT_CONTEXT": ((3, 77), (5, 0), (2, 0)),
            },
            faults,
            places=RAGGED,
        )
        for variant, faults in (
            ("fa2_d128", ATTENTION + "ragged_shifted second_plan_taken_for_both"),
            (
                "fa2_empty_d128",
                "empty_lse_is_zero empty_lse_is_minus_5000 empty_is_nan ragged_shifted lse_natural",
            ),
        )
    ),
    *(
        Kernel("attention_cascade", name, f"cascade:{entry}", {"SHAPES": ((8, 64), (4, 256))}, MERGE + more)
        for name, entry, more in (
            ("merge_state", "merge_state", ""),
            ("merge_states", "merge_states", "only_the_first_parts"),
            (
                "merge_state_in_place",
                "merge_state_in_place",
                "in_place_does_nothing mask_ignored mask_ignored_by_lse lse_not_updated other_changed",
            ),
            ("empty_merge_states", "merge_states", "both_empty_is_nan empty_is_one lse_of_nothing_is_zero"),
        )
    ),
    Kernel(
        "attention_cascade",
        "levels_d128",
        "cascade:MultiLevelCascadeAttentionWrapper.run",
        WORKSPACE | {"REQUESTS": (((1, 1), (1, 17), (20, 90)),)},
        "prefix_lost prefix_counted_twice natural_base wrong_last_page scale_ignored",
        places=(*PAGED_PREFILL, "utils <- _paged:determine_attention_backend"),
    ),
    *(
        Kernel(
            "attention_mla",
            variant,
            "mla:BatchMLAPagedAttentionWrapper.run",
            WORKSPACE
            | {
                "SHORT": ((1, 17), (1, 1)),
                "LONG": ((1, 130), (1, 600), (1, 64)),
                "MANY": ((1, 140), (1, 1)),
                "CAUSAL": ((4, 66), (0, 21), (3, 3)),
            },
            LATENT + more,
        )
        for variant, more in (("fa2_h16", "mask_shifted"), ("fa3_fp8_h16", "ckv_scale_ignored kpe_scale_ignored"))
    ),
    Kernel(
        "attention_mla_prefill",
        "ragged_fa2",
        "_mla_prefill:BatchPrefillWithRaggedKVCacheWrapper.run",
        WORKSPACE | {"HEADS": (3,)},
        "key_before_first last_keys_dropped rotary_ignored value_from_keys_half scale_ignored mask_shifted "
        "heads_swapped head_unwritten head_zero rounded_coarsely nan_element lse_natural lse_unwritten input_written",
        places=("prefill <- _mla_prefill:BatchPrefillWithRaggedKVCacheWrapper",),
    ),
    *(
        Kernel(
            "attention_xqa",
            variant,
            "_xqa_calls:_attend",
            WORKSPACE
            | {
                "CACHES": (("HND", True),),
                "ONE_SHORT": ((1, 1), (1, 150)),
                "ONE_LONG": ((1, 300),),
                "SPEC_SHORT": ((4, 4), (4, 66)),
                "SPEC_LONG": ((4, 300),),
            },
            XQA + more,
            places=(*XQA_BATCH, "_xqa_calls:xqa"),
        )
        for variant, more in (
            ("direct_d128", "window_ignored window_too_long"),
            ("fp8_d128", ""),
            ("spec_d128", "mask_shifted mask_ignored"),
            ("ragged_d128", "mask_shifted mask_ignored"),
        )
    ),
    Kernel(
        "attention_decode_xqa",
        "xqa_d128",
        "decode:trtllm_batch_decode_with_kv_cache decode:xqa_batch_decode_with_kv_cache",
        WORKSPACE
        | {
            "CASES": {"xqa_d128": ((16, 8, 2, 127), (16, 4, 2, -1))},
            "CACHES": (("HND", True),),
            "SHORT": (1, 0, 150),
            "LONG": (17, 400),
        },
        "last_key_dropped wrong_page table_of_request_before table_ignored hnd_as_nhd heads_interleaved scale_ignored "
        "parts_weighted_alike part_lost last_request_unwritten nan_element rounded_coarsely key_and_value_swapped "
        "rest_of_page_read strides_ignored window_ignored window_too_short window_too_long",
        places=XQA_PLAIN,
    ),
)
