"""The budget of jobs is whole again after ninjas were killed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fi_doctor.inside.ninja import ninja_version

JOBS = 4
SCRIPT = Path(__file__).with_name("killed_builds.py")

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")


@pytest.mark.parametrize("kind", ["tokens", "dealt"])
def test_when_twenty_ninjas_were_killed_beside_another_one_all_jobs_are_used_and_no_more(tmp_path, kind):
    if kind == "tokens" and ninja_version() < (1, 13):
        pytest.skip(f"ninja {ninja_version()} is no client of a jobserver, which 1.13 is")
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(JOBS), kind]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    states, most = told["states"], told["most"]
    assert [states.pop(f"killed{number}") for number in range(20)] == ["cut off"] * 20
    assert states == {"beside": "built", "steady": "built", "last": "built"}
    assert list(states).index("beside") < list(states).index("steady")  # which lived all the time
    assert most["beside"] == JOBS
    if kind == "tokens":
        assert most["last"] == JOBS
    assert max(most.values()) == JOBS
    assert told["left"] == []
