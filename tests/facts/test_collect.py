"""All facts of one interpreter, read together."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import msgspec
import pytest

from fi_doctor.errors import TargetError
from fi_doctor.facts import collect
from fi_doctor.model import Facts, Missing, Package

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def own():
    return collect(sys.executable)


def test_our_own_interpreter_is_known_as_such(own):
    assert own.interpreter.is_own
    assert own.interpreter.version == sys.version.split()[0]


def test_facts_survive_the_wire(own):
    assert msgspec.json.decode(msgspec.json.encode(own), type=Facts) == own


def test_every_group_says_how_it_was_read(own):
    groups = {name.partition(".")[0] for name in own.sources}
    assert groups >= {"environment", "flashinfer", "gpus", "interpreter", "libraries", "packages", "system", "toolkit"}
    assert list(own.sources) == sorted(own.sources)
    assert all(own.sources.values())


def test_another_environment_of_the_same_program_is_not_our_own(tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    found = collect(str(tmp_path / "venv" / "bin" / "python")).interpreter
    assert not found.is_own
    assert found.prefix == str(tmp_path / "venv")


def test_packages_of_the_examined_path_are_found(tmp_path):
    info = tmp_path / "vllm-0.11.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: vllm\nVersion: 0.11.0\n")
    found = collect(sys.executable, environ={**os.environ, "PYTHONPATH": str(tmp_path)})
    package = found.packages["vllm"]
    assert isinstance(package, Package)
    assert package.version == "0.11.0"
    assert found.interpreter.pythonpath == str(tmp_path)


def test_without_pythonpath_the_reason_is_said():
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert collect(sys.executable, environ=environ).interpreter.pythonpath == Missing(reason="PYTHONPATH is not set")


def test_an_interpreter_that_cannot_be_used_ends_it(tmp_path):
    with pytest.raises(TargetError):
        collect(str(tmp_path / "python"))


def test_nothing_heavy_is_imported():
    code = "import sys; from fi_doctor.facts import collect; collect(sys.executable); print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "fi_doctor.facts.flashinfer" in loaded
    assert not {"torch", "flashinfer", "vllm", "numpy", "triton"} & loaded
