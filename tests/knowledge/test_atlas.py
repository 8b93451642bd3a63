"""What was really built or run: that what ships is what the files say, and which of it is nearest to a question."""

import importlib

import factory as make
import pytest

from fi_doctor.knowledge import atlas
from fi_doctor.knowledge.atlas import Asked, Atlas, Compiled, Place, Ran
from fi_doctor.model import Ending, Stage

PLACES = (Place("one", gpu="NVIDIA H200"), Place("other", gpu="NVIDIA H100"))


def compiled(*, flashinfer="0.7.2.post1", nvcc="13.2", arch="100a", outcome="compiled", error="", place=0):
    return Compiled(flashinfer, "norm", nvcc, arch, outcome, error, 2, 70.2, 35.0, 915, place, "2026-11-29")


def ran(variant="bf16", outcome="verified", *, arch="90a", place=0, day="2026-11-28", modules=()):
    return Ran("0.7.2.post1", "norm.rmsnorm", variant, "13.0", arch, outcome, modules, place, day)


def build(asked, *rows, module="norm"):
    return atlas.nearest_build(Atlas(PLACES, rows, ()), asked, module)


def run(*rows, variants=()):
    asked = Asked("0.7.2.post1", "13.0", "100a")
    return atlas.nearest_run(Atlas(PLACES, (), rows), asked, "norm.rmsnorm", variants)


@pytest.fixture
def script(monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath / "benchmarks")
    return importlib.import_module("atlas_data")


def test_what_ships_is_what_rows_and_recorded_machines_say(script):
    assert script.written(script.made()) == atlas.PATH.read_bytes(), "python benchmarks/atlas_data.py"


def test_machines_that_were_made_faulty_say_nothing():
    names = {place.name for place in atlas.load().places}
    assert "2xh200-comm-flashinfer0.7.2.post1" in names
    assert "2xh200-stopped-rank-flashinfer0.7.2.post1" not in names


@pytest.mark.parametrize(
    ("cell", "outcome"),
    [
        (make.cell(), "verified"),
        (make.cell(stage=Stage.BUILT), "built"),
        (make.cell(stage=Stage.RAN, measurements={"refusal": "head size 45"}), "refused"),
        (make.cell(ending=Ending.WRONG), "wrong-result"),
        (make.cell(ending=Ending.RAISED, error="RuntimeError"), "raised"),
        (make.cell(ending=Ending.RAISED, error="torch.OutOfMemoryError"), ""),
        (make.cell(stage=Stage.IMPORTED), ""),
        (make.cell(ending=Ending.NOT_RUN), ""),
    ],
    ids=["verified", "built", "refused", "wrong", "raised", "no-memory", "imported", "not-run"],
)
def test_a_run_is_told_by_how_it_ended_and_what_says_nothing_of_a_kernel_is_left_out(script, cell, outcome):
    assert script.of_cell(cell) == outcome


def test_of_each_variant_the_worst_that_a_machine_saw_counts():
    known = Atlas(
        (Place("one", sm=90), Place("one", sm=90, jobs=8), Place("other", sm=90)),
        (),
        (
            ran(modules=("norm",)),
            ran(outcome="wrong-result", place=1),
            ran(place=2),
            ran(place=2, modules=("norm",)),
            ran("fp8", "built"),
            ran("fp8", "refused", place=2),
        ),
    )
    seen = known.seen["norm.rmsnorm", 90]
    assert {machine: row.outcome for machine, row in seen["bf16"].items()} == {
        "one": "wrong-result",
        "other": "verified",
    }
    assert seen["bf16"]["other"].modules == ("norm",)
    assert seen["fp8"] == {}
    assert list(known.without("one").seen["norm.rmsnorm", 90]["bf16"]) == ["other"]


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ({"arch": "100f"}, {"arch": "103a"}),
        ({"arch": "103a"}, {"arch": "90a"}),
        ({"arch": "120a"}, {"arch": "80"}),
        ({"flashinfer": "0.6.13"}, {"arch": "90a"}),
        ({"flashinfer": "0.7.1"}, {"flashinfer": "0.6.13"}),
        ({"flashinfer": "0.6.13"}, {"flashinfer": "0.5.3"}),
        ({"nvcc": "12.9"}, {"flashinfer": "0.7.1"}),
        ({"nvcc": "13.1"}, {"nvcc": "13.5"}),
        ({"nvcc": "13.5"}, {"nvcc": "12.9"}),
    ],
    ids=str,
)
def test_the_gpu_counts_most_then_the_release_then_nvcc(near, far):
    found = build(Asked("0.7.2.post1", "13.2", "100a"), compiled(**far), compiled(**near))
    assert found.row == compiled(**near)
    assert found.measured.differs


