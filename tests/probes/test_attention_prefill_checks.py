"""attention_prefill's own checks, on the CPU against a stand-in: right kernels pass, each fault is caught."""

import sys
from types import ModuleType, SimpleNamespace

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

ASSERTION = "static_assert(HEAD_DIM_VO == 64 || HEAD_DIM_VO == 128 || HEAD_DIM_VO == 256);"
HEADER = """cudaError_t BatchPrefillWithPagedKVCacheDispatched(Params& params, bool enable_pdl,
                                                   cudaStream_t stream) {
  %s
"""
FAULTS = (
    "no_causal_mask",
    "mask_at_top_left",
    "one_key_too_many",
    "diagonal_hidden",
    "last_key_dropped",
    "first_key_dropped",
    "wrong_page",
    "page_table_ignored",
    "whole_last_page",
    "layout_ignored",
    "packing_ignored",
    "key_and_value_swapped",
    "ragged_shifted",
    "heads_interleaved",
    "scale_missing",
    "scale_ignored",
    "normalised_twice",
    "not_normalised",
    "value_coarse",
    "value_scaled",
    "request_not_written",
    "empty_request_shifts",
    "natural_log",
    "lse_not_written",
    "lse_written_behind",
    "nan_element",
    "last_columns_lost",
    "written_behind",
    "returns_copy",
)


CASES = 2 * 2 * 2 * 7 * 2  # of the fixture's batches: batches, heads, causal or not, caches, with LSE or not
UNSUPPORTED = "Error in function 'VariableLengthMergeStates' at /p/cascade.cuh:697: Unsupported head_dim: 80"
TILE_TOO_LARGE = (
    "Error in function 'BatchPrefillWithPagedKVCacheDispatched' at /p/prefill.cuh:697: Even the smallest KV tile for "
    "head_dim_qk=80, head_dim_vo=80, cta_tile_q=128 exceeds this GPU's 101376 bytes of shared memory per block; "
    "this configuration is not supported on this architecture."
)
NO_TILE = "Error in function 'BatchPrefillWithPagedKVCacheDispatched' at /p/prefill.cuh:697: Unsupported max_mma_kv: 0"


def raise_when_split(error, fake, monkeypatch):
    """As where KV is split and the kernel that merges its parts is refused; the other calls are made."""
    attend = fake.prefill._Wrapper._attend

    def raising(self, q, requests, out, lse):
        if max(len(key) for key, _ in requests) > 128:
            raise error
        attend(self, q, requests, out, lse)

    monkeypatch.setattr(fake.prefill._Wrapper, "_attend", raising)


@pytest.fixture
def fake(faults, monkeypatch, tmp_path):
    """The stand-in, importable as flashinfer, with a header that has no assertion about head sizes."""
    import flashinfer.jit
    import flashinfer.page
    import flashinfer.prefill

    env = ModuleType("flashinfer.jit.env")
    env.FLASHINFER_INCLUDE_DIR = tmp_path
    monkeypatch.setitem(sys.modules, "flashinfer.jit.env", env)
    monkeypatch.setattr(flashinfer.jit, "env", env, raising=False)
    header = tmp_path / "flashinfer/attention/hopper/prefill_sm90.cuh"
    header.parent.mkdir(parents=True)
    header.write_text(HEADER % "")
    return SimpleNamespace(faults=faults, prefill=flashinfer.prefill, page=flashinfer.page, header=header)


@pytest.fixture
def probe(fake, monkeypatch):
    """The probe, with batches for a CPU: as ragged as the real ones, and one of them still the longest by far."""
    module = loading.load("attention_prefill")
    small = {"short": ((3, 20), (1, 18)), "long": ((1, 40), (0, 21), (37, 37), (50, 83), (0, 0), (19, 33), (1, 300))}
    monkeypatch.setattr(module, "BATCHES", small)
    monkeypatch.setattr(module, "WORKSPACE_BYTES", 1024)
    return module


