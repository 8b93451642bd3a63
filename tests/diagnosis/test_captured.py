"""What works eagerly and not in a CUDA graph: the finding, and the flags of each release that leave the capture out."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import advice, captured, findings, matrix
from fi_doctor.knowledge.explain import explain
from fi_doctor.model import ActionKind, Ending, Severity, Stage

KB = knowledge.load()
RELEASES = ("0.11.0", "0.14.1", "0.17.1", "0.20.2", "0.25.1", "0.28.0", "0.33.0")
FI = "--attention-backend FLASHINFER"
BETWEEN, NONE = "-cc.cudagraph_mode=PIECEWISE", "-cc.cudagraph_mode=NONE"
CUTLASS = "--moe-backend flashinfer_cutlass"
DECODE = ("tc_d64", "tc_d128", "tc_d256", "graph_tc_d128")
# By feature, GPU and deciding cells: what each of RELEASES is told where the captured cell alone fails. What it calls
# by default is needed, what it calls when told to is offered with the flag that turns it on.
EXPECTED = {
    ("attention.decode", 90, DECODE): ("", *(f"{FI} {BETWEEN}",) * 6),
    ("moe.fp8_per_tensor", 90, ("tactic_0", "graph", "many_tokens")): ("", "", NONE, NONE, NONE, NONE, NONE),
    ("moe.mxfp4_bf16", 90, ("tactic_0_gpt_oss", "graph_gpt_oss")): ("", "", "", *(f"{CUTLASS} {NONE}",) * 4),
    ("gemm.bmm_fp8", 120, ("auto_bf16", "graph_bf16")): ("--compilation-config.cudagraph_mode=NONE", *(NONE,) * 6),
    ("gemm.fp8_block_sm90", 90, ("swap_ab", "graph_swap_ab")): ("", "", NONE, NONE, NONE, NONE, NONE),
}
OPTIONAL = ("attention.decode", "moe.mxfp4_bf16")
TABLE = [
    pytest.param(key, release, line, id=f"{key[0]}-{release}")
    for key, lines in EXPECTED.items()
    for release, line in zip(RELEASES, lines, strict=True)
]
WRONG = {"ending": Ending.WRONG, "stage": Stage.RAN, "detail": "replay 2: 12 of 64 elements are wrong"}
BROKEN = {"ending": Ending.RAISED, "stage": Stage.BUILT, "detail": "operation not permitted when stream is capturing"}


def tried(feature, variants, *, sm=90, failing=("graph",), how=WRONG):
    """The probe of a feature, of which the variants that begin so fail."""
    cells = tuple(make.cell(variant=name, **(how if any(map(name.startswith, failing)) else {})) for name in variants)
    return make.outcome(feature, sm=sm, cells=cells)


def machine(release, sm=90, **changes):
    packages = {"vllm": release} if release else None
    return make.facts(packages=packages, gpus=make.gpu_facts(make.gpu(sm=sm)), **changes)


def judged(facts, *outcomes):
    """The finding, and what is recommended."""
    rows = matrix.judge(KB, facts, (), outcomes, (), selected=tuple(one.feature for one in outcomes))
    found = findings.with_contradictions(KB, facts, rows, tuple(captured.find(KB, facts, rows)))
    ours = [one for one in found if one.id == captured.FAILS_IN_GRAPH]
    given = [one for one in advice.advise(KB, facts, outcomes, rows, found) if one.kind is not ActionKind.REPORT]
    return ours, given


@pytest.mark.parametrize("how", [WRONG, BROKEN], ids=["wrong", "broken"])
@pytest.mark.parametrize(("row", "release", "line"), TABLE)
def test_each_release_is_told_the_flag_that_it_reads(row, release, line, how):
    feature, sm, variants = row
    [finding], given = judged(machine(release, sm), tried(feature, variants, sm=sm, how=how))
    assert finding.title.startswith(f"{feature} on SM{sm} works eagerly and not captured in a CUDA graph")
    assert how["detail"] in finding.why
    assert [one.line for one in given] == ([line] if line else [])
    for one in given:
        assert one.optional is (feature in OPTIONAL)
        assert f"{feature} works eagerly and not captured in a CUDA graph" in one.why
        assert one.features == (feature,)


@pytest.mark.parametrize(("release", "flag"), [("0.11.0", "--compilation-config"), ("0.14.1", "-cc")])
def test_a_backend_that_the_environment_chose_needs_the_flag(release, flag):
    facts = machine(release, environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    [finding], [one] = judged(facts, tried("attention.decode", DECODE))
    # Only 0.11 to 0.14 read the variable.
    assert (one.line, one.optional) == (f"{flag}.cudagraph_mode=PIECEWISE", False)
    assert one.findings == (finding.id,)
    assert finding.severity is Severity.ERROR
    assert finding.fix == (f"add to vllm serve: {one.line}",)


def test_what_is_not_called_as_it_stands_is_an_info_that_names_the_flag():
    [finding], _ = judged(machine("0.33.0"), tried("attention.decode", DECODE))
    assert finding.severity is Severity.INFO
    assert "only when turned on (vLLM 0.33.0, which is installed)" in finding.title
    assert finding.fix == (f"add to vllm serve: {BETWEEN}",)


def test_a_source_without_the_finer_setting_is_told_the_coarse_one():
    source = make.vllm(flags={"--enforce-eager": "engine/arg_utils.py:1"}, keys={})
    _, [one] = judged(machine("0.33.0", vllm=source), tried("moe.fp8_per_tensor", ("tactic_0", "graph")))
    assert one.line == "--enforce-eager"


@pytest.mark.parametrize(
    ("variants", "failing"),
    [
        (("tactic_0", "graph"), ("graph", "tactic")),  # the eager one too
        (("tactic_0", "graph"), ("tactic",)),  # the eager one alone
        (("graph",), ("graph",)),  # nothing eager was tried
        (("tactic_0", "graph"), ()),
    ],
    ids=["both", "eager", "no-eager", "none"],
)
def test_it_is_said_only_where_the_capture_alone_fails(variants, failing):
    ours, given = judged(machine("0.33.0"), tried("moe.fp8_per_tensor", variants, failing=failing))
    assert ours == []
    assert not any("cudagraph" in one.line or "eager" in one.line for one in given)


def test_the_eager_kin_is_the_cell_of_the_same_name():
    cells = ("tc_d64", "tc_d128", "tc_d256", "graph_tc_d128")
    failing = ("graph", "tc_d128")
    assert judged(machine("0.14.1"), tried("attention.decode", cells, failing=failing))[0] == []
    not_run = make.cell(Ending.NOT_RUN, Stage.NONE, "tc_d64", detail="budget of 60 s")
    outcome = tried("attention.decode", cells)
    [finding], _ = judged(machine("0.14.1"), replace(outcome, cells=(not_run, *outcome.cells[1:])))
    assert finding.features == ("attention.decode",)


def test_what_lets_something_else_serve_is_named_beside_the_flag():
    _, [one] = judged(machine("0.33.0"), tried("moe.fp8_per_tensor", ("tactic_0", "graph")))
    assert one.line == NONE
    assert one.why.endswith("; or --moe-backend triton: Triton serves instead")


def test_without_vllm_the_finding_stands_and_no_flag_is_named():
    [finding], given = judged(machine(None), tried("moe.fp8_per_tensor", ("tactic_0", "graph")))
    assert (finding.fix, given) == ((), [])


def test_every_feature_whose_captured_cells_decide_names_what_leaves_the_capture_out():
    deciding = {
        feature.id
        for feature in KB.features
        for use in feature.vllm
        if use.called and any(name.startswith(captured.GRAPH) for name in use.variants)
    }
    assert deciding
    assert deciding <= {feature.id for feature in KB.features if feature.uncaptured}


def test_the_finding_can_be_explained():
    assert "CUDA graph" in explain(KB, captured.FAILS_IN_GRAPH)
