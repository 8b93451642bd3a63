"""What a killed ninja leaves behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def ended(how):
    """What tests/inside/orphans.py tells: a process of its own, to which the kernel hands orphans."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("orphans.py")), how],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_orphans_and_all_below_them_are_ended_and_nothing_is_left_of_them():
    told = ended("plain")
    assert told["families"] == 2
    assert told["commands"] == 6
    assert told["left"] == []
    assert told["seconds"] < 2


def test_one_that_does_not_go_is_not_waited_for_without_end():
    told = ended("traced")
    if not told["traced"]:
        pytest.skip("no process may trace another one here")
    assert told["commands"] == 6
    assert len(told["left"]) == 1
    assert 1.5 < told["seconds"] < 5