def test_what_was_measured_as_it_is_asked_is_exact():
    found = build(Asked("0.7.2.post1", "13.2", "100a"), compiled(nvcc="13.1"), compiled())
    assert found.measured.differs == ()
    assert found.measured.outcome == "compiles"
    assert found.measured.detail == "2 objects, 70 CPU s, 915 MiB"
    assert found.measured.place == "FlashInfer 0.7.2.post1, nvcc 13.2, sm_100a"


def test_a_number_without_a_suffix_and_no_nvcc_are_any():
    assert build(Asked("0.7.2.post1", "", "100"), compiled()).measured.differs == ()


def test_what_differs_is_told():
    asked = Asked("0.7.2.post1", "13.2", "100a")
    assert build(asked, compiled(arch="100f")).measured.differs == ("code for the GPU by another suffix",)
    assert build(asked, compiled(arch="103a", nvcc="13.0")).measured.differs == (
        "another GPU of that generation",
        "another nvcc",
    )
    assert build(asked, compiled(arch="90a", flashinfer="0.5.3")).measured.differs == (
        "another generation of GPUs",
        "another FlashInfer",
    )


def test_a_release_that_is_no_version_is_far_from_all():
    found = build(Asked("a-fork", "13.2", "100a"), compiled())
    assert found.distance.flashinfer == (9, 9, 9, 9)


def test_why_it_does_not_compile_is_told():
    measured = build(
        Asked("0.7.2.post1", "13.2", "100a"), compiled(outcome="failed", error="norm.cu(1): error")
    ).measured
    assert (measured.outcome, measured.detail) == ("does not compile", "norm.cu(1): error")


def test_other_modules_and_the_place_that_does_not_count_are_left_out():
    asked = Asked("0.7.2.post1", "13.2", "100a")
    assert build(asked, compiled(), module="rope") is None
    assert build(asked, compiled(), module="nor*").row == compiled()
    known = Atlas(PLACES, (compiled(), compiled(nvcc="13.1", place=1)), (ran(),)).without("one")
    assert atlas.nearest_build(known, asked, "norm").place.name == "other"
    assert atlas.nearest_run(known, asked, "norm.rmsnorm") is None


def test_of_equally_near_runs_the_newest_of_each_variant_counts_and_a_bad_one_is_told():
    assert run(ran(), ran("fp16", "wrong-result")).row.variant == "fp16"
    assert run(ran(outcome="raised"), ran(day="2026-11-29")).measured.outcome == "verified"
    assert run(ran(), ran(outcome="raised", day="2026-11-29")).measured.outcome == "raised"
    assert run(ran(), ran("fp16", "wrong-result"), variants=("bf16",)).measured.outcome == "verified"
    assert run(ran(arch="100a"), ran("fp16", "raised")).measured.outcome == "verified"


def test_a_long_name_of_a_module_is_cut_where_its_dtypes_begin():
    row = Compiled(
        "0.7.2", "batch_decode_with_kv_cache_dtype_q_bf16_x", "13.0", "90a", "compiled", "", 3, 1, 1, 1, 0, ""
    )
    [near] = [build(Asked("0.7.2", "13.0", "90a"), row, module="batch_decode*")]
    assert near.measured.subject == "batch_decode"


def test_what_it_takes_is_told_by_builds_for_that_generation_of_gpus_alone():
    asked = Asked("0.7.2.post1", "13.2", "103a")
    row, place = atlas.cost(Atlas(PLACES, (compiled(),), ()), asked, "norm")
    assert (row.units, row.cpu_s, row.peak_mib, place.name) == (2, 70.2, 915, "one")
    assert atlas.cost(Atlas(PLACES, (compiled(arch="90a"),), ()), asked, "norm") is None
    assert atlas.cost(Atlas(PLACES, (compiled(outcome="failed"),), ()), asked, "norm") is None
    assert atlas.cost(Atlas(PLACES, (compiled(),), ()), asked, "rope") is None
