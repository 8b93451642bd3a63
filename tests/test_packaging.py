"""What is in the built wheel is what the command needs, wherever it is installed."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # From a copy: setuptools leaves build/ and egg-info/ beside what it builds, and leak into the next wheel.
    subprocess.run(["git", "-C", ROOT, "checkout-index", "-a", "-f", f"--prefix={source}/"], check=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def tracked(folder, suffix):
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", folder], capture_output=True, text=True, check=True
    ).stdout.split()
    return {name for name in listed if name.endswith(suffix)}


def test_the_wheel_holds_every_module_probe_rule_and_example(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = (
        tracked("fi_doctor", ".py") | tracked("fi_doctor", ".yaml") | tracked("fi_doctor/knowledge/examples", ".json")
    )
    wanted |= {name.replace("probes/", "fi_doctor_probes/", 1) for name in tracked("probes", ".py")}
    assert any(name.endswith(".yaml") for name in wanted)
    assert wanted - inside == set()
    assert not [name for name in inside if name.startswith("tests/")]


def test_an_installed_wheel_finds_its_knowledge_and_its_probes(wheel, tmp_path):
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel], check=True)
    command = (
        [sys.executable, "-P", "-m", "fi_doctor"]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-m", "fi_doctor"]
    )
    done = subprocess.run(
        [*command, "probes", "list"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "norm.rmsnorm" in done.stdout
    shown = subprocess.run(
        [*command, "explain", "norm.rmsnorm"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
