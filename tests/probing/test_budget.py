"""The line that settles what a budget left out asks the same of one feature, with enough time."""

import shlex

import factory as make
import pytest
from msgspec.structs import replace
from test_plan import SPEC

from fi_doctor.model import Depth, Missing, Request
from fi_doctor.probing import ahead, budget, estimates

ASKED = Request(depth=Depth.BUILD, budget_s=60)  # as deep as a machine without a GPU allows


@pytest.fixture
def settle(bare_facts):
    def line(facts=bare_facts, needed_s=1.0, **asked):
        return budget.settle("norm.rmsnorm", facts, replace(ASKED, **asked), needed_s=needed_s)

    return line


def test_nothing_is_added_that_was_not_asked_for(settle):
    assert settle() == "fi-doctor check --feature norm.rmsnorm --budget 1m"


def test_another_interpreter_is_named_and_quoted(settle, bare_facts):
    other = replace(bare_facts.interpreter, is_own=False, executable="/my env/bin/python")
    words = shlex.split(settle(replace(bare_facts, interpreter=other)))
    assert words[2:4] == ["--python", "/my env/bin/python"]


@pytest.mark.parametrize(
    ("order", "depth", "named"),
    [
        (("GPU-a",), Depth.RUN, False),
        (("GPU-a",), Depth.BUILD, True),
        ((), Depth.BUILD, False),
        (Missing(reason="no libcuda.so.1"), Depth.BUILD, False),
        ((), Depth.RUN, True),
    ],
    ids=["gpu-run", "gpu-build", "hidden-build", "none-build", "none-run"],
)
def test_the_depth_is_named_where_it_is_not_what_the_machine_allows(settle, bare_facts, order, depth, named):
    facts = replace(bare_facts, gpus=replace(bare_facts.gpus, cuda_order=order))
    assert (f"--depth {depth}" in settle(facts, depth=depth)) == named


def test_fresh_cache_and_jobs_are_kept(settle):
    assert settle(fresh_cache=True, jobs=3) == (
        "fi-doctor check --feature norm.rmsnorm --fresh-cache --jobs 3 --budget 1m"
    )


@pytest.mark.parametrize(
    ("needed_s", "budget_s", "minutes"),
    [(0.0, 0.5, 1), (61.0, 0.5, 2), (120.0, 0.5, 2), (10.0, 600.0, 10), (10.0, 601.0, 11), (1e7, 604800.0, 10080)],
    ids=["least", "up", "even", "no-less-than-there-were", "no-less-rounded", "a-week-at-most"],
)
def test_the_minutes_suffice(settle, needed_s, budget_s, minutes):
    assert settle(needed_s=needed_s, budget_s=budget_s).endswith(f" --budget {minutes}m")


def test_twice_the_estimate_and_what_was_used_are_asked_for(bare_facts):
    said = budget.used_up(SPEC, bare_facts, ASKED, how="used up while building", used_s=58.0, fresh=False)
    assert said == (  # 7 s to import, 5 s to run and 50 s to build the norm module
        "budget of 60 s used up while building; estimated 62 s; settle it with: "
        "fi-doctor check --feature norm.rmsnorm --budget 4m"
    )


def test_the_command_that_warms_keeps_what_was_asked_for_and_the_interpreter(bare_facts):
    other = replace(bare_facts.interpreter, is_own=False, executable="/my env/bin/python")
    asked = replace(ASKED, features=("moe.*", "norm.rmsnorm"), jobs=8, memory_mib=4096)
    assert shlex.split(budget.warm(replace(bare_facts, interpreter=other), asked)) == [
        *("fi-doctor", "warm", "--python", "/my env/bin/python", "--feature", "moe.*", "--feature", "norm.rmsnorm"),
        *("--jobs", "8", "--memory", "4096m"),
    ]
    assert budget.warm(bare_facts, ASKED) == "fi-doctor warm"
    assert budget.warm(bare_facts, ASKED, is_all=True) == "fi-doctor warm --all"


def test_nothing_is_kept_for_runs_where_nothing_runs_and_never_most_of_the_budget():
    built = make.planned(spec=make.spec(module="norm", has_build=True), depth=Depth.BUILD)
    run = replace(built, depth=Depth.RUN)
    assert ahead.kept_for_runs_s([run], 600.0, 16) == 20.0
    assert ahead.kept_for_runs_s([built], 600.0, 16) == 5.0
    assert ahead.kept_for_runs_s([run], 60.0, 16) == 15.0
    assert ahead.kept_for_runs_s([run] * 60, 600.0, 16) == 50.0


def test_what_was_typed_is_printed_back_as_it_was(settle, bare_facts):
    asked = {"memory_mib": 65536, "typed": {"--memory": "64g", "--budget": "2h"}}
    assert "--memory 64g --budget 1m" in settle(**asked)
    assert budget.warm(bare_facts, replace(ASKED, **asked), is_forced=True) == (
        "fi-doctor warm --anyway --memory 64g --budget 2h"
    )
    assert budget.look(bare_facts, replace(ASKED, **asked), ["moe.bf16"]) == (
        "fi-doctor check --feature moe.bf16 --memory 64g"
    )


def test_long_names_of_modules_are_told_by_what_they_begin_with():
    name = "batch_prefill_with_kv_cache_dtype_q_bf16_dtype_kv_bf16_head_dim_qk_{}_head_dim_vo_{}_sm90"
    many = {name.format(size, size): 10 for size in (64, 128)}
    assert budget.not_compiled(many, 16, estimates.ANYWHERE).startswith(
        "batch_prefill_with_kv_cache_dtype_q_* (2 modules) are not compiled: 20 objects, estimated "
    )
    one = {name.format(64, 64): 10}
    assert budget.not_compiled(one, 16, estimates.ANYWHERE).startswith("batch_prefill_with_kv_cache_dtype_q_* is not")
    assert budget.not_compiled({"fused_moe_90": 248}, 16, estimates.ANYWHERE).startswith("fused_moe_90 is not compiled")
