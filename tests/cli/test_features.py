"""fi-doctor features, the real command, on packages of a few lines and on a recording."""

from __future__ import annotations

import json
import os
import pathlib
from importlib.util import find_spec

import pytest
from cli_command import ROOT, in_three_parts

MACHINES = pathlib.Path(__file__).parents[1] / "machines"
RECORDED = MACHINES / "h200-cuda13.0-flashinfer0.7.2.post1" / "warm.json"
FILES = {
    "flashinfer/__init__.py": "from . import norm\n",
    "flashinfer/_build_meta.py": '__version__ = "0.7.2.post1"\n',
    "flashinfer/norm.py": "def rmsnorm(input, weight): ...\n",
    "flashinfer/gemm/__init__.py": "def mm_awq(a): ...\n",
    "flashinfer_python-0.7.2.post1.dist-info/METADATA": "Name: flashinfer-python\nVersion: 0.7.2.post1\n",
    "vllm/__init__.py": "",
    "vllm/envs.py": "environment_variables = {}\n",
    "vllm/layernorm.py": "import flashinfer\n\nflashinfer.norm.rmsnorm(x, w)\nflashinfer.norm.rmsnorm(x, gamma=w)\n",
    "vllm-0.33.0.dist-info/METADATA": ("Name: vllm\nVersion: 0.33.0\nRequires-Dist: flashinfer-python==0.7.2.post1\n"),
}


@pytest.fixture
def site(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text, encoding="utf-8")
    return {"PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{ROOT}"}


def test_what_is_there_is_told_with_the_places(doctor, site):
    done = doctor("features", "--format", "json", env=site, of_examined=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = {one["id"]: one for one in json.loads(done.stdout)["operators"]}
    assert told["rmsnorm"]["flashinfer"] == {"flashinfer.norm.rmsnorm": "norm.py:1"}
    assert told["rmsnorm"]["vllm"] == ["layernorm.py:3", "layernorm.py:4"]
    assert told["awq"]["flashinfer"] == {"flashinfer.gemm.mm_awq": "gemm/__init__.py:1"}
    assert told["awq"]["missing"] == ["vllm"]
    assert told["gptq"]["missing"] == ["flashinfer", "vllm"]
    assert {row["row"] for row in told["rmsnorm"]["here"]} == {"norm.rmsnorm", "norm.fused_add_rmsnorm"}


def test_only_what_is_missing(doctor, site):
    done = doctor("features", "--missing", env=site, of_examined=True)
    assert done.returncode == 0
    assert "gptq: GPTQ (missing: FlashInfer, vLLM)" in done.stdout
    assert "  rmsnorm: RMSNorm (missing: " in done.stdout  # its second row has no entry
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_calls_are_told_and_a_misfit_is_a_finding(doctor, site):
    done = doctor("features", "--calls", env=site, of_examined=True)
    assert done.returncode == 0
    assert "1 do not" in done.stdout
    assert "vllm-passes-unknown-flashinfer-keyword: vllm/layernorm.py:4" in done.stdout
    report = json.loads(doctor("report", "--json", env=site, of_examined=True).stdout)
    [finding] = [one for one in report["findings"] if one["cause"] == "vllm-and-flashinfer-do-not-fit"]
    assert finding["id"] == "vllm-passes-unknown-flashinfer-keyword"
    assert "vllm/layernorm.py:4: flashinfer.norm.rmsnorm (flashinfer/norm.py:1)" in finding["why"]
    shown = doctor("check", "--depth", "static", env=site, of_examined=True).stdout
    assert "vllm-passes-unknown-flashinfer-keyword" in shown
    assert doctor("explain", finding["id"]).returncode == 0


def test_a_function_that_is_no_python_is_found_in_the_largest_file_that_is_called(doctor, site, tmp_path):
    norm = tmp_path / "site" / "flashinfer" / "norm.py"
    norm.write_text(
        f"{FILES['flashinfer/norm.py']}def broken():\n    return (\n{'# long' * 100_000}\n", encoding="utf-8"
    )
    done = doctor("features", "--calls", "--format", "json", env=site, of_examined=True)
    assert done.returncode == 0
    unbound = [one for one in json.loads(done.stdout)["unbound"] if one["name"] == "flashinfer.norm.rmsnorm"]
    assert [one["caller"] for one in unbound] == ["layernorm.py:3", "layernorm.py:4"]
    assert all("norm.py cannot be parsed by Python" in one["why"] for one in unbound)


def test_a_report_says_what_works_there(doctor, site, tmp_path):
    done = doctor("features", "--from", RECORDED, "--format", "json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["known"].startswith("what was run, at ")
    told = {one["id"]: one for one in found["operators"]}
    assert [row["verdict"] for row in told["rmsnorm"]["here"]] == ["works", "works"]
    assert "vllm" in told["rmsnorm"]["unknown"]  # it was recorded before calls were read
    report = tmp_path / "now.json"
    report.write_text(doctor("report", "--json", env=site, of_examined=True).stdout)
    again = json.loads(doctor("features", "--from", report, "--format", "json").stdout)
    assert {one["id"]: one["vllm"] for one in again["operators"]}["rmsnorm"] == ["layernorm.py:3", "layernorm.py:4"]


def test_the_rows_are_listed_without_a_look_at_anything(doctor):
    done = doctor("features", "--rows")
    assert done.returncode == 0
    assert "norm.rmsnorm: RMSNorm\n  vLLM >=0.11" in done.stdout


@pytest.mark.skipif(find_spec("flashinfer") is not None, reason="this interpreter has a FlashInfer")
def test_where_nothing_can_be_told_the_code_is_3(doctor):
    bare = {"PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1"}
    assert doctor("features", env=bare).returncode == 0  # the list itself is known
    for args in (["features", "--missing"], ["features", "--calls"]):
        done = doctor(*args, env=bare)
        assert (done.returncode, done.stdout) == (3, "")
        assert in_three_parts(done.stderr)["try"].startswith("fi-doctor features --python ")


@pytest.mark.parametrize(
    "args",
    [
        ["--missing", "--calls"],
        ["--format", "yaml"],
        ["--from", "a.json", "--python", "/bin/python"],
        ["--python", ""],
    ],
    ids="-".join,
)
def test_what_cannot_be_asked_is_refused(doctor, args):
    done = doctor("features", *args)
    assert (done.returncode, done.stdout) == (2, "")


def test_it_is_written_to_a_file(doctor, site, tmp_path):
    done = doctor("features", "--format", "markdown", "-o", tmp_path / "coverage.md", env=site, of_examined=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "coverage.md").read_text().startswith("**Of ")
