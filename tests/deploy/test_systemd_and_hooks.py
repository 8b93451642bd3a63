"""The units of systemd and the hooks of pre-commit: what they start exists and takes those options."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess

import pytest
import yaml
from pieces import DEPLOY, ROOT, script
from test_pieces import help_of

UNITS = sorted((DEPLOY / "systemd").iterdir())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def unit(name):
    parsed = configparser.RawConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read(DEPLOY / "systemd" / name)
    return parsed


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path):
    doctor = script(tmp_path / "fi-doctor", "#!/bin/sh\n")
    made = []
    for path in UNITS:
        made.append(tmp_path / path.name)
        made[-1].write_text(path.read_text().replace("/opt/fi-doctor/bin/fi-doctor", str(doctor)))
    done = subprocess.run(["systemd-analyze", "verify", *made], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "fi-doctor" in line]
    assert (done.returncode, ours) == (0, [])


def test_the_timer_starts_the_service_and_the_server_reads_its_report():
    assert [path.name for path in UNITS] == ["fi-doctor-serve.service", "fi-doctor.service", "fi-doctor.timer"]
    check, serve = unit("fi-doctor.service")["Service"], unit("fi-doctor-serve.service")["Service"]
    [written] = re.findall(
        r"(?m)^Environment=CHECK_REPORT=(\S+)$", (DEPLOY / "systemd" / "fi-doctor.service").read_text()
    )
    assert f"--from {written} " in serve["ExecStart"]
    assert written.startswith(f"/var/lib/{check['StateDirectory']}/")
    words = serve["ExecStart"].split()
    assert words[1] == "serve"
    assert set(re.findall(r"--[a-z-]+", serve["ExecStart"])) <= set(re.findall(r"--[a-z-]+", help_of("serve")))
    assert serve["SuccessExitStatus"] == "143"


@pytest.mark.parametrize("code", [0, 1, 3])
def test_what_the_service_starts_leaves_a_report_and_the_gates_code(place, code):
    text = (DEPLOY / "systemd" / "fi-doctor.service").read_text()
    lines = re.findall(r'(?m)^Environment="?(\w+)=([^"\n]*)"?$', text)
    place.record()
    environ = {
        **dict(lines),
        "PATH": place.environ()["PATH"],
        "CHECK_REPORT": place.folder / "report.json",
        "CODE": code,
    }
    [start] = re.findall(r"(?m)^ExecStart=(.*)$", text)
    done = place.run(*start.replace("/opt/fi-doctor", str(DEPLOY)).split(), **environ)
    assert done.returncode == code
    assert (place.folder / "report.json").exists()
    assert place.words()[-4:] == ["--depth", "static", "--fail-on", "error"]


def test_hooks_start_a_command_that_exists_on_files_that_it_takes():
    policy, manifests = HOOKS
    for hook in HOOKS:
        assert hook["entry"] == "fi-doctor lint"
        assert {"id", "name", "entry", "language", "files"} <= hook.keys()
        assert hook["language"] == "python"
    pattern = re.compile(policy["files"])
    assert [name for name in ("fi-doctor.toml", "a/pyproject.toml") if not pattern.search(name)] == []
    assert [name for name in ("fi-doctor.toml.bak", "notpyproject.toml", "x.yaml") if pattern.search(name)] == []
    # None by itself: which files start a server only the user knows.
    assert not re.search(manifests["files"], "deploy.yaml")
    assert "--vllm" in help_of("lint")
    assert "--vllm" in manifests["description"]
