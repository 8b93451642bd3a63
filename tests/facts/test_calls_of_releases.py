"""The calls of real vLLM releases, bound to real FlashInfer releases; those that were released together fit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fi_doctor.facts import calls
from fi_doctor.model import Calls, MisfitKind

UNPACKED = Path(os.environ.get("FI_DOCTOR_VLLM", "/nowhere"))

pytestmark = [
    pytest.mark.wheels,
    pytest.mark.skipif(not UNPACKED.is_dir(), reason="FI_DOCTOR_VLLM names no folder of unpacked vLLM releases"),
]


@pytest.fixture
def bound(unpacked):
    def bind(vllm, flashinfer):
        found = calls.bind(UNPACKED / vllm / "vllm", unpacked(flashinfer), f"flashinfer {flashinfer}")
        assert isinstance(found, Calls), found
        assert not found.unread
        return found

    return bind


# vLLM pins FlashInfer: 0.14.1 asks for 0.5.3, 0.33.0 for 0.7.2.post1. The others were tried with what they ask for, and
# with what is at hand: 0.17.1 and 0.20.2 fit both newer releases.
FIT = {
    ("0.14.1", "0.5.3"): 200,
    ("0.17.1", "0.6.7.post3"): 250,
    ("0.20.2", "0.6.7.post3"): 330,
    ("0.20.2", "0.7.2.post1"): 330,
    ("0.28.0", "0.7.2.post1"): 420,
    ("0.33.0", "0.7.2.post1"): 770,
}


@pytest.mark.parametrize(
    ("pair", "least"), FIT.items(), ids=lambda value: "-".join(value) if isinstance(value, tuple) else ""
)
def test_releases_that_belong_together_fit(bound, pair, least):
    found = bound(*pair)
    assert found.misfits == ()
    assert found.fitting >= least
    assert len(found.unbound) < found.fitting / 9


def test_what_drifted_between_releases_is_told_with_both_places(bound):
    told = {(one.kind, one.name, one.text) for one in bound("0.14.1", "0.7.2.post1").misfits}
    words = "unexpected keyword argument 'tile_tokens_dim'"
    assert (MisfitKind.UNKNOWN_KEYWORD, "flashinfer.fused_moe.trtllm_fp8_block_scale_moe", words) in told
    [one] = [one for one in bound("0.25.1", "0.6.7.post3").misfits if one.name.endswith("Wrapper().run")]
    assert (one.caller, one.callee) == ("v1/attention/backends/flashinfer.py:1822", "prefill.py:2128")
    assert one.text == "unexpected keyword argument 'kv_cache_sf'"


def test_names_that_are_gone_are_told(bound):
    told = {one.name for one in bound("0.11.0", "0.5.3").misfits}
    assert told == {"flashinfer.fused_moe.core._maybe_get_cached_w2_permute_indices"}


def test_the_wrappers_of_vllm_are_seen_through(bound):
    found = bound("0.33.0", "0.7.2.post1")
    for name in ("BatchPrefillWithPagedKVCacheWrapper().plan", "BatchDecodeWithPagedKVCacheWrapper().run"):
        assert any(
            place.startswith("v1/attention/backends/flashinfer.py") for place in found.calls[f"flashinfer.{name}"]
        )
    # made in utils/flashinfer.py by name, called from the backend
    assert "v1/attention/backends/flashinfer.py:2697" in found.calls["flashinfer.decode.xqa_batch_decode_with_kv_cache"]
    # two backends of one file call their own self._kernel, the first one Triton's
    kernels = found.calls["flashinfer.mamba.selective_state_update"]
    assert [place for place in kernels if "/ssu_dispatch.py" in place] == [
        "model_executor/layers/mamba/ops/ssu_dispatch.py:382"
    ]
