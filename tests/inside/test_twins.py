"""What is written twice, since inside/ imports nothing of ours and runs elsewhere, is the same."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fi_doctor.inside import ninja
from fi_doctor.inside.jobs import Budget
from fi_doctor.model import words
from fi_doctor.probing import estimates


def test_a_command_that_said_nothing_is_called_the_same_on_both_sides():
    assert ninja.SILENT == words.SILENT


@pytest.mark.parametrize("jobs", [1, 2, 8, 64])
@pytest.mark.parametrize("memory_mib", [0, 1, 999, 1000, 1001, 7999, 8000, 1 << 20])
@pytest.mark.parametrize("peak_mib", [0, 1, 500, 1000, 4096, 1 << 21])
def test_memory_carries_as_many_jobs_as_fi_doctor_estimates(jobs, memory_mib, peak_mib):
    module = SimpleNamespace(name="norm")
    work = SimpleNamespace(name="norm", modules=[module], objects=1)
    budget = Budget(jobs, memory_mib, {"norm": peak_mib})
    assert budget.allowed([work]) == estimates.carried(jobs, memory_mib, peak_mib)
