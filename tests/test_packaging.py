"""What is in the built wheel is what the command needs, wherever it is installed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
EPOCH = {"SOURCE_DATE_EPOCH": "1700000000"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def build(folder, *, made=None):
    """A wheel of the checkout. made: the time of its files, by default now."""
    source = folder / "source"
    # From a copy: setuptools leaves build/ and egg-info/ beside what it builds, and leak into the next wheel.
    for name in listed("."):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
        if made is not None:
            os.utime(source / name, (made, made))
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source]
    done = subprocess.run(pip, env={**os.environ, **EPOCH}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def listed(folder):
    """What a commit of the checkout as it stands would hold of a folder: nothing that is ignored."""
    said = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z", folder],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {name for name in said.split("\0") if name and (ROOT / name).is_file()}


def of_kind(folder, suffix):
    return {name for name in listed(folder) if name.endswith(suffix)}


def test_the_wheel_holds_every_file_of_ours_and_every_probe(wheel):
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = listed("fi_doctor") | {
        name.replace("probes/", "fi_doctor_probes/", 1) for name in of_kind("probes", ".py")
    }
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
    script = subprocess.run(
        [sys.executable, site / "bin" / "fi-doctor", "--version"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert (script.returncode, script.stdout[:10]) == (0, "fi-doctor ")


def test_two_builds_are_the_same_bytes(wheel, tmp_path):
    again = build(tmp_path, made=981_173_106)
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())
