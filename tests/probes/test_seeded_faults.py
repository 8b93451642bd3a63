"""Faults in at most one element of a hundred of one call, each caught by the probe's own check; no false alarms."""

import pytest

pytest.importorskip("torch").set_num_threads(1)

import seeded  # noqa: E402 - it imports torch

SLOW = ("attention_decode", "attention_sinks")  # seconds for a fault: benchmarks/seeded_faults.py takes them all
CASES = [
    (kernel, fault)
    for kernel in seeded.KERNELS
    for fault in kernel.faults[:: 6 if kernel.probe in SLOW else 1]
    if fault
]


def test_there_are_40_faults_and_more():
    assert len(CASES) >= 40


@pytest.mark.parametrize(("kernel", "fault"), CASES, ids=lambda one: getattr(one, "probe", one))
def test_a_small_fault_is_caught(kernel, fault, faults):
    seen = seeded.seeded(kernel, fault, faults)
    assert seen.caught
    assert 0 < seen.touched <= seen.elements / seeded.MOST


@pytest.mark.parametrize("kernel", seeded.KERNELS, ids=lambda one: f"{one.probe}-{one.variant}")
def test_other_inputs_raise_no_alarm(kernel, faults):
    first = seeded.clean(kernel)
    assert seeded.clean(kernel, seed=1).keys() == first.keys()


def test_a_fault_that_changes_nothing_is_not_counted_as_caught(faults):
    with pytest.raises(AssertionError, match="changes nothing"):
        seeded.seeded(seeded.KERNELS[0], "no_such_fault", faults)


def test_the_seeds_of_a_clean_run_do_change_the_inputs(faults):
    shares = {seeded.clean(kernel, seed)["largest_error_of_bound"] for kernel in seeded.KERNELS[-1:] for seed in (0, 1)}
    assert len(shares) == 2
