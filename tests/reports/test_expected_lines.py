"""What is said of a target's rows at their start."""

from __future__ import annotations

import pytest
import report_samples as samples
from msgspec.structs import replace

from fi_doctor.model import Evidence, Verdict
from fi_doctor.model.expected import Expectations, Expected, FirstStarts, Start
from fi_doctor.model.targets import Target
from fi_doctor.reports import expected, render
from fi_doctor.reports.answer import meanings

ATTENTION = "batch_prefill_with_kv_cache_dtype_q_bf16_head_dim_qk_{}"
ROWS = (
    Expected(
        feature="norm.rmsnorm",
        sm=90,
        start=Start.COMPILES,
        modules=("norm",),
        objects=2,
        cpu_seconds=78.0,
        memory_mib=922,
        measured=("h200-cuda13.0 (nvcc 13.0)",),
    ),
    Expected(
        feature="attention.prefill",
        sm=90,
        start=Start.COMPILES,
        modules=(ATTENTION.format(64), ATTENTION.format(128)),
        objects=20,
        cpu_seconds=900.0,
        memory_mib=4300,
    ),
    Expected(feature="rope.apply", sm=90, start=Start.FROM_IMAGE),
    Expected(feature="moe.b12x", sm=90, start=Start.CANNOT, why="it is for SM120"),
    Expected(
        feature="lora.bgmv", sm=90, start=Start.UNKNOWN, why="it was not measured on SM90", doubt="no machine told"
    ),
)
WHO = "What vLLM calls without a flag, of which a model takes a part, compiles at a first start there"
FIRST = FirstStarts(rows=("norm.rmsnorm",), modules=("norm",), objects=2, seconds=50.0, jobs=2, memory_mib=922)


def report(rows=ROWS, first=FIRST):
    judged = [samples.row(one.feature, Verdict.UNKNOWN, Evidence.DECLARED, "not run") for one in rows]
    return samples.report(
        tuple(judged), target=Target(words="h200", sm=90), expected=Expectations(rows=rows, first_start=first)
    )


def test_each_way_to_start_has_its_rows():
    assert expected.lines(report()) == [
        f"{WHO} 1 module: 2 objects, under 1 min with 2 jobs of up to 0.9 GiB",
        "cannot: moe.b12x",
        "compiles 2 x batch_prefill_with_kv_cache_* (20 objects, 900 CPU s, 4.2 GiB, estimated): attention.prefill",
        "compiles norm (2 objects, 78 CPU s, 0.9 GiB, as on h200-cuda13.0 (nvcc 13.0)): norm.rmsnorm",
        "start from the image: rope.apply",
        "start not known, since no machine told: lora.bgmv",
        "open: it was not measured on SM90: lora.bgmv",
    ]


@pytest.mark.parametrize("form", ["console", "markdown", "html"])
def test_texts_have_it(form):
    assert "start from the image: rope" in render(report(), form, width=200).replace("\\", "")
    assert expected.TITLE not in render(samples.all_good(), form)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (FirstStarts(), "compiles at a first start there nothing that is known of"),
        (FirstStarts(is_asked=True), "What is required compiles at a first start there nothing"),
        (
            FirstStarts(cannot=("norm.rmsnorm",)),
            "compiles at a first start there nothing, as norm.rmsnorm cannot be compiled",
        ),
        (replace(FIRST, cannot=("moe.bf16",)), "with 2 jobs of up to 0.9 GiB; moe.bf16 cannot be compiled"),
        (FirstStarts(unknown=("moe.nvfp4",)), "; what moe.nvfp4 would compile is not known"),
    ],
)
def test_a_first_start_of_which_little_is_known(first, said):
    assert said in expected.first_start_line(first)


def test_what_does_not_hold_was_not_measured():
    assert "measured" not in meanings(report())[1]
    assert meanings(samples.all_good())[1] == "measured, and does not hold"
