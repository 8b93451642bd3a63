"""The modules that FlashInfer has for each kind of GPU."""

from __future__ import annotations

import pytest

from fi_doctor import knowledge
from fi_doctor.knowledge import modules
from fi_doctor.model import Missing

ENTRIES = {feature.id: feature.entry for feature in knowledge.load().features}


@pytest.mark.parametrize(
    ("row", "sm", "name"),
    [
        ("moe.bf16", 89, "fused_moe_89"),
        ("moe.nvfp4", 103, "fused_moe_103"),
        ("moe.mxfp4_mxfp8", 121, "fused_moe_120"),
        ("moe.bf16", 80, ""),
        ("quant.mxfp4", 110, "fp4_quantization_110"),
        ("quant.fp4", 121, "fp4_quantization_12*"),
        ("quant.fp4", 89, ""),
        ("moe.trtllm_mxfp4", 103, "fused_moe_trtllm_sm100"),
        ("moe.trtllm_mxfp4", 120, ""),
        ("attention.trtllm_gen", 100, "fmha_gen"),
        ("norm.rmsnorm", 90, ""),
        ("moe.bf16", Missing(reason="no driver"), ""),
    ],
    ids=str,
)
def test_a_row_asks_for_the_module_of_its_gpu(row, sm, name):
    assert modules.of(ENTRIES[row], sm) == name


def test_what_is_written_in_cute_dsl_asks_for_none():
    assert [row for row, entry in ENTRIES.items() if modules.is_late(entry)] == ["moe.cute_dsl", "moe.b12x"]
