"""Which rows fail-on looks at: all, or those that vLLM can call."""

from __future__ import annotations

import factory as make
import pytest
from gate_samples import KV, NORM, finding, gate, row
from msgspec.structs import replace

from fi_doctor.model import (
    Policy,
)


def with_vllm(version="0.33.0"):
    facts = make.facts()
    return replace(facts, packages={**facts.packages, "vllm": make.package("vllm", version)})


UNCALLED = {"feature": NORM, "vllm_calls": False}


@pytest.mark.parametrize(
    ("rows", "asked", "version", "code"),
    [
        ("all", (), "0.33.0", 1),
        ("called", (), "0.33.0", 0),
        ("called", (), "", 1),
        ("called", (NORM,), "0.33.0", 1),
        ("called", (KV,), "0.33.0", 0),
    ],
    ids=["all", "called", "no-vllm", "required", "another-required"],
)
def test_what_vllm_cannot_call_fails_only_where_all_rows_are_looked_at_or_it_is_required(rows, asked, version, code):
    facts = with_vllm(version) if version else make.facts()
    given = (row("wrong-result", **UNCALLED), row(feature=KV))
    decided = gate(given, Policy(rows=rows), facts=facts, required=asked)
    assert decided.code == code
    said = "selected row that vLLM 0.33.0 can call" if rows == "called" and version else "selected row"
    ends = " or that is required" if asked else ""
    assert decided.requirements[0].requirement == f"no {said}{ends} is broken or wrong-result"


def test_where_only_rows_that_vllm_cannot_call_were_measured_nobody_can_tell():
    given = (row(**UNCALLED), row("unknown", "none", feature=KV))
    assert gate(given, Policy(rows="all"), facts=with_vllm()).code == 0
    assert gate(given, Policy(rows="called"), facts=with_vllm()).code == 3
    assert gate(given, facts=with_vllm()).code == 3
    alone = gate((row("broken", "ran", **UNCALLED),), Policy(rows="called"), facts=with_vllm())
    assert (alone.code, alone.reason) == (3, "1 row broken; there is no selected row that vLLM 0.33.0 can call")


def test_a_finding_about_rows_that_are_not_looked_at_fails_nothing():
    about = replace(finding(), features=(NORM,))
    given = (row("wrong-result", **UNCALLED), row(feature=KV))
    called = Policy(rows="called", fail_on=("broken", "error"))
    assert gate(given, called, facts=with_vllm(), found=[about]).code == 0
    assert gate(given, called, facts=with_vllm(), found=[replace(about, features=(NORM, KV))]).code == 1
    assert gate(given, called, facts=with_vllm(), found=[replace(about, features=())]).code == 1
    assert gate(given, replace(called, rows="all"), facts=with_vllm(), found=[about]).code == 1


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ((row(), row(feature=KV), row(feature="import.torch")), "2 of 2 that need a GPU"),
        ((row(), row("unknown", "none", feature=KV)), "1 of 2"),
        ((row(feature="import.torch"),), "1 of 1"),
    ],
    ids=["both", "only-of-a-gpu", "only-others"],
)
def test_rows_that_are_left_out_of_the_count_are_told(rows, why):
    assert gate(rows).requirements[1].why == why
