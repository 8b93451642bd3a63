"""The checks of the quantisers' probes, on the CPU against a stand-in: right kernels pass, each fault is caught."""

from pathlib import Path

import pytest
from loading import load

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

PROBES = Path(__file__).parents[2] / "probes"
WRONG = r"are wrong|was changed|beside an output|not one byte|are not zero"
LAYOUT_FAULTS = ("layouts_exchanged", "scale_of_next_block", "scale_a_step_up", "last_scale_unwritten", "does_nothing")
E2M1_FAULTS = ("ties_up", "rounded_toward_zero", "largest_is_4", "sign_lost", "halves_swapped")
OTHER_FAULTS = ("last_row_unwritten", "written_beside", "input_changed")
GRAPH_FAULTS = ("graph_keeps_input", "graph_does_nothing")
FP4 = ("swizzled_128x4", "swizzled_8x4", "linear", "graph_swizzled", "interleave")

MXFP4 = ("swizzled", "linear", "graph_swizzled")
MXFP8 = ("swizzled", "linear", "padded", "graph_swizzled")
E4M3_FAULTS = ("ties_up", "rounded_toward_zero", "largest_is_240", "sign_lost")


@pytest.fixture
def fp4(faults):
    return load("quant_fp4")


@pytest.fixture
def mxfp4(faults):
    return load("quant_mxfp4")


@pytest.fixture
def mxfp8(faults):
    return load("quant_mxfp8")


def assert_caught(probe, variant, match=WRONG):
    with pytest.raises(AssertionError, match=match) as caught:
        probe.run(variant)
    assert Path(caught.traceback[-1].path).parent == PROBES


def assert_measured(measured):
    assert all(isinstance(value, (int, float, str)) for value in measured.values()), measured
    assert measured["wrong_elements"] == 0
    assert measured["scales"] > 1000


def test_every_variant_of_nvfp4_is_tested_here(fp4):
    assert tuple(fp4.PROBE["variants"]) == FP4


@pytest.mark.parametrize("variant", FP4)
def test_a_right_nvfp4_quantiser_passes_and_is_measured(variant, fp4):
    import flashinfer.fp4_quantization

    fp4.build(variant)
    assert flashinfer.fp4_quantization.BUILT == ["90"]
    measured = fp4.run(variant)
    assert_measured(measured)
    assert variant == "interleave" or measured["exact_ties"] > 100


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in FP4[:4] for fault in (*LAYOUT_FAULTS, "global_scale_ignored")),
        *((variant, fault) for variant in FP4[2:4] for fault in E2M1_FAULTS),
        *(("swizzled_8x4", fault) for fault in (*OTHER_FAULTS, "padding_unwritten")),
        *(("graph_swizzled", fault) for fault in (*GRAPH_FAULTS, "graph_keeps_global_scale")),
        *(("interleave", fault) for fault in (*LAYOUT_FAULTS, "padding_unwritten")),
    ],
)
def test_a_fault_of_an_nvfp4_quantiser_is_caught(variant, fault, fp4, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(fp4, variant)


def test_every_variant_of_mxfp4_is_tested_here(mxfp4):
    assert tuple(mxfp4.PROBE["variants"]) == MXFP4


@pytest.mark.parametrize("variant", MXFP4)
def test_a_right_mxfp4_quantiser_passes_and_is_measured(variant, mxfp4):
    mxfp4.build(variant)
    measured = mxfp4.run(variant)
    assert_measured(measured)
    assert measured["exact_ties"] > 1000


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in MXFP4 for fault in (*LAYOUT_FAULTS, "exponent_rounded_down")),
        *((variant, fault) for variant in MXFP4[1:] for fault in E2M1_FAULTS),
        *(("swizzled", fault) for fault in (*OTHER_FAULTS, "padding_unwritten")),
        *(("graph_swizzled", fault) for fault in GRAPH_FAULTS),
    ],
)
def test_a_fault_of_an_mxfp4_quantiser_is_caught(variant, fault, mxfp4, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(mxfp4, variant)


def test_every_variant_of_mxfp8_is_tested_here(mxfp8):
    assert tuple(mxfp8.PROBE["variants"]) == MXFP8


@pytest.mark.parametrize("variant", MXFP8)
def test_a_right_mxfp8_quantiser_passes_and_is_measured(variant, mxfp8):
    mxfp8.build(variant)
    measured = mxfp8.run(variant)
    assert_measured(measured)
    assert measured["exact_ties"] > 1000


@pytest.mark.parametrize(
    ("variant", "fault"),
    [
        *((variant, fault) for variant in MXFP8 for fault in (*LAYOUT_FAULTS, "exponent_rounded_down")),
        *((variant, fault) for variant in MXFP8[2:] for fault in E4M3_FAULTS),
        *(("swizzled", fault) for fault in (*OTHER_FAULTS, "padding_unwritten")),
        ("padded", "padding_unwritten"),
        *(("graph_swizzled", fault) for fault in GRAPH_FAULTS),
    ],
)
def test_a_fault_of_an_mxfp8_quantiser_is_caught(variant, fault, mxfp8, faults, monkeypatch):
    monkeypatch.setattr(faults, "ACTIVE", fault)
    assert_caught(mxfp8, variant)


@pytest.mark.parametrize("name", ["quant_fp4", "quant_mxfp4", "quant_mxfp8"])
@pytest.mark.parametrize("pattern", [(0x5A,), (0xA5,)])
def test_nothing_written_is_told_from_something_wrong(name, pattern, faults, monkeypatch):
    probe = load(name)
    monkeypatch.setattr(faults, "ACTIVE", "does_nothing")
    monkeypatch.setattr(probe, "PATTERNS", pattern)
    assert_caught(probe, "linear", "1 rows of bf16.*not one byte of the values was written")
