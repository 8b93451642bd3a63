"""What the README shows is what the commands print."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.cli import commands, policy
from fi_doctor.cli.asked import Asked
from fi_doctor.knowledge import examples, policies
from fi_doctor.probing import catalog
from fi_doctor.reports import document, render

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
GATING = (ROOT / "docs" / "gating.md").read_text()


def block(name, text=README):
    return re.search(rf"<!-- {name} -->\n```\n(.*?)```\n<!-- /{name} -->", text, re.DOTALL).group(1)


def test_the_sample_is_how_what_the_example_prints_begins():
    command = [sys.executable, "-m", "fi_doctor", "check", "--example", "h200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    sample = block("example")
    assert (done.stdout[: len(sample)], done.returncode) == (sample, 0)
    assert "\nfeature  " in sample


def test_the_upgrade_is_what_the_example_prints():
    kb, specs = knowledge.load(), catalog.discover()
    recorded = document.read(examples.data("2xh200-flashinfer-0.5.3"), "2xh200")
    report = pipeline.rejudge(recorded, recorded.request, kb=kb, specs=specs)
    assert f"\n{block('upgrade', (ROOT / 'docs' / 'moving.md').read_text())}\n" in render(report, "console")


def test_the_test_command_is_the_one_that_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text()
    pattern = re.search(r"s/\^    \\\((.*?)\\\)\$/", ci).group(1).replace("\\.", ".")
    assert re.search(f"^    {pattern}$", README, re.MULTILINE)


def test_the_policy_is_one_that_is_taken(tmp_path):
    path = tmp_path / "fi-doctor.toml"
    path.write_text(re.search(r"```toml\n(.*?)```", GATING, re.DOTALL)[1], encoding="utf-8")
    written = policy.load(path)
    assert policies.wrong_names(written, *commands.known_names()) == []
    assert {field for field in written.file.__struct_fields__ if getattr(written.file, field) in (None, (), {})} == {
        "jobs",
        "memory",
        "depth",
        "feature",
    }


def test_the_policy_holds_for_the_example_and_excuses_something(tmp_path):
    path = tmp_path / "fi-doctor.toml"
    path.write_text(re.search(r"```toml\n(.*?)```", GATING, re.DOTALL)[1], encoding="utf-8")
    asked = Asked(policy=policy.load(path), fail_on=("broken", "wrong-result", "error"), rows="called")
    kb, specs = knowledge.load(), catalog.discover()
    request = commands.request_of(asked, commands.known_names()[0], kb)
    request = replace(request, policy=replace(request.policy, day="2027-01-31"))
    recorded = document.read(examples.data("h200"), "h200")
    gate = pipeline.rejudge(recorded, replace(request, depth=recorded.request.depth), kb=kb, specs=specs).gate
    assert (gate.code, gate.warnings) == (0, ())
    assert [(one.state, one.what) for one in gate.allowed] == [("used", "feature moe.mxfp4_bf16 (works)")]


@pytest.mark.parametrize(
    "command", ["cache", "check", "lock", "report", "warm", "diff", "schema", "explain", "features", "probes"]
)
def test_every_command_is_in_the_readme(command):
    assert f"`fi-doctor {command}" in README
