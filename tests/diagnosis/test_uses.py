"""What the rows ask to be set: the lines that each release of vLLM reads, and nothing that it does not read."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import advice, called, findings, matrix
from fi_doctor.diagnosis.reads import is_read
from fi_doctor.model import ActionKind, Ending, Evidence, Stage, Verdict, Vllm, VllmUse

KB = knowledge.load()
RELEASES = ("0.11.0", "0.14.1", "0.17.1", "0.20.2", "0.25.1", "0.28.0", "0.33.0")
CELLS = {
    "attention.prefill": ("fa2_d64", "fa2_d128", "fa2_d256", "fa3_d64", "fa3_d128", "fa3_d256"),
    "attention.decode": ("cuda_d64", "tc_d64", "tc_d128", "graph_tc_d128", "xqa_d64", "xqa_d128", "graph_xqa_d128"),
    "attention.sinks": ("fa2_d64", "fa2_d128", "fa3_d64", "fa3_d128", "xqa_d64", "xqa_d128"),
    "comm.allreduce_fusion": ("oneshot_bf16", "twoshot_bf16", "oneshot_fp16"),
    "moe.fp8_block": ("",),
    "sampling.top_k_top_p": ("top_k_top_p", "top_p", "top_k", "successive_calls"),
}
PROBES = {"moe.fp8_block": "moe.fp8_block_gate"}
FI_ENV = "export VLLM_ATTENTION_BACKEND=FLASHINFER"
FI = "--attention-backend FLASHINFER"
TRITON = "--attention-backend TRITON_ATTN"
FUSE_OLD = (
    '--compilation-config \'{"pass_config": {"enable_fi_allreduce_fusion": true, "enable_noop": true}, '
    '"custom_ops": ["+rms_norm"]}\''
)
FUSE = '--compilation-config \'{"pass_config": {"fuse_allreduce_rms": true, "eliminate_noops": true}}\''
PLAIN = "-cc.pass_config.fuse_allreduce_rms=false"
ON, OFF = "export VLLM_USE_FLASHINFER_SAMPLER=1", "export VLLM_USE_FLASHINFER_SAMPLER=0"
FP8 = "export VLLM_USE_FLASHINFER_MOE_FP8=1"
MOE = "--moe-backend triton"
# By feature, GPU and whether it works: what is to be set for each of RELEASES, as read in their own sources.
EXPECTED = {
    ("attention.prefill", 90, True): (FI_ENV, FI, FI, FI, FI, FI, FI),
    ("attention.prefill", 120, True): (FI_ENV, FI, FI, FI, FI, FI, FI),
    ("attention.prefill", 90, False): ("",) * 7,
    ("attention.prefill", 120, False): ("",) * 7,
    ("attention.decode", 90, True): (FI_ENV, FI, FI, FI, FI, FI, FI),
    ("attention.decode", 120, True): (FI_ENV, FI, FI, FI, FI, FI, FI),
    ("attention.decode", 90, False): ("",) * 7,
    ("attention.decode", 120, False): ("",) * 7,
    # The gate opened for SM12x in 0.28, where it is taken by default, and for SM90 in 0.33, where it is not.
    ("attention.sinks", 90, True): ("", "", "", "", "", "", FI),
    ("attention.sinks", 90, False): ("",) * 7,
    ("attention.sinks", 120, True): ("",) * 7,
    ("attention.sinks", 120, False): ("", "", "", "", "", TRITON, TRITON),
    # From 0.17.1 on by default, and allocated in a way that is not checked; never on SM12x.
    ("comm.allreduce_fusion", 90, True): (FUSE_OLD, FUSE, "", "", "", "", ""),
    ("comm.allreduce_fusion", 90, False): ("", "", PLAIN, PLAIN, PLAIN, PLAIN, PLAIN),
    ("comm.allreduce_fusion", 120, True): ("",) * 7,
    ("comm.allreduce_fusion", 120, False): ("",) * 7,
    ("moe.fp8_block", 90, True): ("", FP8, "", "", "", "", ""),
    ("moe.fp8_block", 90, False): ("", "", MOE, MOE, MOE, MOE, MOE),
    ("moe.fp8_block", 120, True): ("",) * 7,
    ("moe.fp8_block", 120, False): ("",) * 7,
    ("sampling.top_k_top_p", 90, True): ("", ON, ON, ON, "", "", ""),
    ("sampling.top_k_top_p", 90, False): (OFF, "", "", "", OFF, OFF, OFF),
    ("sampling.top_k_top_p", 120, True): ("", ON, ON, ON, "", "", ""),
    ("sampling.top_k_top_p", 120, False): (OFF, "", "", "", OFF, OFF, OFF),
}
TABLE = [
    pytest.param(*key, release, line, id=f"{key[0]}-SM{key[1]}-{'works' if key[2] else 'broken'}-{release}")
    for key, lines in EXPECTED.items()
    for release, line in zip(RELEASES, lines, strict=True)
]


def outcome(feature, sm, *, works):
    """The probe of a feature, of which every variant works or none does."""
    ending, stage = (Ending.RETURNED, Stage.VERIFIED) if works else (Ending.SIGNALLED, Stage.BUILT)
    cells = tuple(make.cell(ending, stage, name, detail="" if works else "SIGSEGV") for name in CELLS[feature])
    return replace(make.outcome(PROBES.get(feature, feature), sm=sm, cells=cells), feature=feature)


def machine(release, sm=90, **changes):
    packages = {"vllm": release} if release else None
    return make.facts(packages=packages, gpus=make.gpu_facts(make.gpu(sm=sm)), **changes)


def advised(facts, *outcomes, kb=KB, rows=None):
    """Only what the rows ask for: what is laid to failures stands elsewhere."""
    selected = tuple(one.feature for one in outcomes)
    judged = matrix.judge(kb, facts, (), outcomes, (), selected=selected) if rows is None else rows
    return advice.advise(kb, facts, outcomes, judged, ())


@pytest.mark.parametrize(("feature", "sm", "works", "release", "line"), TABLE)
def test_each_release_is_told_what_its_own_source_reads(feature, sm, works, release, line):
    given = advised(machine(release, sm), outcome(feature, sm, works=works))
    assert [one.line for one in given] == ([line] if line else [])
    assert all(one.optional is works for one in given)
    assert all(one.features == (feature,) and one.findings == () for one in given)


@pytest.mark.parametrize("works", [True, False], ids=["works", "broken"])
@pytest.mark.parametrize("sm", [90, 100, 120])
def test_without_vllm_nothing_of_vllm_is_recommended(sm, works):
    assert advised(machine(None, sm), *(outcome(feature, sm, works=works) for feature in CELLS)) == ()


@pytest.mark.parametrize("works", [True, False], ids=["works", "broken"])
@pytest.mark.parametrize("sm", [80, 89, 90, 100, 103, 120, 121])
@pytest.mark.parametrize("release", RELEASES)
def test_every_line_sets_something_that_the_release_reads(release, sm, works):
    facts = machine(release, sm)
    actions = {
        action.line.replace("{{", "{").replace("}}", "}"): action.setting
        for feature in KB.features
        for use in feature.vllm
        for action in (*use.enable, *use.avoid)
    }
    given = advised(facts, *(outcome(feature, sm, works=works) for feature in CELLS))
    assert all(is_read(actions[one.line], facts, KB.settings) for one in given)
    assert all(one.kind is (ActionKind.SET if one.line.startswith("export ") else ActionKind.FLAG) for one in given)


def test_a_flag_that_the_installed_source_does_not_have_is_not_recommended():
    source = Vllm(root="/venv/vllm", variables={}, unread_variables=(), flags={"--moe-backend": "x:1"}, keys={})
    facts = machine("0.17.1", vllm=source)
    both = (outcome("attention.prefill", 90, works=True), outcome("moe.fp8_block", 90, works=False))
    assert [one.line for one in advised(facts, *both)] == [MOE]


def test_on_sm100_flashinfer_attention_is_on_and_what_was_checked_of_it_says_when_to_leave_it():
    [one] = advised(machine("0.33.0", 100), outcome("attention.prefill", 100, works=False))
    assert (one.line, one.optional) == ("--attention-backend FLASH_ATTN", False)
    assert one.why.startswith("what was checked of attention.prefill does not work here and vLLM 0.33.0 calls it by")
    assert advised(machine("0.33.0", 100), outcome("attention.prefill", 100, works=True)) == ()


def test_one_line_that_two_rows_ask_for_names_both():
    both = (outcome("attention.decode", 90, works=True), outcome("attention.prefill", 90, works=True))
    [one] = advised(machine("0.14.1"), *both)
    assert (one.line, one.features) == (FI, ("attention.decode", "attention.prefill"))
    assert one.why.startswith("attention.decode and attention.prefill work here and vLLM 0.14.1 calls them only when")


@pytest.mark.parametrize(
    ("sm", "release", "line"),
    [(90, "0.20.2", FI), (90, "0.25.1", ""), (90, "0.33.0", ""), (120, "0.25.1", FI), (120, "0.28.0", "")],
)
def test_newer_releases_decode_with_xqa_and_are_not_told_to_where_it_fails(sm, release, line):
    cells = (
        make.cell(variant="tc_d128"),
        make.cell(Ending.WRONG, Stage.RAN, "xqa_d128", detail="max error 3"),
    )
    given = advised(machine(release, sm), make.outcome("attention.decode", sm=sm, cells=cells))
    assert [one.line for one in given] == ([line] if line else [])


def test_a_line_that_also_turns_on_what_fails_is_not_recommended():
    mixed = (outcome("attention.decode", 90, works=False), outcome("attention.prefill", 90, works=True))
    assert advised(machine("0.14.1"), *mixed) == ()


def test_what_a_line_turns_on_besides_and_is_not_known_to_work_is_said():
    [one] = advised(machine("0.33.0"), outcome("attention.prefill", 90, works=True))
    others = (
        "attention.decode, attention.mixed_groups, attention.sinks, attention.soft_cap, attention.window "
        "and attention.xqa"
    )
    assert one.why.endswith(f"not known to work of what the line turns on: {others}")


@pytest.mark.parametrize(
    ("release", "value", "works", "line"),
    [
        ("0.33.0", "0", False, ""),
        ("0.33.0", "1", False, OFF),
        ("0.20.2", "1", False, OFF),
        ("0.20.2", "0", False, ""),
        ("0.20.2", "1", True, ""),
    ],
    ids=["already-off", "on-twice", "turned-on-here", "off-twice", "already-on"],
)
def test_what_the_environment_already_says_is_taken_into_account(release, value, works, line):
    facts = machine(release, environment={"VLLM_USE_FLASHINFER_SAMPLER": value})
    given = advised(facts, outcome("sampling.top_k_top_p", 90, works=works))
    assert [one.line for one in given] == ([line] if line else [])


@pytest.mark.parametrize(("release", "given"), [("0.11.0", True), ("0.14.1", True), ("0.17.1", False)])
def test_a_backend_that_the_environment_chose_and_that_fails_is_left(release, given):
    facts = machine(release, environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    lines = [one.line for one in advised(facts, outcome("attention.prefill", 90, works=False))]
    assert lines == (["export VLLM_ATTENTION_BACKEND=FLASH_ATTN"] if given else [])


def test_a_variable_that_the_release_does_not_read_turns_nothing_on():
    facts = machine("0.17.1", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"})
    [one] = advised(facts, outcome("attention.prefill", 90, works=True))
    assert one.line == FI


@pytest.mark.parametrize(
    ("verdict", "evidence", "lines"),
    [
        (Verdict.BROKEN, Evidence.PREDICTED, [OFF]),
        (Verdict.WRONG_RESULT, Evidence.VERIFIED, [OFF]),
        (Verdict.WRONG_RESULT, Evidence.PREDICTED, [OFF]),
        (Verdict.BROKEN, Evidence.DECLARED, []),
        (Verdict.UNKNOWN, Evidence.BUILT, []),
        (Verdict.UNSUPPORTED, Evidence.DECLARED, []),
    ],
    ids=str,
)
def test_only_what_was_measured_or_foretold_is_avoided(verdict, evidence, lines):
    of = make.row("sampling.top_k_top_p", verdict, evidence)
    assert [one.line for one in advised(machine("0.33.0"), rows=(of,))] == lines


@pytest.mark.parametrize("evidence", [Evidence.RAN, Evidence.BUILT, Evidence.DECLARED], ids=str)
def test_what_ran_and_was_not_compared_is_not_offered(evidence):
    of = make.row("sampling.top_k_top_p", Verdict.WORKS, evidence)
    assert advised(machine("0.17.1"), rows=(of,)) == ()


def test_the_line_of_a_row_is_needed_where_it_fails_and_is_on():
    facts = machine("0.33.0")
    facts = replace(facts, packages={**facts.packages, "flashinfer-python": make.package("flashinfer-python", "0.5.3")})
    rows = (make.row("sampling.top_k_top_p", Verdict.WRONG_RESULT),)
    known = findings.find(KB, facts, ())
    [one] = [one for one in advice.advise(KB, facts, (), rows, known) if one.line == OFF]
    assert one.features == ("sampling.top_k_top_p",)
    assert not one.optional


def test_what_a_rule_foretells_to_fail_is_not_turned_on_because_it_was_seen_to_work():
    facts = machine("0.17.1")
    facts = replace(facts, packages={**facts.packages, "flashinfer-python": make.package("flashinfer-python", "0.5.3")})
    rows = (make.row("sampling.top_k_top_p"),)
    known = findings.find(KB, facts, ())
    lines = [one.line for one in advice.advise(KB, facts, (), rows, known)]
    assert OFF not in lines  # it is off
    assert ON not in lines
    assert ON in [one.line for one in advice.advise(KB, facts, (), rows, ())]


def test_what_is_optional_comes_last():
    facts = machine("0.33.0")
    given = advised(facts, outcome("sampling.top_k_top_p", 90, works=False), outcome("attention.sinks", 90, works=True))
    assert [(one.line, one.optional) for one in given] == [(OFF, False), (FI, True)]


DEPENDS = (
    VllmUse(vllm=">=0.1,<0.34", sm=">=90", use="on by default"),
    VllmUse(vllm=">=0.1,<0.34", use="not called: this GPU is not in vLLM's table", called=False),
)
KNOWN = (VllmUse(vllm=">=0.1,<0.34", use="not called: vLLM has its own kernel", called=False),)


@pytest.mark.parametrize("installed", ["0.33.0", None])
@pytest.mark.parametrize(
    ("uses", "sm", "words", "depends"),
    [
        (DEPENDS, 90, "on by default", False),
        (DEPENDS, 80, "not called: this GPU is not in vLLM's table", False),
        (DEPENDS, make.missing("no GPU"), None, True),
        (KNOWN, make.missing("no GPU"), "not called: vLLM has its own kernel", False),
    ],
)
def test_without_a_gpu_nothing_is_said_of_what_depends_on_one(installed, uses, sm, words, depends):
    facts = make.facts(packages={"vllm": installed} if installed else {})
    feature = replace(knowledge.load().features[0], vllm=uses)
    found = called.use_of(feature, sm, facts)
    assert (found and found.use, called.depends_on_gpu(feature, sm, facts)) == (words, depends)
