"""The checks of softmax, renormalising, min-p and speculative sampling on the CPU: each fault is caught."""

import loading
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # the tensors are small, and the threads would wait for each other

SMALLER = {
    "sampling_softmax": {"VOCABULARIES": (111, 1021), "BATCHES": (1, 7)},
    "sampling_renorm": {"VOCABULARIES": (509, 1024)},
    "sampling_min_p": {"VOCABULARIES": (509, 1024), "CALLS": 8, "WIDE_COPIES": 256, "SMALL_COPIES": 512},
    "sampling_chain_speculative": {"VOCABULARIES": (111, 512)},
}
DRAW_FAULTS = ("end_of_vocabulary_never", "token_behind_vocabulary", "negative_token", "last_row_lost")
SEED_FAULTS = ("generator_ignored", "generator_not_advanced", "rows_share_a_number")
FAULTS = {
    ("sampling_softmax", "plain"): (
        "maximum_not_taken_off",
        "tail_dropped",
        "mask_leaks",
        "one_element_off",
        "nan_element",
        "last_row_dropped",
        "input_changed",
    ),
    ("sampling_softmax", "one_temperature"): ("temperature_ignored", "one_element_off"),
    ("sampling_softmax", "temperature_of_each_row"): (
        "temperature_ignored",
        "first_temperature_for_all",
        "nan_element",
    ),
    ("sampling_softmax", "graph_temperature_of_each_row"): ("stale_output", "first_temperature_for_all"),
    ("sampling_renorm", "top_p_renorm"): (
        "top_p_ignored",
        "first_p_for_all",
        "top_p_too_large",
        "one_token_lost",
        "not_normalised",
        "one_element_off",
        "nan_element",
    ),
    ("sampling_renorm", "top_k_renorm"): (
        "top_k_ignored",
        "first_k_for_all",
        "one_token_too_many",
        "tie_lost",
        "one_token_lost",
        "not_normalised",
        "one_element_off",
        "nan_element",
    ),
    ("sampling_renorm", "top_k_mask"): (
        "top_k_ignored",
        "one_token_too_many",
        "one_token_lost",
        "masked_with_zero",
        "logit_changed",
    ),
    ("sampling_min_p", "min_p"): (
        *DRAW_FAULTS,
        *SEED_FAULTS,
        "min_p_ignored",
        "first_min_p_for_all",
        "largest_ignored",
        "min_p_too_small",
        "rare_stray_token",
    ),
    ("sampling_min_p", "from_probs"): (*DRAW_FAULTS, *SEED_FAULTS, "mask_leaks"),
    ("sampling_min_p", "from_logits"): (*DRAW_FAULTS, *SEED_FAULTS, "mask_leaks"),
    ("sampling_chain_speculative", "support"): (
        "always_accepts",
        "resamples_from_target",
        "padding_missing",
        "draft_shifted",
        "count_not_added",
        "count_returned_apart",
        "emitted_off_by_one",
    ),
    ("sampling_chain_speculative", "law"): (
        "accepts_too_often",
        "always_accepts",
        "resamples_from_target",
        "resamples_from_draft_too",
        "bonus_from_draft_place",
        "generator_ignored",
    ),
}


@pytest.fixture
def load(faults, monkeypatch):
    """load("sampling_softmax"): the probe, on vocabularies for a CPU."""

    def load(name):
        return loading.load(name, **SMALLER[name])

    return load


def test_every_variant_is_tested_here(load):
    assert {(name, variant) for name in SMALLER for variant in load(name).PROBE["variants"]} == set(FAULTS)


@pytest.mark.parametrize(("name", "variant"), FAULTS)
def test_right_kernels_pass_and_are_measured(name, variant, load):
    probe = load(name)
    probe.build(variant)
    measured = probe.run(variant)
    assert measured
    assert all(isinstance(value, (bool, int, float, str)) for value in measured.values()), measured


@pytest.mark.parametrize("case", [(*key, fault) for key, found in FAULTS.items() for fault in found], ids="-".join)
def test_a_fault_is_caught(case, load, faults, monkeypatch):
    name, variant, fault = case
    probe = load(name)
    monkeypatch.setattr(faults, "ACTIVE", fault)
    with pytest.raises(AssertionError) as caught:
        probe.run(variant)
    assert str(caught.value)


def test_the_law_of_a_chain_adds_up_to_one(load):
    probe = load("sampling_chain_speculative")
    draft, tokens, target = probe._rows(37, 3, probe._generator(1))
    for row in range(5):
        assert probe._law(draft[row], tokens[row], target[row]).nan_to_num().sum().item() == pytest.approx(1, abs=1e-5)
