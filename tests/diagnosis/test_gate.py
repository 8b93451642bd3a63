from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import Depth, Evidence, Request, Verdict, as_predicted

WORKS = ("works", "verified")
BROKEN = ("broken", "ran")
NOT_BUILT = ("broken", "built")
PREDICTED = ("broken", "predicted")
WRONG = ("wrong-result", "verified")
UNKNOWN = ("unknown", "declared")
BUILT = ("unknown", "built")
UNSUPPORTED = ("unsupported", "declared")
UNSUPPORTED_KV = "kv.append_paged on SM90 is unsupported: x"
NAMES = ("norm.rmsnorm", "kv.append_paged", "sampling.top_k_top_p")


def rows(*verdicts):
    """A row for each verdict; the first of NAMES first."""
    return tuple(make.row(name, Verdict(v), Evidence(e)) for name, (v, e) in zip(NAMES, verdicts, strict=False))


def gate(of, *, required=(), features=()):
    return decide(Request(depth=Depth.RUN, required=required, features=features), of, (), make.facts())


@pytest.mark.parametrize(
    ("verdicts", "required", "code"),
    [
        ((WORKS,), (), 0),
        ((WORKS, UNKNOWN), (), 0),
        ((WORKS, UNSUPPORTED), (), 0),
        ((WORKS, BROKEN), (), 1),
        ((WORKS, NOT_BUILT), (), 1),
        ((WORKS, WRONG), (), 1),
        ((WORKS, PREDICTED), (), 3),
        ((PREDICTED, PREDICTED), (), 3),
        ((UNKNOWN, UNKNOWN), (), 3),
        ((BUILT, BUILT), (), 3),
        ((UNSUPPORTED, UNSUPPORTED), (), 3),
        ((), (), 3),
        ((WORKS,), ("norm.rmsnorm",), 0),
        ((WORKS, UNKNOWN), ("norm.rmsnorm",), 0),
        ((WORKS, UNKNOWN), ("kv.append_paged",), 3),
        ((WORKS, BUILT), ("kv.*",), 3),
        ((WORKS, PREDICTED), ("kv.*",), 3),
        ((WORKS, UNSUPPORTED), ("kv.append_paged",), 1),
        ((WORKS, UNSUPPORTED, UNKNOWN), ("*",), 1),
        ((UNKNOWN, UNSUPPORTED), ("kv.append_paged",), 1),
        ((UNKNOWN, BROKEN), ("norm.rmsnorm",), 1),
        ((WORKS,), ("nrm.rmsnorm",), 3),
        ((WORKS, WORKS), ("nrm.*", "kv.*"), 3),
    ],
    ids=lambda value: (
        "-".join("/".join(v) if isinstance(v, tuple) else v for v in value) if isinstance(value, tuple) else str(value)
    ),
)
def test_the_exit_code(verdicts, required, code):
    assert gate(rows(*verdicts), required=required).code == code


def imports(verdict, evidence):
    return make.row("import.torch", Verdict(verdict), Evidence(evidence), sm=make.missing("it needs no GPU"))


def test_a_broken_import_fails_the_check():
    assert gate((imports("broken", "ran"), *rows(WORKS))).code == 1


def test_imports_alone_are_no_measurement_where_rows_that_need_a_gpu_are_selected():
    of = (imports("works", "ran"), *rows(UNKNOWN))
    decided = gate(of)
    assert (decided.code, decided.measured) == (3, 0)
    assert decided.reason == "1 row works, 1 unknown; nothing that needs a GPU was measured: as it was found"


def test_imports_alone_count_where_nothing_else_is_selected():
    of = (imports("works", "ran"), *rows(UNKNOWN))
    decided = gate(of, features=("import.*",))
    assert (decided.code, decided.measured, decided.counts["works"], decided.counts["unknown"]) == (0, 1, 1, 0)


def test_a_row_that_is_not_selected_does_not_fail_the_check():
    assert gate(rows(WORKS, BROKEN), features=("norm.*",)).code == 0


def test_a_required_row_counts_on_every_capability():
    of = (make.row(sm=90), make.row(verdict=Verdict.UNKNOWN, evidence=Evidence.DECLARED, sm=120))
    decided = gate(of, required=("norm.rmsnorm",))
    assert (decided.code, decided.failed_required) == (3, ("norm.rmsnorm",))


