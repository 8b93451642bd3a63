"""A coverage as text, Markdown and JSON."""

from __future__ import annotations

import json

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.errors import UsageError
from fi_doctor.model import (
    COVERAGE_SCHEMA,
    Coverage,
    Covered,
    Doctor,
    Evidence,
    Here,
    MisfitKind,
    Unbound,
    Verdict,
)
from fi_doctor.model.coverage import OTHERS
from fi_doctor.reports import coverage

HERE = Here(row="norm.rmsnorm", sm=90, verdict=Verdict.WORKS, evidence=Evidence.VERIFIED, why="it agrees")
RMSNORM = Covered(
    id="rmsnorm",
    group="Basic inference",
    title="RMSNorm",
    flashinfer={"flashinfer.norm.rmsnorm": "norm/__init__.py:642"},
    flashinfer_why="",
    vllm=("a.py:1", "b.py:2", "c.py:3"),
    vllm_why="",
    here=(HERE,),
    missing=(),
    unknown=(),
    instead="vLLM's own",
)
AWQ = Covered(
    id="awq",
    group="Quantisation",
    title="AWQ",
    flashinfer={},
    flashinfer_why="it has no public name like *awq*",
    vllm=(),
    vllm_why="there is nothing to call",
    here=(replace(HERE, row="quant.awq", verdict=Verdict.UNKNOWN, why="because \x1b[31m"),),
    missing=("flashinfer", "vllm"),
    unknown=("here",),
    instead="Marlin | others",
)
WHOLE = Coverage(
    schema=COVERAGE_SCHEMA,
    doctor=Doctor(version="1", knowledge="2"),
    created="2026-01-02",
    flashinfer="flashinfer-python 0.7.2.post1",
    vllm="vllm 0.33.0",
    known="a static look: nothing was built or run",
    operators=(RMSNORM, AWQ),
    calls=make.calls(make.misfit(), unbound=(Unbound(name="flashinfer.x", caller="x.py:3", why="** in the call"),)),
)


def test_the_first_line_counts_what_is_missing_where_and_what_is_not_known():
    first = " ".join(coverage.render(WHOLE, "console").split("\n")[:2])
    assert first == (
        "Of 2 operators, 1 is not in FlashInfer, 1 is not called by vLLM, 0 do not work here (1 not known here)."
    )


def test_rows_that_are_no_operator_of_a_complete_backend_are_counted_apart():
    row = replace(RMSNORM, id="kv.append", group=OTHERS)
    first = coverage.headline(replace(WHOLE, operators=(RMSNORM, AWQ, row)))
    assert first.startswith("Of 3 operators (2 of a complete backend, 1 row beside), 1 is not in FlashInfer")


def test_each_place_is_named_with_file_and_line():
    text = coverage.render(WHOLE, "console", width=120)
    assert "FlashInfer: flashinfer.norm.rmsnorm (flashinfer/norm/__init__.py:642)" in text
    assert "vLLM: vllm/a.py:1, vllm/b.py:2 and 1 more" in text
    assert "here: norm.rmsnorm on SM90 works (verified)" in text
    assert "awq: AWQ (missing: FlashInfer, vLLM)" in text
    assert "instead: Marlin | others" in text
    assert "instead: vLLM's own" not in text


def test_only_what_is_missing_and_where():
    text = coverage.render(WHOLE, "console", only_missing=True, width=120)
    assert text.startswith("1 operator missing somewhere.\n")
    assert "rmsnorm" not in text
    assert "FlashInfer: it has no public name like *awq*" in text
    assert "    here:" not in text


@pytest.mark.parametrize("form", coverage.FORMATS)
def test_nothing_that_a_terminal_obeys_is_written(form):
    for text in (coverage.render(WHOLE, form), coverage.calls(WHOLE, form)):
        assert "\x1b" not in text
        assert text.endswith("\n")


def test_lines_are_no_longer_than_asked():
    text = coverage.render(WHOLE, "console", width=80) + coverage.calls(WHOLE, "console", width=80)
    assert max(map(len, text.splitlines())) <= 80


def test_markdown_is_a_table_that_its_cells_do_not_break():
    rows = [line for line in coverage.render(WHOLE, "markdown").splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}
    assert "\\*awq\\*" in rows[-1]


def test_json_holds_everything():
    plain = json.loads(coverage.render(WHOLE, "json"))
    assert plain["schema"] == "fi-doctor.coverage/1.0"
    assert [one["id"] for one in plain["operators"]] == ["rmsnorm", "awq"]
    assert plain["calls"]["misfits"][0]["kind"] == MisfitKind.UNKNOWN_KEYWORD.value
    assert [one["id"] for one in json.loads(coverage.render(WHOLE, "json", only_missing=True))["operators"]] == ["awq"]


def test_the_calls_are_counted_apart_and_each_is_named():
    text = coverage.calls(WHOLE, "console", width=160)
    assert text.startswith("vLLM uses FlashInfer in 4 places: 2 fit, 1 do not, 1 cannot be told.\n")
    assert "vllm-passes-unknown-flashinfer-keyword: vllm/sampler.py:5: flashinfer.sampling" in text
    assert "  ** in the call (1):\n    flashinfer.x (vllm/x.py:3)\n" in text


def test_what_cannot_be_told_stands_together_by_its_reason():
    several = {
        ("flashinfer.a", "x.py:3"): "it is computed",
        ("flashinfer.b", "x.py:4"): "it cannot be looked up: @jit",
        ("flashinfer.c", "x.py:5"): "it cannot be looked up: @cute",
        ("flashinfer.b", "x.py:40"): "it cannot be looked up: @jit",
        ("flashinfer.b", "z.py:1"): "it cannot be looked up: @jit",
    }
    unbound = tuple(Unbound(name=name, caller=caller, why=why) for (name, caller), why in several.items())
    text = coverage.calls(replace(WHOLE, calls=make.calls(unbound=unbound)), "console")
    assert text.partition("Cannot be told:\n")[2].splitlines() == [
        "  it cannot be looked up (4):",
        "    @jit:",
        "      flashinfer.b (vllm/x.py:4, 40, vllm/z.py:1)",
        "    @cute:",
        "      flashinfer.c (vllm/x.py:5)",
        "  it is computed (1):",
        "    flashinfer.a (vllm/x.py:3)",
    ]


def test_no_place_is_left_out_however_many_there_are():
    unbound = tuple(Unbound(name="flashinfer.x", caller=f"{'long' * 20}_{n}.py:{n}", why="why") for n in range(99))
    text = coverage.calls(replace(WHOLE, calls=make.calls(unbound=unbound)), "console")
    assert all(f"_{n}.py:{n}" in text for n in range(99))


def test_what_could_not_be_read_is_said():
    broken = replace(
        WHOLE, calls=make.calls(unread={"bad.py": "SyntaxError: no"}, wanting={"flashinfer.newer": "y.py:4"})
    )
    text = coverage.calls(broken, "console")
    assert "1 file\ncould not be read." in text
    assert "vllm/bad.py: SyntaxError: no" in text
    assert "vllm/y.py:4: flashinfer.newer" in text
    gone = replace(WHOLE, calls=make.missing("no vllm"))
    assert coverage.calls(gone, "console") == "It is not known how vLLM calls FlashInfer: no vllm\n"


def test_a_format_that_is_none_is_refused():
    with pytest.raises(UsageError):
        coverage.render(WHOLE, "html")
