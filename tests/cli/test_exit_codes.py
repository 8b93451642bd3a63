"""The exit code is the gate's, the same in every format; stdout is the report and nothing else."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import factory as make
import pytest
from cli_command import (
    BROKEN,
    FORMATS,
    code_of,
    in_three_parts,
    linked_package,
    parsed,
    report,
    verdicts,
    with_verdicts,
)

from fi_doctor.model import Admission, Depth, Verdict
from fi_doctor.reports import render

SOME = ("console", "json", "html")  # where nothing is rendered, they stand for all

REFUSED = make.flashinfer(
    admissions={"flashinfer.norm.rmsnorm": (Admission(source="norm/__init__.py:9", admits=(90,), refuses=(70,)),)}
)
CASES = {
    "0-all-verified": (0, {}, ()),
    "1-one-broken": (1, {"broken": (BROKEN,)}, ()),
    "1-wrong-numbers": (1, {"wrong": (BROKEN,)}, ()),
    "3-read-only": (3, {"depth": Depth.STATIC}, ()),
    "3-no-gpu": (3, {"facts": make.facts(gpus=make.no_gpus())}, ()),
    "0-required-works": (0, {}, ("--require", BROKEN)),
    "1-required-broken": (1, {"broken": (BROKEN,)}, ("--require", "norm.*")),
    "3-required-untold": (3, {"depth": Depth.STATIC}, ("--require", BROKEN)),
}

MACHINES = Path(__file__).parents[1] / "machines"


@pytest.mark.parametrize("case", CASES)
def test_the_exit_code_and_the_deciding_line_are_the_same_in_every_format(doctor, case):
    code, options, asked = CASES[case]
    first, *rest = FORMATS
    others = itertools.chain.from_iterable(("--format", f"{fmt}:out.{fmt}") for fmt in rest)
    done = doctor("check", "--from", doctor.report(**options), "--format", first, *others, *asked)
    assert done.returncode == code, done.stderr
    texts = {first: done.stdout, **{fmt: (doctor.folder / f"out.{fmt}").read_text(encoding="utf-8") for fmt in rest}}
    assert {fmt: code_of(text, fmt) for fmt, text in texts.items()} == dict.fromkeys(FORMATS, code)
    last = done.stderr.splitlines()[-1]
    assert last == f"fi-doctor: {parsed(texts['json'], 'json')['gate']['reason']} (exit {code})"
    assert parsed(texts["yaml"], "yaml") == parsed(texts["json"], "json")


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_format_alone_has_the_same_code_and_deciding_line(doctor, fmt):
    done = doctor("check", "--from", doctor.report(broken=(BROKEN,)), "--format", fmt)
    assert (done.returncode, code_of(done.stdout, fmt)) == (1, 1)
    assert done.stderr.splitlines()[-1] == f"fi-doctor: {report(broken=(BROKEN,)).gate.reason} (exit 1)"


@pytest.mark.parametrize("fmt", SOME)
def test_a_mistake_in_the_words_is_2_and_nothing_is_on_stdout(doctor, fmt):
    done = doctor("check", "--from", doctor.report(), "--feature", "norm.rmsnrm", "--format", fmt)
    assert (done.returncode, done.stdout) == (2, "")
    assert in_three_parts(done.stderr)["try"] == "--feature norm.rmsnorm"


@pytest.mark.parametrize("fmt", SOME)
def test_a_broken_rule_that_ships_is_4_and_named(doctor, tmp_path, fmt):
    broken = "fi_doctor/knowledge/data/rules/toolkit/ninja-not-found.yaml"
    place = linked_package(tmp_path, broken)
    rule = place / broken
    rule.write_text(rule.read_text(encoding="utf-8").replace("severity:", "severty:"), encoding="utf-8")
    done = doctor("check", "--from", doctor.report(), "--format", fmt, env={"PYTHONPATH": place})
    assert (done.returncode, done.stdout) == (4, "")
    said = in_three_parts(done.stderr)
    assert "knowledge" in said["error"]
    assert "toolkit/ninja-not-found.yaml" in done.stderr
    assert said["try"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "fmt"), [("msgspec", "console"), ("typer", "json"), ("packaging", "html")])
def test_a_missing_dependency_is_4_and_named(doctor, tmp_path, name, fmt):
    hidden = linked_package(tmp_path)
    raising = f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')\n"
    (hidden / f"{name}.py").write_text(raising, encoding="utf-8")
    done = doctor("check", "--from", doctor.report(), "--format", fmt, env={"PYTHONPATH": hidden})
    assert (done.returncode, done.stdout) == (4, "")
    said = in_three_parts(done.stderr)
    assert name in said["why"]
    # -I, because of what lies on PYTHONPATH pip says that it is installed.
    assert " -I -m pip install --force-reinstall " in said["try"]


def test_a_missing_dependency_is_installed_from_where_fi_doctor_came(doctor, tmp_path):
    hidden = linked_package(tmp_path)
    raising = "raise ModuleNotFoundError(\"No module named 'typer'\", name='typer')\n"
    (hidden / "typer.py").write_text(raising, encoding="utf-8")
    info = hidden / "fi_doctor-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fi-doctor\nVersion: 0.1.0\n", encoding="utf-8")
    source = tmp_path / "a checkout"
    source.mkdir()
    record = {"dir_info": {}, "url": source.as_uri()}
    (info / "direct_url.json").write_text(json.dumps(record), encoding="utf-8")
    done = doctor("features", env={"PYTHONPATH": hidden})
    assert done.returncode == 4
    assert in_three_parts(done.stderr)["try"].endswith(f"install --force-reinstall '{source}'")
    source.rmdir()
    done = doctor("features", env={"PYTHONPATH": hidden})
    assert in_three_parts(done.stderr)["try"].endswith("install --force-reinstall .")


@pytest.mark.parametrize("fmt", SOME)
def test_a_fault_of_ours_is_4_with_a_report_that_is_ready_to_paste(doctor, tmp_path, fmt):
    place = linked_package(tmp_path, "fi_doctor/diagnosis/gate.py")
    gate = place / "fi_doctor/diagnosis/gate.py"
    fault = "    raise ZeroDivisionError('a fault')\n    chosen = tuple("
    gate.write_text(gate.read_text(encoding="utf-8").replace("    chosen = tuple(", fault, 1), encoding="utf-8")
    env = {"PYTHONPATH": place, "SECRET_TOKEN": "hunter2"}
    done = doctor("check", "--from", doctor.report(), "--format", fmt, env=env)
    assert (done.returncode, done.stdout) == (4, "")
    assert "bug" in in_three_parts(done.stderr)["error"]
    for words in ("ZeroDivisionError: a fault", "fi-doctor 0.", "Python 3.", "gate.py", f"--format {fmt}"):
        assert words in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(("option", "fmt"), [((), "yaml"), (("--yaml",), "yaml"), (("--json",), "json")])
@pytest.mark.parametrize("options", [{}, {"broken": (BROKEN,)}, {"depth": Depth.STATIC}], ids=["0", "1", "3"])
def test_report_exits_0_once_it_is_written_whatever_it_says(doctor, options, option, fmt):
    done = doctor("report", "--from", doctor.report(**options), *option)
    assert done.returncode == 0, done.stderr
    assert parsed(done.stdout, fmt)["schema"].startswith("fi-doctor.report/1.")


def test_a_report_has_one_format(doctor):
    done = doctor("report", "--yaml", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert in_three_parts(done.stderr)["try"]


def test_a_report_for_a_project_is_in_its_form_and_of_no_other_format(doctor):
    done = doctor("report", "--for-issue", "vllm", "--example", "h200")
    assert (done.returncode, done.stderr) == (0, "")
    assert "### Your current environment" in done.stdout
    done = doctor("report", "--for-issue", "vlm", "--example", "h200")
    assert (done.returncode, done.stdout) == (2, "")
    assert "vllm" in done.stderr
    done = doctor("report", "--for-issue", "vllm", "--yaml", "--example", "h200")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yaml and --for-issue: a report has one format" in done.stderr


@pytest.mark.parametrize(
    ("options", "asked", "code"),
    [
        ({}, (), 0),
        ({}, ("norm.*",), 0),
        ({"broken": (BROKEN,)}, (), 1),
        ({"broken": (BROKEN,)}, ("sampling.top_k_*",), 1),
        ({"facts": make.facts(gpus=make.gpu_facts(make.gpu(sm=70)))}, (), 3),
        ({"facts": make.facts(gpus=make.gpu_facts(make.gpu(sm=70)))}, (BROKEN,), 3),
        ({"facts": make.facts(gpus=make.gpu_facts(make.gpu(sm=70)), flashinfer=REFUSED)}, (BROKEN,), 1),
        ({"depth": Depth.STATIC}, (BROKEN,), 3),
        ({"depth": Depth.STATIC}, ("norm.*,sampling.*",), 3),
    ],
)
def test_a_required_row_must_work(doctor, options, asked, code):
    words = itertools.chain.from_iterable(("--require", name) for name in asked)
    done = doctor("check", "--from", doctor.report(**options), *words, "--format", "json")
    assert done.returncode == code, done.stderr
    missed = parsed(done.stdout, "json")["gate"]["failed_required"]
    assert bool(missed) == bool(asked and asked != ("sampling.top_k_*",) and code != 0)


@pytest.mark.parametrize(
    ("globs", "names"),
    [
        (("norm.*rmsnorm",), {"norm.rmsnorm", "norm.fused_add_rmsnorm", "norm.gemma_rmsnorm"}),
        (("norm.rmsnorm", "import.*"), {"norm.rmsnorm", "import.torch", "import.flashinfer"}),
        (("norm.rmsnorm,kv.*",), {"norm.rmsnorm", "kv.append_paged", "kv.append_mla"}),
        (("*top_k_*",), {"sampling.top_k_top_p"}),
    ],
)
def test_feature_selects_rows_by_glob(doctor, globs, names):
    words = itertools.chain.from_iterable(("--feature", glob) for glob in globs)
    done = doctor("check", "--from", doctor.report(), *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert set(verdicts(done.stdout)) == names


def test_a_broken_row_that_is_not_selected_does_not_count(doctor):
    path = doctor.report(broken=(BROKEN,))
    assert doctor("check", "--from", path, "--feature", "sampling.*").returncode == 0
    assert doctor("check", "--from", path, "--feature", "sampling.*", "--require", BROKEN).returncode == 1


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_report_is_judged_anew_unless_it_is_shown_as_recorded(doctor, suffix):
    path = doctor.folder / f"old.{suffix}"
    anew = report()
    path.write_text(render(with_verdicts(anew, Verdict.BROKEN, 1), suffix), encoding="utf-8")
    today = doctor("check", "--from", path, "--format", "json")
    assert today.returncode == 0, today.stderr
    assert verdicts(today.stdout) == {row.feature: row.verdict.value for row in anew.features}
    assert "broken" not in verdicts(today.stdout).values()
    then = doctor("check", "--from", path, "--as-recorded", "--format", "json")
    assert then.returncode == 1
    assert set(verdicts(then.stdout).values()) == {"broken"}
    assert then.stderr.splitlines()[-1].endswith(": as it was judged then (exit 1)")


def test_as_recorded_looks_at_the_rows_that_were_selected_there(doctor):
    """A kernel that vLLM never calls decides where it was selected by name."""
    path = MACHINES / "h200-operators-flashinfer0.7.2.post1" / "cold.json"
    codes = {doctor("check", "--from", path, *more).returncode for more in ((), ("--as-recorded",))}
    assert codes == {1}


@pytest.mark.parametrize("code", [0, 1, 256, 10**18])
def test_no_code_of_a_recording_counts(doctor, code):
    path = doctor.folder / "old.json"
    path.write_text(render(with_verdicts(report(), Verdict.WORKS, code), "json"), encoding="utf-8")
    assert doctor("check", "--from", path, "--as-recorded").returncode == 0


def test_what_was_recorded_is_asked_anew(doctor):
    path = doctor.report(broken=(BROKEN,))
    words = ("check", "--from", path, "--as-recorded", "--format", "json")
    assert doctor(*words).returncode == 1
    chosen = doctor(*words, "--feature", "sampling.*", "--require", "norm.fused*")
    assert chosen.returncode == 0, chosen.stderr
    assert {name.partition(".")[0] for name in verdicts(chosen.stdout)} == {"sampling", "norm"}
    assert doctor(*words, "--feature", "sampling.*", "--require", BROKEN).returncode == 1
    refused = doctor(*words, "--depth", "build")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "depth run" in in_three_parts(refused.stderr)["error"]


def test_what_was_judged_works_then_is_broken_now(doctor):
    path = doctor.folder / "old.json"
    path.write_text(render(with_verdicts(report(broken=(BROKEN,)), Verdict.WORKS, 0), "json"), encoding="utf-8")
    assert doctor("check", "--from", path, "--as-recorded").returncode == 0
    done = doctor("check", "--from", path, "--format", "json")
    assert done.returncode == 1
    assert verdicts(done.stdout)[BROKEN] == "broken"


def test_a_report_is_read_from_stdin(doctor):
    text = doctor.report(broken=(BROKEN,)).read_text(encoding="utf-8")
    for name in ("-", "/dev/stdin"):
        done = doctor("check", "--from", name, "--format", "json", data=text)
        assert done.returncode == 1, done.stderr
        assert verdicts(done.stdout)[BROKEN] == "broken"


def test_a_report_of_a_report_is_the_same(doctor):
    path = doctor.report(broken=(BROKEN,))
    once = doctor("report", "--from", path, "--json").stdout
    again = doctor("report", "--from", "-", "--json", data=once).stdout
    assert once
    assert again == once


def test_this_machine_is_read_where_no_recording_is_named(doctor):
    done = doctor("check", "--depth", "static", "--format", "json")
    assert done.returncode == 3, done.stderr
    facts = parsed(done.stdout, "json")["facts"]
    assert facts["interpreter"]["executable"] == doctor.argv()[0]
