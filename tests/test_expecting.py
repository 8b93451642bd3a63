"""What is expected of rows on a machine that is not here."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import expecting, knowledge, pipeline
from fi_doctor.diagnosis import foretelling
from fi_doctor.knowledge import atlas
from fi_doctor.model import (
    Depth,
    Evidence,
    Finding,
    Missing,
    Policy,
    Request,
    Requirement,
    Requires,
    Scope,
    Severity,
    Verdict,
)
from fi_doctor.model.expected import Start
from fi_doctor.model.targets import Target
from fi_doctor.probing import plan
from fi_doctor.reports.expected import warm_list

KB = knowledge.load()
WORKS = Verdict.WORKS
RELEASE = "0.7.2.post1"
SPEC = make.spec("norm.rmsnorm", module="norm", has_build=True)
STATIC = Request(depth=Depth.STATIC)


def run(machine="one", *, outcome="verified", variant="", flashinfer=RELEASE, nvcc="13.0", sm=90):
    """A machine, what it ran and what it compiled."""
    arch, day = f"{sm}a", "2026-11-29"
    ran = atlas.Ran(flashinfer, "norm.rmsnorm", variant, nvcc, arch, outcome, ("norm",), 0, day)
    built = atlas.Compiled(flashinfer, "norm", nvcc, arch, "compiled", "", 2, 80.0, 40.0, 900, 0, day)
    return atlas.Place(machine, gpu="NVIDIA H200", sm=sm), built, ran


def known_of(*machines):
    """An atlas of them."""
    placed = [[replace(row, place=place) for row in rows] for place, (_, *rows) in enumerate(machines)]
    built, ran = zip(*placed, strict=True) if placed else ((), ())
    return atlas.Atlas(tuple(machine[0] for machine in machines), tuple(built), tuple(ran))


def report(*machines, known=None, facts=None, spec=SPEC, request=STATIC):
    facts = facts or make.facts(gpus=make.gpu_facts(make.gpu()))
    return pipeline.conclude(
        request,
        kb=KB,
        facts=facts,
        planned=plan.plan((spec,), facts, request),
        outcomes=(),
        created="",
        target=Target(words="h200", sm=90),
        known=known or known_of(*machines),
    )


def row_of(found, name="norm.rmsnorm"):
    return next(one for one in found.features if one.feature == name)


def expected_of(found, name="norm.rmsnorm"):
    return next(one for one in found.expected.rows if one.feature == name)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([run()], ("works", "predicted")),
        ([run(), run("other")], ("works", "predicted")),
        ([run(outcome="wrong-result")], ("wrong-result", "predicted")),
        ([run(), run("other", outcome="wrong-result")], ("unknown", "declared")),
        ([run(flashinfer="0.7.1")], ("unknown", "declared")),
        ([run(sm=100)], ("unknown", "declared")),
        ([run(nvcc="12.9")], ("unknown", "declared")),
        ([run(variant="bf16")], ("unknown", "declared")),
        ([], ("unknown", "declared")),
    ],
    ids=["ran", "ran-twice", "failed", "both", "release", "gpu", "toolkit", "variant", "nothing"],
)
def test_a_row_is_foretold_as_machines_of_its_kind_showed_it(known, said):
    row = row_of(report(*known))
    assert (row.verdict.value, row.evidence.value) == said


def test_what_is_foretold_names_its_machine():
    found = report(run("h200-here"), run("h200-there"))
    assert "it ran on NVIDIA H200 with this release (h200-here and 1 more, nvcc 13.0)" in row_of(found).why
    assert expected_of(found).leans_on == ("h200-here", "h200-there")


@pytest.mark.parametrize(
    "facts",
    [
        make.facts(gpus=make.gpu_facts(make.gpu()), toolkit=make.without_nvcc()),
        make.facts(gpus=make.gpu_facts(make.gpu()), flashinfer=make.flashinfer(architectures=("80",))),
    ],
    ids=["no-nvcc", "architectures"],
)
def test_what_cannot_be_compiled_here_is_not_said_to_work(facts):
    assert row_of(report(run(), facts=facts)).verdict is not WORKS


@pytest.mark.parametrize(
    ("features", "severity", "is_foretold"),
    [
        (("norm.rmsnorm",), Severity.WARNING, False),
        (("rope.apply",), Severity.ERROR, True),
        ((), Severity.ERROR, False),  # which rows it concerns is not told
        ((), Severity.WARNING, True),
    ],
)
def test_what_a_finding_stands_against_is_not_said_to_work(features, severity, is_foretold):
    facts = make.facts(gpus=make.gpu_facts(make.gpu()))
    on = expecting.basis(KB, facts, plan.plan((SPEC,), facts, STATIC), STATIC, known_of(run()))
    finding = Finding(
        id="some-rule",
        cause="c",
        severity=severity,
        title="",
        why="",
        fix=(),
        features=features,
        source="",
    )
    assert expecting.foresee(on, (), ()).seen
    assert bool(expecting.foresee(on, (), (finding,)).seen) is is_foretold


def test_several_gpus_are_needed_where_the_probe_needs_them():
    spec = make.spec("norm.rmsnorm", module="norm", has_build=True, gpus=2)
    two = make.facts(gpus=make.gpu_facts(make.gpu(), make.gpu(index=1)))
    assert row_of(report(run(), spec=spec)).verdict is Verdict.UNKNOWN
    assert row_of(report(run(), spec=spec, facts=two)).verdict is WORKS


def test_a_row_compiles_what_is_not_in_the_image():
    one = expected_of(report(run("here")))
    assert (one.start, one.modules, one.objects, one.cpu_seconds) == (Start.COMPILES, ("norm",), 2, 80.0)
    assert (one.memory_mib, one.measured) == (900, ("here (nvcc 13.0)",))


@pytest.mark.parametrize("built", ["cached_modules", "jit_cache_modules"])
def test_a_row_starts_from_the_image_where_that_has_its_modules(built):
    facts = make.facts(gpus=make.gpu_facts(make.gpu()), flashinfer=make.flashinfer(**{built: ("norm",)}))
    assert expected_of(report(run(), facts=facts)).start is Start.FROM_IMAGE


@pytest.mark.parametrize(
    ("tags", "start"),
    [
        (("90a",), Start.FROM_IMAGE),
        (("80", "90a"), Start.FROM_IMAGE),
        (("100a", "120f"), Start.COMPILES),
        (("80",), Start.COMPILES),
        (make.missing("it does not record its architectures"), Start.FROM_IMAGE),
    ],
    ids=["same", "several", "others", "older", "not-told"],
)
def test_what_jit_cache_has_for_other_gpus_is_compiled(tags, start):
    package = make.flashinfer(jit_cache_modules=("norm",), jit_cache_architectures=tags)
    facts = make.facts(gpus=make.gpu_facts(make.gpu()), flashinfer=package)
    assert expected_of(report(run(), facts=facts)).start is start


def test_what_was_compiled_without_a_gpu_says_what_it_takes():
    row = atlas.Compiled(RELEASE, "norm", "13.2", "90a", "compiled", "", 2, 70.2, 35.0, 915, 0, "2026-11-29")
    one = expected_of(report(known=atlas.Atlas((atlas.Place("rows"),), (row,), ())))
    assert (one.objects, one.cpu_seconds, one.memory_mib) == (2, 70.2, 915)
    assert one.measured == ("rows (nvcc 13.2, sm_90a)",)


def test_a_row_that_nobody_ran_is_estimated_by_its_probe():
    one = expected_of(report())
    assert (one.start, one.modules, one.measured) == (Start.COMPILES, ("norm",), ())
    assert one.cpu_seconds > 0
    assert "nothing is known against it" in one.why


def test_a_row_of_which_nothing_is_foretold_says_why():
    assert row_of(report()).why.endswith("not run: it was not measured on SM90, and nothing is known against it")
    said = "it ran on NVIDIA H200 with FlashInfer 0.7.1 and nvcc 13.0 (one), the nearest that was measured"
    known = (run("far", flashinfer="0.5.3"), run("one", flashinfer="0.7.1"))
    assert row_of(report(*known)).why.endswith(said)


def test_the_modules_of_another_gpu_are_not_guessed():
    spec = make.spec("norm.rmsnorm", module="fused_moe_90", has_build=True)
    facts = make.facts(gpus=make.gpu_facts(make.gpu(sm=100)))
    one = expected_of(report(run(), spec=spec, facts=facts))
    assert (one.start, one.doubt) == (Start.UNKNOWN, "which modules it asks for on SM100 was not seen")


@pytest.mark.parametrize(("sm", "objects"), [(90, 250), (100, 270), (120, 96)])
def test_a_module_that_there_is_for_each_kind_of_gpu_is_that_of_the_row_s(sm, objects):
    spec = make.spec("moe.bf16", module="fused_moe_90", has_build=True, requires=Requires(sm=">=90,<91"))
    package = make.flashinfer(symbols={"flashinfer.fused_moe.cutlass_fused_moe": "fused_moe/core.py:1"})
    found = report(spec=spec, facts=make.facts(gpus=make.gpu_facts(make.gpu(sm=sm)), flashinfer=package))
    for row in ("moe.bf16", "moe.nvfp4"):  # which no probe runs
        one = expected_of(found, row)
        assert (one.start, one.modules, one.objects) == (Start.COMPILES, (f"fused_moe_{sm}",), objects)
    assert ("moe.bf16" in found.expected.first_start.unwarmed) is (sm != 90)
    assert "moe.nvfp4" not in warm_list(found).splitlines()


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        (make.spec("norm.rmsnorm", module="", has_build=False), Start.NOTHING),
        (make.spec("norm.rmsnorm", module="", has_build=False, compiles=("cutile",)), Start.FIRST_CALL),
        (make.spec("norm.rmsnorm", module="norm", has_build=True, requires=Requires(sm=">=100")), Start.UNKNOWN),
        (
            make.spec("norm.rmsnorm", module="norm", has_build=True, requires=Requires(packages={"no-such": ""})),
            Start.CANNOT,
        ),
    ],
    ids=["nothing", "first-call", "probe-of-other-gpus", "package"],
)
def test_what_a_probe_builds_says_how_its_row_starts(spec, start):
    assert expected_of(report(spec=spec)).start is start


@pytest.mark.parametrize("cause", ["binary-for-other-gpu", "cuda-versions-differ"])
def test_what_may_concern_any_row_leaves_none_that_works(cause):
    facts = make.facts(gpus=make.gpu_facts(make.gpu()))
    on = expecting.basis(KB, facts, plan.plan((SPEC,), facts, STATIC), STATIC, known_of(run()))
    finding = Finding(
        id="some-rule",
        cause=cause,
        severity=Severity.WARNING,
        title="",
        why="",
        fix=(),
        features=(),
        source="",
    )
    assert not expecting.foresee(on, (), (finding,)).seen


def test_a_row_that_is_not_offered_cannot_start():
    absent = Missing(reason="flashinfer 0.5.3 has no flashinfer.norm.rmsnorm", absent=True)
    facts = make.facts(
        gpus=make.gpu_facts(make.gpu()), flashinfer=make.flashinfer(symbols={"flashinfer.norm.rmsnorm": absent})
    )
    one = expected_of(report(run(), facts=facts))
    assert one.start is Start.CANNOT
    assert "has no flashinfer.norm.rmsnorm" in one.why


def test_what_needs_several_gpus_counts_where_there_are_as_many():
    spec = make.spec("comm.allreduce", module="trtllm_comm", has_build=True, gpus=2)
    two = make.facts(gpus=make.gpu_facts(make.gpu(), make.gpu(index=1)))
    assert "trtllm_comm" not in report(spec=spec).expected.first_start.modules
    assert "trtllm_comm" in report(spec=spec, facts=two).expected.first_start.modules


def test_the_first_start_is_that_of_the_required_rows():
    request = Request(depth=Depth.STATIC, required=("norm.*",))
    first = report(run(), request=request).expected.first_start
    assert (first.rows, first.modules, first.objects) == (("norm.rmsnorm",), ("norm",), 2)
    assert report(run(), request=Request(depth=Depth.STATIC, required=("rope.*",))).expected.first_start.modules == ()


@pytest.mark.parametrize(
    ("known", "code"),
    [([run()], 0), ([run(outcome="wrong-result")], 1), ([], 3)],
    ids=["works", "fails", "open"],
)
def test_what_is_foretold_decides_what_is_required(known, code):
    request = Request(depth=Depth.STATIC, required=("norm.rmsnorm",), features=("norm.rmsnorm",))
    assert report(*known, request=request).gate.code == code


def test_without_a_target_nothing_is_foretold():
    facts = make.facts(gpus=make.gpu_facts(make.gpu()))
    found = pipeline.conclude(
        STATIC, kb=KB, facts=facts, planned=plan.plan((SPEC,), facts, STATIC), outcomes=(), created=""
    )
    assert found.expected is None
    assert row_of(found).verdict is Verdict.UNKNOWN
    assert foretelling.Foreseen() == foretelling.NOTHING


@pytest.mark.parametrize(("words", "code"), [(("moe.trtllm_bf16",), 0), ((), 3)])
def test_a_row_that_is_required_to_be_unsupported_is_foretold_by_the_source(words, code):
    wanted = tuple(
        Requirement(
            feature=name,
            verdict=Verdict.UNSUPPORTED,
            evidence=Evidence.DECLARED,
            scope=Scope.SUBSET,
            source="--require",
        )
        for name in words
    )
    lack = Missing(reason="flashinfer 0.7.2.post1 has no such function", absent=True)
    symbols = {"flashinfer.fused_moe.trtllm_bf16_moe": lack}
    facts = make.facts(gpus=make.gpu_facts(make.gpu()), flashinfer=make.flashinfer(symbols=symbols))
    request = Request(depth=Depth.STATIC, features=("moe.trtllm_bf16",), policy=Policy(requirements=wanted))
    found = report(facts=facts, request=request)
    assert row_of(found, "moe.trtllm_bf16").verdict is Verdict.UNSUPPORTED
    assert found.gate.code == code
