"""Beside a live server: what a gentle check leaves to others, what it leaves out, and that it says so."""

import os
import subprocess
import sys

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.cli import yielding
from fi_doctor.model import Depth, Ending, Request, Silent
from fi_doctor.probing import memory, run

USUAL = Request(depth=Depth.RUN)
GENTLE = replace(USUAL, gentle=True)


def facts(free_mib=143000, **changes):
    made = make.facts(gpus=make.gpu_facts(make.gpu(memory_free_mib=free_mib)))
    return replace(made, system=replace(made.system, **{"cpus": 16, "memory_available_mib": 40000, **changes}))


def planned(**changes):
    return make.planned("moe.bf16", **{"gpu_uuids": ("GPU-00000000",), "depth": Depth.RUN, **changes})


def test_it_takes_a_quarter_of_the_cpus_and_half_of_the_free_memory():
    assert (memory.usable_jobs(facts(), USUAL), memory.usable_jobs(facts(), GENTLE)) == (16, 4)
    assert memory.usable_jobs(facts(cpus=2), GENTLE) == 1
    assert memory.budget_mib(facts(), GENTLE) == memory.budget_mib(facts(), USUAL) // 2


def test_what_was_asked_for_is_taken():
    asked = replace(GENTLE, jobs=9, memory_mib=1234)
    assert (memory.usable_jobs(facts(), asked), memory.budget_mib(facts(), asked)) == (9, 1234)


@pytest.mark.parametrize(("free_mib", "bound"), [(143000, memory.GPU_MIB), (5000, 2500)])
def test_probes_take_no_more_than_half_of_what_a_gpu_has_free(free_mib, bound):
    assert memory.gpu_budget_mib(facts(free_mib), GENTLE) == bound
    assert memory.gpu_budget_mib(facts(free_mib), USUAL) == memory.GPU_MIB


@pytest.mark.parametrize(
    ("free_mib", "said"),
    [(143000, ""), (3000, "half of what is free is 1500 MiB"), (make.missing(), "is not known")],
    ids=["room", "no room", "unknown"],
)
def test_a_probe_for_which_there_is_no_room_is_not_run_and_says_so(free_mib, said):
    machine = facts(free_mib)
    assert said in memory.too_large(planned(), machine, GENTLE)
    assert bool(memory.too_large(planned(), machine, GENTLE)) == bool(said)
    if said:
        [outcome], _ = run.run_all([planned()], facts=machine, request=GENTLE, watch=Silent(), environ={})
        assert outcome.ending is Ending.NOT_RUN
        assert said in outcome.detail


@pytest.mark.parametrize("changes", [{"gpu_uuids": ()}, {"depth": Depth.BUILD}], ids=str)
def test_what_runs_nothing_on_a_gpu_always_has_room(changes):
    assert memory.too_large(planned(**changes), facts(10), GENTLE) == ""


def test_without_it_there_is_always_room():
    assert memory.too_large(planned(), facts(10), USUAL) == ""


def test_the_report_says_what_was_held_back_and_nothing_without_it():
    [said] = memory.held_back(facts(5000), GENTLE)
    assert "4 of 16 CPUs" in said
    assert "2500 MiB of a GPU for all probes together, of 5000 that are free" in said
    assert memory.held_back(facts(), USUAL) == ()


def test_who_gives_way_has_the_least_priority_and_so_has_what_it_starts():
    code = (
        "import os, subprocess, sys\nfrom fi_doctor.cli import yielding\nyielding.give_way()\n"
        "show = 'import os; print(os.getpriority(0, 0), open(\"/proc/self/oom_score_adj\").read().strip())'\n"
        "subprocess.run([sys.executable, '-c', show])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "19 800\n", done.stderr
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_what_is_refused_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(yielding, "_OOM", tmp_path / "none")
    monkeypatch.setattr(os, "setpriority", lambda *_: (_ for _ in ()).throw(PermissionError))
    monkeypatch.setattr(yielding, "_NUMBERS", {})
    yielding.give_way()
