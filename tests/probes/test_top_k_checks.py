"""The checks of the probe of top_k, on the CPU against a stand-in: right selections pass, each fault is caught."""

from pathlib import Path

import pytest
from loading import PROBES, load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

WRONG = r"are wrong|beside an output|was changed|not the tensor given|strides|a second call|expected"
PLAIN = ("sorted", "graph_sorted", "unsorted", "float32", "tie_small", "tie_large")
CUT = ("ragged", "graph_ragged", "page_table", "pages_of_64")
SELECTION_FAULTS = ("next_after_the_last", "largest_missed", "index_twice", "neighbour_index")
PLAIN_FAULTS = (
    "value_of_neighbour", "value_in_its_last_bit", "last_row_unwritten", "written_behind", "int32_indices",
    "column_major_out", "end_of_row_never", "minus_infinity_never", "index_behind_the_row",
)  # fmt: skip
CUT_FAULTS = (
    "length_of_next_row",
    "one_behind_the_length",
    "short_row_unwritten",
    "padding_is_zero",
    "last_index_dropped",
)
SORTED_FAULTS = ("pair_out_of_order", "indices_not_sorted")
PAGE_FAULTS = ("request_of_next_row", "neighbouring_page", "not_mapped")
# Smaller than those of the probe: the stand-in goes row by row.
CASES = {
    **dict.fromkeys(PLAIN, ((1, 15193, 8), (37, 5025, 16), (130, 409, 40))),
    "graph_sorted": ((1, 5193, 8), (37, 409, 64)),
    "tie_small": ((37, 5025, 30), (130, 409, 40)),
    "tie_large": ((37, 5025, 30), (130, 409, 40)),
    **dict.fromkeys(CUT, ((37, 500, 204), (4, 1096, 51), (7, 208, 208))),
    "graph_ragged": ((37, 500, 204),),
    "pages_of_64": ((37, 500, 204), (6, 300, 320)),
}


@pytest.fixture
def probe(faults):
    return load("sampling_top_k", CASES=CASES)


def test_every_variant_is_tested_here(faults):
    original = load("sampling_top_k")
    assert {*original.PROBE["variants"]} == {*original.CASES} == {*PLAIN, *CUT} == {*CASES}


@pytest.mark.parametrize("variant", [*PLAIN, *CUT])
def test_a_right_selection_passes_and_is_measured(variant, probe):
    probe.build(variant)
    measured = probe.run(variant)
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert measured["rows_cut_in_a_tie"] > 0


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in (*PLAIN, *CUT) for fault in SELECTION_FAULTS),
        *((variant, fault) for variant in PLAIN for fault in PLAIN_FAULTS),
        *((variant, fault) for variant in CUT for fault in CUT_FAULTS),
        *((variant, fault) for variant in ("sorted", "graph_sorted") for fault in SORTED_FAULTS),
        *((variant, "ties_the_other_way") for variant in ("tie_small", "tie_large")),
        *((variant, fault) for variant in CUT[:2] for fault in ("offset_of_next_row", "padding_moved")),
        *((variant, fault) for variant in CUT[2:] for fault in PAGE_FAULTS),
        *(
            ("pages_of_64", fault)
            for fault in (
                "place_in_page_lost", "row_start_ignored", "table_start_ignored", "out_not_taken", "raw_in_other_order",
                "raw_written_behind",
            )
        ),
        ("graph_sorted", "graph_keeps_x"),
        ("graph_sorted", "graph_does_nothing"),
        *(("graph_ragged", f"graph_{what}") for what in ("keeps_x", "keeps_offsets", "keeps_lengths", "does_nothing")),
        ("sorted", "not_repeatable"),
        ("sorted", "input_changed"),
    ],
)  # fmt: skip
def test_a_fault_is_caught(variant, fault, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError, match=WRONG) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES


@pytest.mark.parametrize(
    ("fault", "told"), [("", "refused"), ("int64_lengths_misread", "misread"), ("int64_lengths_read", "right")]
)
def test_what_becomes_of_lengths_in_int64_is_told_without_a_verdict(fault, told, probe, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert probe.run("ragged")["int64_lengths"] == told
