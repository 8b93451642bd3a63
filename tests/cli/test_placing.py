"""What stands beside a report: SARIF is placed on the policy or the lock, ids are links on terminals."""

from __future__ import annotations

import json
import pathlib

import jsonschema
import pytest
from cli_command import BROKEN, FORMATS, ROOT, report, shipped
from msgspec.structs import replace

from fi_doctor.cli import placing
from fi_doctor.cli.outputs import Target
from fi_doctor.model import Policy
from fi_doctor.reports import render

SARIF = Target("sarif", "out.sarif", "--format")
SCHEMA = json.loads((ROOT / "tests/reports/published/sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
POLICY = """# a comment
fail-on = ["broken"]
[require]
"norm.*" = "works"   # and more
'kv.append_paged' = { evidence = "verified" }
[versions]
torch = ">=2"
[[allow]]
feature = "moe.*"
"""


def anchor(path, lock=None):
    """Of a report with this policy, or without one."""
    policy = Policy(file=str(path)) if path else Policy()
    done = report(broken=(BROKEN,))
    done = replace(done, request=replace(done.request, policy=policy))
    return placing.beside(done, (SARIF,), shipped()[0], lock).anchor


@pytest.fixture
def repository(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "gates of ours").mkdir()
    return tmp_path


def test_a_policy_is_called_as_its_repository_calls_it_and_its_keys_have_lines(repository):
    path = repository / "gates of ours" / "fi-doctor.toml"
    path.write_text(POLICY, encoding="utf-8")
    found = anchor(path)
    assert found.uri == "gates%20of%20ours/fi-doctor.toml"
    lines = {"fail-on": 2, "require": 3, "require.norm.*": 4, "require.kv.append_paged": 5, "versions.torch": 7}
    assert lines.items() <= found.lines.items()


def test_of_pyproject_only_our_own_table_counts(repository):
    path = repository / "pyproject.toml"
    path.write_text(
        '[other]\nfail-on = 1\n[tool.fi-doctor]\nfail-on = []\n[tool.fi-doctor.require]\n"a" = ""\n', "utf-8"
    )
    lines = anchor(path).lines
    assert (lines["fail-on"], lines["require.a"]) == (4, 6)


def test_in_no_repository_it_is_called_as_the_current_folder_does_and_elsewhere_by_its_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert anchor(tmp_path / "fi-doctor.toml") == ("fi-doctor.toml", {})
    assert anchor(pathlib.Path("/nowhere/of ours/x.toml")).uri == "file:///nowhere/of%20ours/x.toml"


def test_without_a_policy_it_is_the_lock_and_without_both_nothing(repository, monkeypatch):
    monkeypatch.chdir(repository)
    assert anchor("", "kernels.lock") == ("kernels.lock", {})
    assert anchor(repository / "fi-doctor.toml", "kernels.lock").uri == "fi-doctor.toml"
    assert anchor("") is None


def test_rules_have_the_text_that_explain_prints(doctor):
    done = doctor("check", "--example", "h200-nvcc-12.6", "--format", "sarif:out.sarif", "--no-config")
    assert done.returncode == 1
    found = json.loads((doctor.folder / "out.sarif").read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(SCHEMA).validate(found)
    rules = {one["id"]: one for one in found["runs"][0]["tool"]["driver"]["rules"]}
    for name in ("fp8-block-moe-refused-below-cuda-12-8", "broken"):
        assert rules[name]["help"]["text"] == doctor("explain", name).stdout


def test_a_format_that_uses_none_of_it_gets_nothing(monkeypatch):
    monkeypatch.setattr(placing, "_texts", None)
    assert (
        placing.beside(report(), (Target("html", "x", "-f"), Target("console", None, "-f")), shipped()[0])
        == placing.Beside()
    )


def test_on_a_terminal_ids_of_findings_are_links_to_their_page(monkeypatch):
    monkeypatch.setattr(placing.emit, "style", lambda: (80, True))
    pages = placing.beside(report(), (Target("console", None, "-f"),), shipped()[0]).pages
    assert {rule.id for rule in shipped()[0].rules} <= pages.keys()
    address, _, place = pages["nvcc-not-found"].partition("#")
    assert f'<a id="{place}">' in pathlib.Path(address.removeprefix("file://")).read_text(encoding="utf-8")
    assert placing.beside(report(), (Target("console", "out.txt", "-f"),), shipped()[0]).pages == {}
    monkeypatch.setattr(placing, "_DOCS", pathlib.Path("/nowhere"))
    assert placing.beside(report(), (Target("console", None, "-f"),), shipped()[0]).pages == {}


def test_a_report_of_a_newer_schema_is_2_and_nothing_is_written(doctor):
    path = doctor.report()
    path.write_text(path.read_text(encoding="utf-8").replace("fi-doctor.report/1.", "fi-doctor.report/2."), "utf-8")
    done = doctor("check", "--from", path, *(word for one in FORMATS for word in ("--format", f"{one}:out.{one}")))
    assert (done.returncode, done.stdout) == (2, "")
    assert "fi-doctor.report/2." in done.stderr
    assert {one.name for one in doctor.folder.iterdir() if one.name != ".cache"} == {"report.json"}


def test_a_link_leads_from_the_id_and_from_nothing_else():
    kb, _ = shipped()
    rule = kb.rules[0]
    done = report()
    found = replace(done.findings[0], id=rule.id)
    beside = placing.Beside(pages={rule.id: "file:///x#y"})
    text = render(replace(done, findings=(found,)), "console", color=True, beside=beside)
    assert text.count("\x1b]8;") == 2
    assert ";file:///x#y\x1b\\" in text
    assert "\x1b]8;" not in render(replace(done, findings=(found,)), "console", color=True)


def test_only_a_page_takes_the_time_to_import_what_writes_it(doctor):
    def imported(form):
        python, *rest = doctor.argv("check", "--from", doctor.report(), "--format", form)
        return doctor(argv=[python, "-X", "importtime", *rest]).stderr

    assert "jinja2" in imported("html")
    assert "jinja2" not in imported("prometheus")