def test_wrong_numbers_are_named_before_crashes():
    of = (make.row(NAMES[0], Verdict.BROKEN, Evidence.RAN), make.row(NAMES[1], Verdict.WRONG_RESULT, why="max error 3"))
    assert gate(of).reason == "1 row gives wrong results, 1 broken: kv.append_paged on SM90: max error 3"


@pytest.mark.parametrize(
    ("verdicts", "required", "reason"),
    [
        ((WORKS, WORKS), (), "2 rows work"),
        ((WORKS, UNKNOWN), (), "1 row works, 1 unknown"),
        ((WORKS, WORKS, BROKEN), (), "2 rows work, 1 broken: sampling.top_k_top_p on SM90: x"),
        ((), (), "no row is selected"),
        ((WORKS, UNSUPPORTED), ("kv.*",), "1 row works, 1 unsupported; required: " + UNSUPPORTED_KV),
        ((WORKS, PREDICTED), (), "1 row works, 1 broken (predicted): kv.append_paged on SM90 was not measured: x"),
        ((WORKS,), ("x.y",), "1 row works; required: x.y names no row"),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else value[:30],
)  # fmt: skip
def test_the_reason_is_one_line_that_counts_every_verdict(verdicts, required, reason):
    assert gate(rows(*verdicts), required=required).reason.replace("as it was found", "x") == reason


def test_the_reason_says_why_nothing_ran_and_not_where_it_is_declared():
    of = make.row(verdict=Verdict.UNKNOWN, evidence=Evidence.DECLARED, why="x is there (y.py:1); not run: no GPU")
    assert gate((of,)).reason == "1 row unknown; nothing that needs a GPU was measured: no GPU"


def test_a_reason_of_many_lines_becomes_one():
    assert "\n" not in gate((make.row(verdict=Verdict.BROKEN, why="first\nsecond\n" + "x" * 500),)).reason


@pytest.mark.parametrize(
    ("features", "is_called", "is_said"),
    [(("kv.*",), False, True), (("kv.*",), True, False), ((), False, False)],
    ids=["named", "called", "not-named"],
)
def test_that_vllm_calls_nothing_of_what_fails_is_said_where_it_counts_all_the_same(features, is_called, is_said):
    facts = make.facts(packages={"vllm": "0.33.0"})
    failing = tuple(replace(row, vllm_calls=is_called) for row in rows(WORKS, WRONG))
    found = decide(Request(depth=Depth.RUN, features=features), failing, (), facts)
    assert ("vLLM 0.33.0 calls none of those that fail" in found.reason) is is_said
    assert found.code == (1 if features or is_called else 3)


@pytest.mark.parametrize(
    ("evidences", "said"),
    [
        ((Evidence.PREDICTED,), " (predicted)"),
        ((Evidence.PREDICTED, Evidence.PREDICTED), " (predicted)"),
        ((Evidence.PREDICTED, Evidence.VERIFIED), " (1 of them predicted)"),
        ((Evidence.VERIFIED,), ""),
        ((), ""),
    ],
)
def test_a_number_of_failing_rows_says_how_many_of_them_nothing_measured(evidences, said):
    assert as_predicted([make.row("norm.rmsnorm", Verdict.BROKEN, evidence=one) for one in evidences]) == said


@pytest.mark.parametrize(
    ("vllm", "said"),
    [("0.33.0", "nothing that needs a GPU and that vLLM 0.33.0 can call"), ("", "nothing that needs a GPU")],
)
def test_nothing_foretold_is_said_of_the_rows_that_are_looked_at_by_name(vllm, said):
    facts = make.facts(packages={"vllm": vllm or make.missing("not installed")})
    wrong = make.row("norm.rmsnorm", Verdict.WRONG_RESULT, evidence=Evidence.PREDICTED)
    called = make.row("kv.append_paged", Verdict.UNKNOWN, evidence=Evidence.NONE, why="nobody tried it")
    found = (called, *([replace(wrong, vllm_calls=False)] if vllm else []))
    reason = decide(Request(depth=Depth.STATIC), found, (), facts, foretold=True).reason
    assert reason.endswith(f"; {said} was measured or is foretold: kv.append_paged on SM90: nobody tried it")
