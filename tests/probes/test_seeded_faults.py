"""Faults in at most one element of a hundred of one call, each caught by the probe's own check; no false alarms."""

import pytest

pytest.importorskip("torch").set_num_threads(1)

import loading  # noqa: E402
import seeded  # noqa: E402 - it imports torch
from seeded_kernels import KERNELS  # noqa: E402

from fi_doctor.model import CellOutcome, Ending, Stage  # noqa: E402

NOT_NUMBERS = {"import_flashinfer", "import_torch", "moe_fp8_block_gate"}  # nothing to compare
# Their faults are those of ranks that run side by side, and of what one GPU sends to another.
NEEDS_RANKS = {"comm_all2all", "comm_allreduce", "comm_allreduce_fusion", "comm_peer_transfer"}


def test_every_probe_that_compares_numbers_has_seeded_faults():
    files = {path.stem for path in loading.PROBES.glob("*.py")} - {"__init__"}
    assert {kernel.probe for kernel in KERNELS} == files - NOT_NUMBERS - NEEDS_RANKS


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda one: f"{one.probe}-{one.variant}")
def test_small_faults_are_caught_and_other_inputs_raise_no_alarm(kernel, faults):
    seen = seeded.seeded(kernel)
    assert [fault for fault, one in seen.items() if not one.caught] == []
    assert [fault for fault, one in seen.items() if not one.is_small()] == []
    measured = seeded.clean(kernel, seed=1)
    assert CellOutcome(variant="", stage=Stage.RAN, ending=Ending.RETURNED, detail="", measurements=measured).compares


def test_a_fault_that_changes_nothing_is_not_counted_as_caught(faults):
    with pytest.raises(AssertionError, match="changes nothing"):
        seeded.seeded(KERNELS[0]._replace(faults="no_such_fault"))


def test_what_the_tolerance_allows_is_not_counted_as_caught(faults):
    kernel = KERNELS[1]._replace(faults="sum_rounded_first")
    assert kernel.probe == "norm_fused_add_rmsnorm"
    seen = seeded.seeded(kernel)["sum_rounded_first"]
    assert seen.caught == ""
    assert seen.touched > 0


def test_the_seeds_of_a_clean_run_do_change_the_inputs(faults):
    kernel = next(kernel for kernel in KERNELS if kernel.probe == "moe_bf16")
    assert len({seeded.clean(kernel, seed)["largest_error_of_bound"] for seed in (0, 1)}) == 2
