"""The estimate of what to expect on other reports puts aside what was learnt from the reports of a fold."""

from __future__ import annotations

import importlib.util
import json
import pathlib

import pytest

from fi_doctor.knowledge import faults

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "explain.py"
SCORE = "def as_text(report):\n    return report['output'][0]\n"
CAUSE, FAMILY = "nvcc-not-found", "toolchain-missing-or-misfound"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("explain_benchmark", SCRIPT)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def report(name, output="RuntimeError: Could not find nvcc"):
    return {"id": name, "cause": CAUSE, "family": FAMILY, "output": [output]}


def estimated(benchmark, folder, reports):
    (folder / "score.py").write_text(SCORE)
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, reports)))
    return "\n".join(benchmark.estimate(folder))


def learnt_from():
    [fault] = [one for one in faults.load_all() if one.id == "no-nvcc-for-jit"]
    return fault.learnt_from


def test_a_fault_that_other_reports_show_stays(benchmark, tmp_path):
    said = estimated(benchmark, tmp_path, [report(f"other-{at}") for at in range(10)])
    assert "cause right where it was seen in the other folds: 100 % of 10" in said
    assert "family right over all: 100 % of 10" in said


def test_a_fault_is_put_aside_with_all_that_it_was_learnt_from(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "split", lambda reports, seed: [reports[:-1], reports[-1:]])
    said = estimated(benchmark, tmp_path, [*map(report, learnt_from()), report("other")])
    assert f"family right over all: {100 / (len(learnt_from()) + 1):.0f} %" in said


def test_signs_that_only_a_report_has_are_listed(benchmark):
    first, *rest = benchmark.rests(faults.load_all())
    assert f"{len(faults.load_all())} faults" in first
    assert f" {len(rest)} of them from a report alone" in first
