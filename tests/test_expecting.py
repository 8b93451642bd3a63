"""What is expected of rows on a machine that is not here."""

from __future__ import annotations

import importlib
import pathlib

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import expecting, knowledge, pipeline
from fi_doctor.diagnosis import foretelling
from fi_doctor.knowledge import atlas, runs
from fi_doctor.model import Depth, Finding, Missing, Request, Requires, Severity, Verdict
from fi_doctor.model.expected import Start
from fi_doctor.model.targets import Target
from fi_doctor.probing import catalog, plan

KB = knowledge.load()
MACHINES = pathlib.Path(__file__).parent / "machines"
WORKS, WRONG = Verdict.WORKS, Verdict.WRONG_RESULT
RELEASE = "0.7.2.post1"
SPEC = make.spec("norm.rmsnorm", module="norm", has_build=True)
STATIC = Request(depth=Depth.STATIC)


def run(machine="one", *, verdict=WORKS, **changes):
    base = runs.Run(
        machine=machine,
        gpu="NVIDIA H200",
        sm=90,
        flashinfer=RELEASE,
        nvcc="13.0",
        torch="2.11.0",
        rows={"norm.rmsnorm": {"": verdict}},
        modules={"norm.rmsnorm": {"": ("norm",)}},
        costs={"norm": runs.Cost(objects=2, cpu_seconds=80.0, peak_mib=900)},
    )
    return replace(base, **changes)


def report(*known, facts=None, spec=SPEC, request=STATIC):
    facts = facts or make.facts(gpus=make.gpu_facts(make.gpu()))
    return pipeline.conclude(
        request,
        kb=KB,
        facts=facts,
        planned=plan.plan((spec,), facts, request),
        outcomes=(),
        created="",
        target=Target(words="h200", sm=90),
        runs=known,
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
        ([run(verdict=WRONG)], ("wrong-result", "predicted")),
        ([run(), run("other", verdict=WRONG)], ("unknown", "declared")),
        ([run(flashinfer="0.7.1")], ("unknown", "declared")),
        ([run(sm=100)], ("unknown", "declared")),
        ([run(nvcc="12.9")], ("unknown", "declared")),
        ([run(rows={"norm.rmsnorm": {"bf16": WORKS}})], ("unknown", "declared")),
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
    on = expecting.basis(KB, facts, plan.plan((SPEC,), facts, STATIC), STATIC, (run(),))
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


def test_what_was_compiled_without_a_gpu_says_what_it_takes(monkeypatch):
    row = atlas.Compiled(RELEASE, "norm", "13.2", "90a", "compiled", "", 2, 70.2, 35.0, 915, 0, "2026-11-29")
    monkeypatch.setattr(atlas, "load", lambda: atlas.Atlas((atlas.Place("rows"),), (row,), ()))
    one = expected_of(report())
    assert (one.objects, one.cpu_seconds, one.memory_mib) == (2, 70.2, 915)
    assert one.measured == ("rows (nvcc 13.2, sm_90a)",)


def test_a_row_that_nobody_ran_is_estimated_by_its_probe(monkeypatch):
    monkeypatch.setattr(atlas, "load", lambda: atlas.Atlas((), (), ()))
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
    assert expected_of(report(run(), spec=spec, facts=facts)).start is Start.UNKNOWN


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
    on = expecting.basis(KB, facts, plan.plan((SPEC,), facts, STATIC), STATIC, (run(),))
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


def test_the_first_start_is_that_of_the_required_rows():
    request = Request(depth=Depth.STATIC, required=("norm.*",))
    first = report(run(), request=request).expected.first_start
    assert (first.rows, first.modules, first.objects) == (("norm.rmsnorm",), ("norm",), 2)
    assert report(run(), request=Request(depth=Depth.STATIC, required=("rope.*",))).expected.first_start.modules == ()


@pytest.mark.parametrize(
    ("known", "code"),
    [([run()], 0), ([run(verdict=WRONG)], 1), ([], 3)],
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


@pytest.mark.parametrize("name", ["h200-cuda13.0-flashinfer0.5.3", "2xh200-comm-flashinfer0.7.2.post1"])
def test_what_is_shipped_is_what_the_recordings_say(name, monkeypatch):
    """Else benchmarks/runs.py is to be run."""
    monkeypatch.syspath_prepend(str(MACHINES.parents[1] / "benchmarks"))
    reading = importlib.import_module("runs")
    [shipped] = [one for one in runs.load() if one.machine == name]
    assert reading.read(MACHINES / name, KB, catalog.discover()) == shipped


def test_every_machine_that_is_shipped_is_recorded():
    assert {one.machine for one in runs.load()} <= {path.name for path in MACHINES.iterdir()}
