"""The probe of the plain all-reduce on the CPU: what it shares with that of the fusion is tested there."""

import loading
import pytest
from ranks import missed

pytest.importorskip("torch")

NAME = "comm_allreduce"
WRONG = "allreduce_out: .* elements are wrong"
NUMBERS = {  # fault -> what is said of it
    "contribution_missing": WRONG,
    "contribution_missing@1": f"rank 1: .*{WRONG}",
    "truncated": WRONG,
    "rounded_to_7_bits": WRONG,
    "nan_element": "allreduce_out: .* got nan",
    "last_token_unwritten": "allreduce_out: .* got nan",
    "input_changed": "the input was changed",
    "written_behind": "outside of the tensors",
    "returns_tensor": "returned Tensor instead of None",
}
LAMPORT = {"stale_buffer@0": f"^rank 0: .*: call .*: {WRONG}"}
GRAPH = {
    "graph_keeps_input": f"replay 1 of 3: {WRONG}",
    "graph_keeps_input@1": f"rank 1: .*replay 1 of 3: {WRONG}",
    "graph_does_nothing": "replay 1 of 3: allreduce_out: .* got nan",
}
SOME = {name: NUMBERS[name] for name in ("contribution_missing@1", "last_token_unwritten", "written_behind")}
FAULTS = {  # variant -> the faults that are seeded in it
    "oneshot_bf16": {**NUMBERS, **LAMPORT},
    "twoshot_bf16": NUMBERS,
    "oneshot_fp16": {**SOME, **LAMPORT},
    "graph_oneshot_bf16": {**SOME, **GRAPH},
    "graph_twoshot_bf16": GRAPH,
    "oneshot_bf16_load500": {**SOME, **LAMPORT},
    "twoshot_bf16_limits": SOME,
    "twoshot_bf16_order": SOME,
    "nccl_bf16": {"reduction_left_out@1": f"rank 1: .*{WRONG}"},
}
FOUR = {
    "oneshot_bf16_tp4": {**SOME, **LAMPORT, "contribution_missing@3": f"rank 3: .*{WRONG}"},
    "twoshot_bf16_tp4_order": {"contribution_missing@2": f"rank 2: .*{WRONG}"},
}


def text_between(name, first, last):
    text = (loading.PROBES / f"{name}.py").read_text()
    return text[text.index(first) : text.index(last)]


def test_what_both_probes_share_is_the_same_text():
    """Neither may import the other: each can be pasted into an issue as it stands."""
    marks = "# From here to", "# What this probe calls."
    assert text_between(NAME, *marks) == text_between("comm_allreduce_fusion", *marks)


def test_right_numbers_pass_in_every_variant(probe):
    for variant in probe.PROBE["variants"]:
        measured = probe.run(variant)
        assert measured["world_size"] == (4 if "tp4" in variant else 2)
        assert measured["workspace"] == ("NCCL's own" if "nccl" in variant else "CUDA IPC")
        assert 0 < measured["sum_max_share"] <= 1


def test_every_wrong_number_is_caught(probe, surroundings):
    assert not missed(probe, surroundings, FAULTS)


def test_every_wrong_number_is_caught_with_four_ranks(probe, surroundings):
    assert not missed(probe, surroundings, FOUR)
