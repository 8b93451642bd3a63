"""The operators of a complete backend: each can be looked for, and FlashInfer's names are names of some release."""

from __future__ import annotations

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor import knowledge
from fi_doctor.facts.symbols import Symbols
from fi_doctor.knowledge.consistency import check_operators
from fi_doctor.model import Operator

KB = knowledge.load()
# The tables of what a backend without vLLM's own kernels needs.
NEEDED = {
    "embedding", "linear", "layernorm", "softmax", "rope", "rope_batched", "awq", "gptq", "gguf", "marlin", "fp8_gemm",
    "w8a8", "mla", "mamba", "gdn", "kda", "tree", "allreduce", "all2all", "custom_allreduce", "quick_allreduce", "bgmv",
    "sgmv", "lora", "append", "append_mla", "copy_blocks", "swap_blocks", "cross_entropy", "speculative", "top_k_top_p",
    "min_p", "prefill", "sinks", "rmsnorm", "activation", "moe_bf16", "moe_fp8", "moe_mxfp4", "moe_nvfp4", "weights",
    "mixed_groups",
}  # fmt: skip


def test_what_is_needed_is_there():
    assert {one.id for one in KB.operators} >= NEEDED


@pytest.mark.wheels
def test_each_name_is_in_some_release(unpacked):
    symbols = [Symbols(unpacked(version), version) for version in VERSIONS]
    names = {name for one in KB.operators for name in one.entry}
    assert {name for name in names if not any(isinstance(one.where(name), str) for one in symbols)} == set()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, "a: neither entry nor patterns"),
        ({"entry": ("torch.nn",)}, "a: entry: expected names of FlashInfer"),
        ({"patterns": ("awq",)}, "a: patterns: expected small letters and a *"),
        ({"patterns": ("*AWQ*",)}, "a: patterns: expected small letters and a *"),
    ],
)
def test_what_cannot_be_looked_for_is_an_error(changes, error):
    [told] = check_operators((Operator(id="a", group="b", title="c", **changes),))
    assert error in told


def test_an_id_is_given_once():
    one = Operator(id="a", group="b", title="c", patterns=("*a*",))
    assert check_operators((one, one)) == ["operators.yaml: 'a' is given 2 times"]