@pytest.mark.parametrize("variant", ["fa2_d64", "fa2_d128", "fa2_d256", "fa3_d64", "fa3_d128", "fa3_d256"])
def test_right_attention_passes_and_is_measured(variant, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert measured["answer"] == "right"
    assert measured["elements"] > 100_000
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught(fault, probe, fake, monkeypatch):
    monkeypatch.setattr(fake.faults, "ACTIVE", fault)
    size = 128 if "ragged" in fault else 64  # at 64 there are pages only
    with pytest.raises(AssertionError) as caught:
        probe.run(f"fa2_d{size}")
    assert f"fa2, head size {size}, " in str(caught.value)


@pytest.mark.parametrize(("size", "expected"), [(64, (False, False)), (128, (True, True)), (256, (False, False))])
def test_which_head_sizes_are_called_in_each_way(size, expected, probe):
    names = [call.args[3] for call in probe._cases("fa2", size)]
    assert (any("ragged" in name for name in names), any("causal False" in name for name in names)) == expected
    assert any("causal True" in name for name in names)


def test_the_real_batches_notice_a_dropped_last_key(probe, fake, monkeypatch):
    """In a request of one query and 2100 keys it is one key of many."""
    monkeypatch.setattr(probe, "BATCHES", {"long": ((1, 2100),)})
    monkeypatch.setattr(fake.faults, "ACTIVE", "last_key_dropped")
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run("fa2_d128")


def test_build_asks_for_the_module_that_the_call_uses(probe, fake):
    probe.build("fa2_d128")
    assert len(fake.prefill.BUILDS) == 1
    probe.run("fa2_d128")
    assert len(set(fake.prefill.BUILDS)) == 1


@pytest.mark.parametrize(("backend", "expected"), [("fa2", 0), ("fa3", 1)])
def test_fa3_of_flashinfer_0_5_has_the_page_module_built(backend, expected, probe, fake, monkeypatch):
    asked = []
    monkeypatch.setattr(fake.page, "get_page_module", lambda: asked.append(1))
    monkeypatch.setattr(fake.page, "block_sparse_indices_to_vector_sparse_offsets", None, raising=False)
    probe.build(f"{backend}_d64")
    assert len(asked) == expected


def test_an_assertion_in_the_header_is_a_refusal_without_a_build(probe, fake):
    fake.header.write_text(HEADER % ASSERTION)
    assert probe.build("fa3_d80") is False
    assert probe.run("fa3_d80")["refusal"] == ASSERTION
    assert fake.prefill.BUILDS == []
    assert probe.build("fa3_d64") is None


def test_a_failed_assertion_of_the_compiler_is_a_refusal(probe):
    assert probe.build("fa3_d192") is False
    measured = probe.run("fa3_d192")
    assert measured["answer"] == "refused"
    assert measured["refusal"] == f"prefill_sm90.cuh(568): error: static assertion failed {ASSERTION}"


@pytest.mark.parametrize("fault", ["header_missing", "foreign_assertion"])
@pytest.mark.parametrize("variant", ["fa3_d80", "fa2_d80", "fa2_d64"])
def test_a_fault_of_the_environment_is_no_refusal(variant, fault, probe, fake, monkeypatch):
    monkeypatch.setattr(fake.faults, "ACTIVE", fault)
    with pytest.raises(RuntimeError):
        probe.build(variant)


def test_an_assertion_against_an_offered_head_size_is_no_refusal(probe, fake, monkeypatch):
    monkeypatch.setattr(fake.prefill, "PAIRS", (128,))
    with pytest.raises(RuntimeError, match="static assertion failed"):
        probe.build("fa3_d64")


def test_a_refusal_of_every_call_is_an_answer(probe):
    measured = probe.run("fa2_d45")
    assert measured["answer"] == "refused"
    assert measured["refused_cases"] == measured["cases"] == CASES
    assert measured["refusal"] == "Internal Error: Invalid configuration : Q=2"
    assert measured["elements"] == 0


def test_a_head_size_may_be_refused_for_large_tiles_only(probe):
    measured = probe.run("fa2_d192")
    assert measured["answer"] == f"right where not refused: {CASES // 2} of {CASES} cases refused"
    assert measured["elements"] > 0


@pytest.mark.parametrize("words", [UNSUPPORTED, TILE_TOO_LARGE, NO_TILE])
def test_a_refusal_of_the_split_batch_only_leaves_the_other_to_be_right(words, probe, fake, monkeypatch):
    raise_when_split(RuntimeError(words), fake, monkeypatch)
    measured = probe.run("fa2_d80")
    assert measured["answer"] == f"right where not refused: {CASES // 2} of {CASES} cases refused"
    assert words.partition(":697: ")[2].startswith(measured["refusal"].removesuffix(" ..."))
    assert measured["elements"] > 0


def test_calls_with_and_without_lse_are_refused_one_by_one(probe, fake, monkeypatch):
    attend = fake.prefill._Wrapper._attend

    def refusing(self, q, requests, out, lse):
        if lse is None:
            raise RuntimeError(UNSUPPORTED)
        attend(self, q, requests, out, lse)

    monkeypatch.setattr(fake.prefill._Wrapper, "_attend", refusing)
    assert probe.run("fa2_d80")["refused_cases"] == CASES // 2
    monkeypatch.setattr(fake.faults, "ACTIVE", "natural_log")
    with pytest.raises(AssertionError, match=r"LSE.*\(1 of the 1 cases before were refused\)"):
        probe.run("fa2_d80")


@pytest.mark.parametrize(("first", "before"), [("short", "0 of the 0"), ("long", f"{CASES // 2} of the {CASES // 2}")])
def test_garbage_beside_a_refused_split_batch_is_caught(first, before, probe, fake, monkeypatch):
    raise_when_split(RuntimeError(UNSUPPORTED), fake, monkeypatch)
    monkeypatch.setattr(fake.faults, "ACTIVE", "last_columns_lost")
    monkeypatch.setattr(probe, "BATCHES", dict(sorted(probe.BATCHES.items(), reverse=first == "short")))
    with pytest.raises(AssertionError) as caught:
        probe.run("fa2_d80")
    assert "fa2, head size 80, NHD, page size 16, 8 query and 2 KV heads, causal True, short" in str(caught.value)
    assert f"({before} cases before were refused)" in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: an illegal memory access was encountered",
        f"{UNSUPPORTED}\nCUDA error: an illegal memory access was encountered",
        "BatchPrefillWithPagedKVCache failed with error operation not supported",
        "BatchPrefillWithPagedKVCache failed with error invalid configuration argument",
        "Error in function 'PrefillPlan' at /p/scheduler.cuh:697: Unsupported group_size: 5",
    ],
)
def test_an_error_of_the_split_batch_that_says_nothing_of_the_size_is_no_refusal(words, probe, fake, monkeypatch):
    raise_when_split(RuntimeError(words), fake, monkeypatch)
    with pytest.raises(RuntimeError) as caught:
        probe.run("fa2_d80")
    assert str(caught.value) == words


