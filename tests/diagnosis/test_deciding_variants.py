from __future__ import annotations

import factory as make
import pytest
from gate_samples import NORM, gate, need, row
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings, matrix
from fi_doctor.model import Cell, Ending, Evidence, Holds, Policy, Requires, Scope, Stage, Verdict, VllmUse

USES = (
    VllmUse(vllm=">=0.11,<0.20", use="fa2", variants=("fa2",)),
    VllmUse(vllm=">=0.20", use="fa3", variants=("fa3",)),
)
KB = knowledge.load()
KB = replace(KB, features=(replace(KB.features[2], vllm=USES),))
CELLS = (make.cell(variant="fa2"), make.cell(Ending.SIGNALLED, Stage.BUILT, "fa3", detail="SIGSEGV"))


@pytest.mark.parametrize(
    ("vllm", "verdict"),
    [("0.14.1", "works"), ("0.33.0", "broken"), (None, "broken")],
    ids=["calls-fa2", "calls-fa3", "none-installed"],
)
def test_the_variant_that_the_installed_vllm_calls_decides_the_row(vllm, verdict):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    plan = make.planned(spec=make.spec(variants={"fa2": Requires(), "fa3": Requires()}))
    [row] = matrix.judge(KB, facts, (plan,), (make.outcome(cells=CELLS),), ())
    assert row.verdict.value == verdict
    assert len(row.cells) == 2


@pytest.mark.parametrize(
    ("vllm", "names"), [("0.14.1", ("fa2",)), ("0.33.0", ("fa3",)), (None, ())], ids=["fa2", "fa3", "none-installed"]
)
def test_the_plan_names_the_variants_that_decide(vllm, names):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    plan = make.planned(spec=make.spec(variants={"fa2": Requires(), "fa3": Requires()}), variants=("fa2", "fa3"))
    [probe] = matrix.with_deciding(KB, facts, (plan,))
    assert probe.deciding == names


BLOCK = "moe.fp8_block"
EAGER = make.planned(spec=make.spec(BLOCK, variants={"eager": Requires(), "graph": Requires()}))
GATE = make.planned(spec=make.spec("moe.fp8_block_gate", BLOCK, gate_only=True))
OPEN = make.outcome("moe.fp8_block_gate", feature=BLOCK, stage=Stage.IMPORTED, detail="the call is let through")
CLOSED = make.outcome(
    "moe.fp8_block_gate", feature=BLOCK, ending=Ending.RAISED, stage=Stage.BUILT, detail="NotImplementedError: no"
)
WORKING = make.outcome(BLOCK, cells=(make.cell(variant="eager"), make.cell(variant="graph")))


def row_of(feature, facts, planned, outcomes, found=()):
    rows = matrix.judge(knowledge.load(), facts, planned, outcomes, found)
    return next(row for row in rows if row.feature == feature)


@pytest.mark.parametrize("vllm", ["0.17.1", None])
def test_an_open_gate_says_nothing_against_what_was_run(vllm):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    row = row_of(BLOCK, facts, (EAGER, GATE), (WORKING, OPEN))
    assert (row.verdict.value, row.evidence.value, len(row.cells)) == ("works", "verified", 3)


def test_an_open_gate_alone_is_no_more_than_declared():
    row = row_of(BLOCK, make.facts(), (GATE,), (OPEN,))
    assert (row.verdict.value, row.evidence.value) == ("unknown", "declared")


def test_a_closed_gate_that_was_seen_beats_what_is_foretold():
    facts = make.facts(packages={"vllm": "0.17.1"}, toolkit=make.toolkit(gate_version="12.6"))
    found = findings.find(knowledge.load(), facts, (CLOSED,))
    row = row_of(BLOCK, facts, (EAGER, GATE), (CLOSED,), found)
    assert {cell.evidence.value for cell in row.cells} == {"predicted", "ran"}
    assert (row.verdict.value, row.evidence.value, row.why) == ("broken", "ran", "NotImplementedError: no")


def test_what_the_probes_cannot_look_at_is_unknown_where_vllm_takes_something_else():
    probe = make.planned(spec=make.spec("moe.bf16", requires=Requires(sm=">=90,<91")), sm=120, skip="needs SM90")
    row = row_of("moe.bf16", make.facts(packages={"vllm": "0.33.0"}), (probe,), ())
    assert (row.verdict.value, row.evidence.value) == ("unknown", "declared")
    assert row.why.startswith("vLLM takes the kernels for this GPU; checked: those for SM90 only (unsupported: ")


@pytest.mark.parametrize(
    ("vllm", "is_called"),
    [("0.33.0", False), ("9.1", True), (None, False)],
    ids=["known", "newer-than-all-known", "none-installed"],
)
def test_of_a_vllm_that_is_not_known_nobody_says_that_it_does_not_call_a_row(vllm, is_called):
    facts = make.facts(packages={"vllm": vllm} if vllm else None)
    row = row_of("norm.rmsnorm", facts, (make.planned(),), (make.outcome(),))
    assert row.vllm_calls is is_called


@pytest.mark.parametrize(("evidence", "how"), [("verified", "not run"), ("built", "not built")])
def test_a_requirement_that_holds_names_the_variants_that_did_not_decide_and_are_not_known(evidence, how):
    cells = tuple(
        Cell(variant=name, verdict=Verdict(verdict), evidence=Evidence(known), scope=Scope.FULL, probe=NORM, why="w")
        for name, verdict, known in (
            ("fa2", "works", "verified"),
            ("fa3", "unknown", "none"),
            ("of_sm120", "unsupported", "declared"),
        )
    )
    asked = need(verdict="unknown" if evidence == "built" else "works", evidence=evidence)
    required = gate((row(cells=cells),), Policy(requirements=(asked,))).requirements[2]
    assert (required.holds, required.why) == (Holds.YES, f"{how}, and not deciding: fa3 of norm.rmsnorm on SM90")
    whole = gate((row(cells=cells[:1]),), Policy(requirements=(asked,))).requirements[2]
    assert (whole.holds, whole.why) == (Holds.YES, "")
