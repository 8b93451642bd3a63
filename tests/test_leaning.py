"""Which measurements the rows of a machine that is not here lean on, and how a report says so."""

import factory
import pytest
from msgspec.structs import replace

from fi_doctor import leaning
from fi_doctor.knowledge import atlas
from fi_doctor.knowledge.atlas import Asked
from fi_doctor.model import Missing
from fi_doctor.model.targets import Target

PLACE = atlas.Place("h200", gpu="NVIDIA H200")
ATLAS = atlas.Atlas(
    (PLACE,),
    (
        atlas.Compiled(
            "0.7.2.post1", "fused_moe_100", "13.0", "100a", "failed", "no header", 9, 1, 1, 9, 0, "2026-11-29"
        ),
        atlas.Compiled("0.7.2.post1", "norm", "13.0", "100a", "compiled", "", 2, 70, 35, 915, 0, "2026-11-29"),
    ),
    (
        atlas.Ran("0.7.2.post1", "norm.rmsnorm", "bf16", "13.0", "90a", "verified", (), 0, "2026-11-28"),
        atlas.Ran("0.7.2.post1", "norm.rmsnorm", "fp16", "13.0", "90a", "wrong-result", (), 0, "2026-11-28"),
    ),
)
ASKED = Asked("0.7.2.post1", "13.0", "100a")


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(atlas, "load", lambda: ATLAS)


def planned(feature="norm.rmsnorm", module="norm", deciding=()):
    return replace(factory.planned(spec=factory.spec(feature, module=module)), deciding=deciding)


def test_a_row_leans_on_the_nearest_run_of_what_decides_it_and_on_the_build_of_its_module():
    run, built = leaning.nearest(ASKED, "norm.rmsnorm", [planned(deciding=("bf16",))])
    assert (run.outcome, run.is_run, run.differs) == ("verified", True, ("another generation of GPUs",))
    assert (built.outcome, built.is_run, built.differs) == ("compiles", False, ())
    run, _ = leaning.nearest(ASKED, "norm.rmsnorm", [planned()])
    assert (run.outcome, run.subject) == ("wrong-result", "fp16")


def test_modules_of_another_generation_are_the_same_module():
    [built] = leaning.nearest(ASKED, "moe.bf16", [planned("moe.bf16", "fused_moe_90")])
    assert (built.outcome, built.subject, built.detail) == ("does not compile", "fused_moe_100", "no header")


def test_a_row_of_which_nothing_was_measured_leans_on_nothing():
    assert leaning.nearest(ASKED, "rope.apply", [planned("rope.apply", "rope")]) == ()


def test_the_architecture_is_that_of_flashinfer_and_else_the_gpus():
    found = atlas.asked_of(factory.facts(flashinfer=factory.flashinfer(architectures=("100a",))), 100)
    assert found == Asked("0.7.2.post1", "13.0", "100a")
    unknown = factory.facts(flashinfer=factory.flashinfer(architectures=Missing(reason="none")))
    assert atlas.asked_of(unknown, 103).arch == "103"
    assert atlas.asked_of(factory.facts(flashinfer=Missing(reason="not installed")), 103) is None


def test_rows_that_lean_on_nothing_are_not_named():
    facts = factory.facts(flashinfer=factory.flashinfer(architectures=("100a",)))
    rows = [factory.row("norm.rmsnorm"), factory.row("rope.apply")]
    target = leaning.leant(Target(words="b200", sm=100), facts, rows, [planned()])
    assert list(target.nearest) == ["norm.rmsnorm"]
