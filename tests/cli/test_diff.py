"""fi-doctor diff: two recorded machines, as the real command tells them apart."""

from __future__ import annotations

import itertools
import json
import pathlib

import factory as make
import pytest
from cli_command import in_three_parts

from fi_doctor.knowledge import examples
from fi_doctor.model import Depth

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
    first = "      first to look at: the finding fp8-block-moe-refused-below-cuda-12-8 is\n        gone\n"
    assert f"{first}          toolkit.jit.nvcc.version: 12.6 -> 13.0;" in done.stdout


@pytest.mark.parametrize("form", ["console", "json", "markdown"])
def test_a_difference_looks_as_its_golden_file_says(form, doctor, golden):
    done = doctor("diff", "h200-nvcc-12.6", "h200-nvcc-mended", "--format", form)
    golden(f"changes/h200-nvcc-12.6-to-mended.{form}", done.stdout)


@pytest.mark.parametrize(("one", "other"), list(itertools.pairwise(examples.names())))
def test_no_line_is_longer_than_the_terminal(one, other, doctor):
    done = doctor("diff", one, other)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_equal_runs_write_the_same(doctor):
    runs = [doctor("diff", OLD, NEW, "--format", "json", env={"PYTHONHASHSEED": seed}) for seed in (1, 2)]
    assert runs[0].stdout == runs[1].stdout
    assert json.loads(runs[0].stdout)["rows"]


def test_a_list_says_what_is_gone_and_new(doctor):
    old = make.facts(flashinfer=make.flashinfer(cached_modules=tuple(f"module_{at}" for at in range(40))))
    new = make.facts(flashinfer=make.flashinfer(cached_modules=tuple(f"module_{at}" for at in range(1, 41))))
    before, after = doctor.report("old.json", facts=old), doctor.report("new.json", facts=new)
    for form, wanted in (
        ("console", "flashinfer.cached_modules: gone: module_0; new: module_40"),
        ("markdown", "`flashinfer.cached_modules`: gone: module\\_0; new: module\\_40"),
    ):
        done = doctor("diff", before, after, "--format", form)
        assert wanted in done.stdout
        assert "module_7" not in done.stdout.replace("\\", "")


def test_markup_and_escapes_of_a_report_are_shown_and_not_obeyed(doctor):
    hostile = make.facts(environment={"CUDA_HOME": "\x1b[31m<script> | `x` **b**"})
    before, after = doctor.report("old.json", broken=("norm.rmsnorm",)), doctor.report("new.json", facts=hostile)
    markdown = doctor("diff", before, after, "--format", "markdown").stdout
    assert "\\<script\\> \\| \\`x\\` \\*\\*b\\*\\*" in markdown
    assert "\x1b" not in markdown + doctor("diff", before, after).stdout


def test_any_row_that_differs_is_1_and_facts_alone_are_0(doctor):
    works = doctor.report("works.json")
    assert doctor("diff", works, doctor.report("broken.json", broken=("norm.rmsnorm",)), "--exit-code").returncode == 1
    less = doctor.report("built.json", depth=Depth.BUILD)  # evidence
    assert doctor("diff", less, works, "--exit-code").returncode == 1
    other = doctor.report("other.json", facts=make.facts(environment={"CUDA_HOME": "/usr/local/cuda-13.0"}))
    done = doctor("diff", works, other, "--exit-code")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith("; 1 fact differs")


def test_no_row_to_compare_is_no_success(doctor):
    plain = json.loads(doctor.report("none.json").read_text())
    path = doctor.folder / "none.json"
    path.write_text(json.dumps({**plain, "features": []}))
    done = doctor("diff", path, path, "--as-recorded", "--exit-code")
    assert done.returncode == 3
    assert in_three_parts(done.stderr)["error"] == "there is no row to compare"
    assert doctor("diff", path, path, "--as-recorded").returncode == 0


@pytest.fixture
def now(doctor):
    """A report of this machine, as `fi-doctor report` writes it."""
    path = doctor.folder / "now.json"
    assert doctor("report", "--json", "-o", path).returncode == 0
    return path


def test_a_report_does_not_differ_from_the_machine_that_it_was_just_made_on(now, doctor):
    done = doctor("diff", now, "--exit-code")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("no fact differs\n")


def test_what_has_changed_since_is_told(now, doctor):
    done = doctor("diff", now, "--static", "--format", "json", env={"CUDA_HOME": "/nowhere"})
    found = json.loads(done.stdout)
    assert {"name": "environment.CUDA_HOME", "before": "not there", "after": "/nowhere"} in found["facts"]
    assert found["rows_compared"]


def test_static_compares_what_is_known_without_what_was_run(doctor):
    done = doctor("diff", OLD, NEW, "--static", "--format", "json")
    rows = json.loads(done.stdout)["rows"]
    assert rows
    assert {word for row in rows for word in row["evidence"]} <= {"none", "declared", "predicted"}
    assert done.stdout != doctor("diff", OLD, NEW, "--format", "json").stdout


def test_a_report_of_a_run_is_compared_as_deep_as_this_machine_allows(doctor):
    done = doctor("diff", doctor.report(), "--quiet", "--format", "json")
    found = json.loads(done.stdout)
    assert found["rows_compared"] == len(json.loads(doctor.report().read_text())["features"])
    [row] = [row for row in found["rows"] if row["feature"] == "norm.rmsnorm"]
    assert (row["verdicts"][0], row["sms"][0]) == ("works", 90)
    assert row["verdicts"][1] != "works"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((OLD, NEW, "--static", "--as-recorded"), "--static and --as-recorded"),
        ((OLD, NEW, "--python", "python3"), "--python: nothing is examined"),
        ((OLD, "--python", ""), "--python: '' names no interpreter"),
        ((OLD, "--python", "/nowhere/python"), "/nowhere/python"),
        (("/nowhere/report.yaml",), "/nowhere/report.yaml"),
        ((OLD, "--format", "markdwon"), "--format"),
        ((), "missing argument"),
    ],
    ids=["static-as-recorded", "python", "no-python", "absent-python", "absent", "format", "nothing"],
)
def test_bad_words_are_refused(words, said, doctor):
    done = doctor("diff", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in in_three_parts(done.stderr)["error"]


def test_a_difference_goes_to_files_as_a_report_does(doctor, tmp_path):
    done = doctor("diff", OLD, NEW, "-f", "console", "-f", f"json:{tmp_path}/d.json", "-o", f"{tmp_path}/d.txt")
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "d.json").read_text())["schema"].startswith("fi-doctor.difference/")
    assert (tmp_path / "d.txt").read_text() == doctor("diff", OLD, NEW).stdout
    doctor("diff", OLD, NEW, "-o", f"{tmp_path}/d.md")
    assert (tmp_path / "d.md").read_text() == doctor("diff", OLD, NEW, "-f", "markdown").stdout
    nowhere = doctor("diff", OLD, NEW, "-o", f"{tmp_path}/no/d.md")
    assert (nowhere.returncode, in_three_parts(nowhere.stderr)["why"]) == (2, f"there is no folder '{tmp_path}/no'")