def test_a_gpu_that_is_dead_after_a_refusal_is_an_error(probe, fake, monkeypatch):
    def dead():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    raise_when_split(RuntimeError(UNSUPPORTED), fake, monkeypatch)
    monkeypatch.setattr(probe, "_wait_for_the_gpu", dead)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        probe.run("fa2_d80")


def test_a_refusal_of_an_offered_head_size_is_an_error(probe, fake, monkeypatch):
    raise_when_split(RuntimeError(UNSUPPORTED), fake, monkeypatch)
    with pytest.raises(RuntimeError, match="Unsupported head_dim"):
        probe.run("fa2_d64")


def test_the_real_batches_begin_with_those_that_are_not_split():
    """FA2 splits KV where a request has more than 128 keys, and head sizes that are not offered end there."""
    batches = loading.load("attention_prefill").BATCHES.values()
    split = [max(keys for _, keys in lengths) > 128 for lengths in batches]
    assert split == [False, False, True, True]


def test_a_right_answer_for_a_head_size_that_is_not_offered_passes(probe):
    assert probe.run("fa2_d80")["answer"] == "right"


@pytest.mark.parametrize(("variant", "fault"), [("fa2_d45", "garbage_for_45"), ("fa2_d80", "last_columns_lost")])
def test_garbage_for_a_head_size_that_is_not_offered_is_caught(variant, fault, probe, fake, monkeypatch):
    monkeypatch.setattr(fake.faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match="elements are wrong"):
        probe.run(variant)


def test_an_error_of_the_gpu_is_no_refusal(probe, fake, monkeypatch):
    monkeypatch.setattr(fake.faults, "ACTIVE", "cuda_error")
    with pytest.raises(RuntimeError, match="illegal memory access"):
        probe.run("fa2_d80")
