"""fi-doctor diff: two recorded machines, as the real command tells them apart."""

from __future__ import annotations

import json
import pathlib

from cli_command import in_three_parts

MACHINES = pathlib.Path(__file__).parents[1] / "machines"
OLD = MACHINES / "h200-cuda13.0-flashinfer0.5.3" / "warm.json"
NEW = MACHINES / "h200-cuda13.0-flashinfer0.7.2.post1" / "warm.json"


def test_the_rows_the_facts_and_the_findings_are_told(doctor):
    done = doctor("diff", OLD, NEW)
    assert (done.returncode, done.stderr) == (0, "")
    assert "activation.silu_and_mul on SM90: broken (ran) -> works (verified)" in done.stdout
    assert "packages.flashinfer-python.version: 0.5.3 -> 0.7.2.post1" in done.stdout
    assert "Findings that are gone\n  act-and-mul-misaligned" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_says_the_same(doctor):
    found = json.loads(doctor("diff", OLD, NEW, "--format", "json").stdout)
    assert found["schema"] == "fi-doctor.difference/1.0"
    changed = {row["feature"]: row["verdicts"] for row in found["rows"]}
    assert changed["activation.silu_and_mul"] == ["broken", "works"]
    assert {"name": "flashinfer.version", "before": "0.5.3", "after": "0.7.2.post1"} in found["facts"]


def test_the_exit_code_tells_only_when_it_is_asked_to(doctor):
    assert doctor("diff", OLD, OLD, "--exit-code").returncode == 0
    assert doctor("diff", OLD, NEW, "--exit-code").returncode == 1
    assert doctor("diff", OLD, OLD).stdout.startswith("No verdict of ")


def test_what_is_no_report_is_refused(doctor, tmp_path):
    (tmp_path / "no.json").write_text("{}")
    done = doctor("diff", OLD, tmp_path / "no.json")
    assert done.returncode == 2
    assert "no.json" in in_three_parts(done.stderr)["error"]
    assert doctor("diff", "-", "-").returncode == 2
    assert doctor("diff", OLD, NEW, "--format", "yaml").returncode == 2


def test_examples_are_known_by_name(doctor):
    done = doctor("diff", "h200-nvcc-12.6", "h200-nvcc-mended")
    assert done.returncode == 0
    assert "moe.fp8_block on SM90: broken (ran) -> unknown (declared)" in done.stdout
    assert "toolkit.gate_version: 12.6 -> 13.0" in done.stdout
