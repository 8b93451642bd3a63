"""What the checks of gelu_and_mul and gelu_tanh_and_mul let through and what they catch, on the CPU."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

SMALLER = {"SIZES": (8, 888, 8200), "BATCH_SIZES": (1, 19), "GRAPH_SHAPES": ((1, 304), (19, 888))}
NAMES = ("activation_gelu_and_mul", "activation_gelu_tanh_and_mul")
FAULTS = {
    "bf16": (
        "nan_element",
        "inf_element",
        "zero_element",
        "neighbour_element",
        "one_element_off",
        "written_behind",
        "not_written",
        "last_row_dropped",
        "tail_dropped",
        "input_changed",
        "out_ignored",
        "returns_copy",
        "gate_and_up_swapped",
        "up_ignored",
        "silu",
        "quick",
    ),
    "fp16": ("nan_element", "one_element_off", "tail_dropped", "gate_and_up_swapped", "quick"),
    "graph_bf16": ("graph_keeps_input", "graph_does_nothing", "nan_element", "last_row_dropped"),
}
OWN_FAULTS = [
    ("activation_gelu_and_mul", "bf16", "tanh"),
    ("activation_gelu_and_mul", "bf16", "rounded_twice"),
    ("activation_gelu_and_mul", "fp16", "tanh"),
    ("activation_gelu_tanh_and_mul", "bf16", "erf"),
    ("activation_gelu_tanh_and_mul", "fp16", "erf"),
    ("activation_gelu_tanh_and_mul", "fp16", "cubic_term_off"),
]


def load(name, monkeypatch):
    return loading.load(name, **SMALLER)


@pytest.mark.parametrize("variant", FAULTS)
@pytest.mark.parametrize("name", NAMES)
def test_right_kernels_pass_and_use_the_tolerance(name, variant, fake, monkeypatch):
    module = load(name, monkeypatch)
    assert set(module.PROBE["variants"]) == set(FAULTS)
    module.build(variant)
    measured = module.run(variant)
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured
    assert 1 / 8 <= measured["share_of_tolerance"] <= 1


@pytest.mark.parametrize(
    ("name", "variant", "fault"),
    [(name, variant, fault) for name in NAMES for variant, faults in FAULTS.items() for fault in faults] + OWN_FAULTS,
)
def test_a_fault_is_caught(name, variant, fault, fake, monkeypatch):
    module = load(name, monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        module.run(variant)
    assert str(caught.value)


@pytest.mark.parametrize("variant", ["bf16", "fp16"])
def test_the_precision_of_the_tanh_instruction_is_allowed(variant, fake, monkeypatch):
    module = load("activation_gelu_tanh_and_mul", monkeypatch)
    monkeypatch.setattr(fake, "ACTIVE", "tanh_of_11_bits")
    measured = module.run(variant)
    assert abs(measured["part_of_erf"]) < module.MOST_OF_ERF / 4
