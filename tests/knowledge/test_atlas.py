"""What was really built or run: that what ships is what the files say, and which of it is nearest to a question."""

import pytest

from fi_doctor.knowledge import atlas
from fi_doctor.knowledge.atlas import Asked, Atlas, Compiled, Place, Ran

PLACES = (Place("one", gpu="NVIDIA H200"), Place("other", gpu="NVIDIA H100"), Place("stopped", is_faulty=True))


def compiled(*, flashinfer="0.7.2.post1", nvcc="13.2", arch="100a", outcome="compiled", error="", place=0):
    return Compiled(flashinfer, "norm", nvcc, arch, outcome, error, 2, 70.2, 35.0, 915, place, "2026-11-29")


def ran(variant="bf16", ending="returned", arch="90a", place=0, day="2026-11-28"):
    return Ran("0.7.2.post1", "norm.rmsnorm", variant, "13.0", arch, "verified", ending, place, day)


def build(asked, *rows, modules=("norm",), without=()):
    return atlas.nearest_build(asked, modules, atlas=Atlas(PLACES, rows, ()), without=without)


def run(*rows, variants=(), without=()):
    asked = Asked("0.7.2.post1", "13.0", "100a")
    return atlas.nearest_run(asked, "norm.rmsnorm", variants, atlas=Atlas(PLACES, (), rows), without=without)


def test_what_ships_is_what_rows_and_recorded_machines_say(monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath / "benchmarks")
    import atlas_data

    assert atlas_data.written(atlas_data.made()) == atlas.PATH.read_bytes(), "python benchmarks/atlas_data.py"


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
    assert found.measured.detail == "2 units, 70 CPU s, 915 MiB"
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


def test_other_modules_and_places_that_do_not_count_are_left_out():
    asked = Asked("0.7.2.post1", "13.2", "100a")
    assert build(asked, compiled(), modules=("rope",)) is None
    assert build(asked, compiled(), modules=()) is None
    assert build(asked, compiled(), compiled(nvcc="13.1", place=1), without=("one",)).place.name == "other"
    assert run(ran(), without=("one",)) is None
    assert run(ran(ending="raised", place=2)) is None


def test_of_equally_near_runs_the_newest_of_each_variant_counts_and_a_bad_one_is_told():
    assert run(ran(), ran("fp16", "wrong-result")).row.variant == "fp16"
    assert run(ran(ending="raised"), ran(day="2026-11-29")).measured.outcome == "verified"
    assert run(ran(), ran(ending="raised", day="2026-11-29")).measured.outcome == "raised"
    assert run(ran(), ran("fp16", "wrong-result"), variants=("bf16",)).measured.outcome == "verified"
    assert run(ran(arch="100a"), ran("fp16", "raised")).measured.outcome == "verified"


def test_a_long_name_of_a_module_is_cut_where_its_dtypes_begin():
    row = Compiled(
        "0.7.2", "batch_decode_with_kv_cache_dtype_q_bf16_x", "13.0", "90a", "compiled", "", 3, 1, 1, 1, 0, ""
    )
    [near] = [build(Asked("0.7.2", "13.0", "90a"), row, modules=("batch_decode",))]
    assert near.measured.subject == "batch_decode"


def test_what_it_takes_is_told_by_builds_for_that_generation_of_gpus_alone():
    asked = Asked("0.7.2.post1", "13.2", "103a")
    row, place = atlas.cost(asked, "norm", atlas=Atlas(PLACES, (compiled(),), ()))
    assert (row.units, row.cpu_s, row.peak_mib, place.name) == (2, 70.2, 915, "one")
    assert atlas.cost(asked, "norm", atlas=Atlas(PLACES, (compiled(arch="90a"),), ())) is None
    assert atlas.cost(asked, "norm", atlas=Atlas(PLACES, (compiled(outcome="failed"),), ())) is None
    assert atlas.cost(asked, "rope", atlas=Atlas(PLACES, (compiled(),), ())) is None
