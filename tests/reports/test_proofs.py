"""What trying recommendations showed, as each format says it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from fi_doctor.knowledge import examples
from fi_doctor.model import ActionKind, Evidence, Proof, Proven, Recommendation, Trial, Tried, Verdict
from fi_doctor.reports import console, document, exports, github, markdown, proofs

REPORT = document.read(examples.data("h200"), "an example")
FAILED = Tried(verdict=Verdict.BROKEN, evidence=Evidence.BUILT, why="cannot find -lcudart", seconds=0.3)
MENDED = Tried(verdict=Verdict.WORKS, evidence=Evidence.VERIFIED, why="numbers agree", seconds=1.5)
BUILT = Tried(verdict=Verdict.UNKNOWN, evidence=Evidence.BUILT, why="it compiled and loaded here; not run")
ANOTHER = Tried(verdict=Verdict.BROKEN, evidence=Evidence.BUILT, why="cannot find -lcuda")
CUT_OFF = Tried(verdict=Verdict.UNKNOWN, evidence=Evidence.NONE, why="budget of 1 s used up")


def trial(after, variant="bf16"):
    turned = after in (MENDED, BUILT)
    return Trial(
        feature="norm.rmsnorm", sm=90, probe="norm.rmsnorm", variant=variant, before=FAILED, after=after, turned=turned
    )


TURNED = Proof(result=Proven.TURNED, trials=(trial(MENDED), trial(MENDED, "fp16")), seconds=12.2)
IN_PART = Proof(result=Proven.IN_PART, trials=(trial(BUILT), trial(ANOTHER, "fp16")), seconds=9.0)
VAIN = Proof(result=Proven.DID_NOT_HELP, trials=(trial(ANOTHER),), seconds=3.0)
UNPROVEN = Proof(result=Proven.NOT_PROVEN, why="it installs a package")
SAID = "tried here: norm.rmsnorm on SM90 (bf16, fp16) broken -> works (verified), 12 s"


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (None, []),
        (TURNED, [SAID]),
        (
            IN_PART,
            [
                "tried here: norm.rmsnorm on SM90 (bf16) broken -> built: it compiled and loaded here; not run",
                "not turned: norm.rmsnorm on SM90 (fp16) broken -> broken (built): cannot find -lcuda, 9 s",
            ],
        ),
        (
            VAIN,
            ["tried here, did not help: norm.rmsnorm on SM90 (bf16) broken -> broken (built): cannot find -lcuda, 3 s"],
        ),
        (
            replace(IN_PART, trials=(trial(MENDED), trial(CUT_OFF, "fp16"))),
            [
                "tried here: norm.rmsnorm on SM90 (bf16) broken -> works (verified)",
                "not known: norm.rmsnorm on SM90 (fp16) broken -> unknown (none): budget of 1 s used up, 9 s",
            ],
        ),
        (UNPROVEN, ["not proven: it installs a package"]),
        (
            Proof(result=Proven.DID_NOT_HELP, why="Python does not start", seconds=1.0),
            ["tried here, did not help: Python does not start, 1 s"],
        ),
    ],
)
def test_what_is_said(proof, said):
    assert proofs.told(proof) == said


def recommended(line, proof, kind=ActionKind.SET):
    return Recommendation(kind=kind, line=line, why="it does not link", findings=("a-finding",), proof=proof)


@pytest.fixture
def report():
    kept = recommended("export CUDA_HOME=/good  # it lacks nvrtc.h", TURNED)
    return replace(REPORT, recommendations=(kept,), disproved=(recommended("export CUDA_HOME=/bad", VAIN),))


@pytest.mark.parametrize("render", [lambda one: console.render(one, width=200), markdown.render, github.render])
def test_every_format_for_people_has_both(report, render):
    text = render(report).replace("\\", "")
    assert "norm.rmsnorm on SM90 (bf16, fp16) broken -" in text
    assert "export CUDA_HOME=/bad" in text
    assert "cannot find -lcuda, 3 s" in text


def test_a_mend_that_did_not_help_is_not_among_those_of_its_finding(report):
    finding = replace(REPORT.findings[0], id="a-finding", fix=("export CUDA_HOME=/bad", "something else"))
    text = console.render(replace(report, findings=(finding,)), width=200)
    assert text.count("export CUDA_HOME=/bad") == 1
    assert "fix: something else" in text


def test_a_report_without_trials_says_nothing_of_them(report):
    bare = replace(report, recommendations=(recommended("export A=1", None),), disproved=())
    for text in (console.render(bare, width=200), markdown.render(bare), github.render(bare)):
        assert "tried here" not in text.lower()


def test_env_sets_what_helped_in_spite_of_its_remark_and_leaves_out_what_did_not(report):
    text = exports.export(report, "shell").text
    assert text == f"# it does not link [a-finding]\n# {SAID}\nexport CUDA_HOME=/good\n"
    assert exports.disproved_told(report) == [f"left out: export CUDA_HOME=/bad; {proofs.told(VAIN)[0]}"]
    assert [one["line"] for one in json.loads(exports.export(report, "json").text)] == [report.recommendations[0].line]


def test_a_written_report_brings_it_back(report):
    assert document.read(document.to_json(report).encode(), "a report") == document.in_order(report)
