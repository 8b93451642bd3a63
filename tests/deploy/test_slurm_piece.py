"""Slurm's health check: whom it drains, whom it leaves alone, and that it ends."""

from __future__ import annotations

import shutil
import time

import pytest
from pieces import DEPLOY, script
from waiting import wait_for

HEALTH = DEPLOY / "slurm" / "health.sh"
SCONTROL = """#!/bin/sh
printf '%s\\n' "$*" >>"$THIS_TEST/asked"
case $1 in -o) printf 'NodeName=%s Arch=x86_64 State=%s ThreadsPerCore=1 Reason=%s\\n' "$4" "$STATE" "$REASON" ;; esac
exit "${SCONTROL_CODE:-0}"
"""
# Half a second instead of what is asked for.
IMPATIENT = """#!/bin/sh
printf '%s\\n' "$*" >>"$THIS_TEST/limits"
case $1 in -k) shift 3 ;; *) shift ;; esac
exec /usr/bin/timeout -k 0.2 0.5 "$@"
"""


@pytest.fixture
def node(place):
    """The script as slurmd calls it: node(CODE=1) gives the exit code and what scontrol was asked to change."""
    folder = place.folder / "opt"
    folder.mkdir()
    for path in (HEALTH, DEPLOY / "check.sh"):
        shutil.copy(path, folder)
    place.record()
    script(place.bin / "scontrol", SCONTROL)
    script(place.bin / "logger", '#!/bin/sh\nshift 3\necho "$*" >>"$THIS_TEST/log"\n')

    def run(shell="sh", **changes):
        asked = place.folder / "asked"
        asked.unlink(missing_ok=True)
        base = {"SLURMD_NODENAME": "gpu7", "STATE": "IDLE", "REASON": ""}
        done = place.run(shell, folder / "health.sh", **{**base, **changes})
        lines = asked.read_text().splitlines() if asked.exists() else []
        return done.returncode, [line for line in lines if line.startswith("update")]

    return run


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_node_whose_gate_says_no_is_drained_with_the_reason(node, place, shell):
    said = "norm.rmsnorm on SM90 is broken; $(touch run) 'x'"
    assert node(shell, CODE=1, SAID=said) == (
        0,
        [f"update NodeName=gpu7 State=DRAIN Reason=fi-doctor: {said} (exit 1)"],
    )
    assert (place.folder / "log").read_text() == f"fi-doctor: {said} (exit 1)\n"
    assert not (place.folder / "run").exists()


@pytest.mark.parametrize("code", [0, 2, 3, 4])
def test_what_is_well_or_cannot_be_told_is_left_alone(node, code):
    assert node(CODE=code) == (0, [])


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_whatever_path_slurmd_sets_what_lies_in_the_current_folder_is_not_taken(node, place, path):
    (place.folder / "health.conf").write_text(": >run\n")
    assert node("/bin/sh", CODE=1, PATH=path) == (0, [])  # there is no fi-doctor on it
    assert not (place.folder / "run").exists()


def test_codes_that_drain_can_be_named(node):
    assert len(node(CODE=3, HEALTH_CODES="1 3")[1]) == 1
    assert node(CODE=1, HEALTH_CODES="3")[1] == []


def test_a_node_that_is_drained_keeps_its_reason(node):
    assert node(CODE=1, STATE="IDLE+DRAIN", REASON="disk [root@2026]") == (0, [])


def test_only_what_was_drained_for_this_is_put_back_and_only_where_that_is_wanted(node):
    ours = {"STATE": "IDLE+DRAIN", "REASON": "fi-doctor: it was broken (exit 1) [root@2026-01-02]"}
    assert node(CODE=0, **ours) == (0, [])
    assert node(CODE=0, HEALTH_RESUME="yes", **ours) == (0, ["update NodeName=gpu7 State=RESUME"])
    assert node(CODE=0, HEALTH_RESUME="yes", STATE="IDLE+DRAIN", REASON="disk") == (0, [])
    assert node(CODE=0, HEALTH_RESUME="yes") == (0, [])
    assert node(CODE=3, HEALTH_RESUME="yes", **ours) == (0, [])


def test_a_code_without_the_gates_line_is_no_verdict(node, place):
    script(place.bin / "fi-doctor", "#!/bin/sh\necho 'no such file' >&2\nexit 1\n")
    assert node() == (0, [])
    assert (place.folder / "log").read_text() == "fi-doctor: no verdict (exit 1): no such file\n"


def test_a_check_that_hangs_is_ended_with_all_that_it_started(node, place):
    script(place.bin / "timeout", IMPATIENT)
    script(place.bin / "fi-doctor", "#!/bin/sh\ntrap '' TERM\nsleep 600 &\nwhile :; do sleep 600; done\n")
    begun = time.monotonic()
    assert node(HEALTH_S=1) == (0, [])
    assert time.monotonic() - begun < 5
    assert "no verdict within 1 s" in (place.folder / "log").read_text()
    assert len(node(HEALTH_S=1, HEALTH_CODES="124 137")[1]) == 1
    place.kill_all()


def test_a_controller_that_hangs_is_not_waited_for(node, place):
    script(place.bin / "timeout", IMPATIENT)
    script(place.bin / "scontrol", "#!/bin/sh\ntrap '' TERM\nexec sleep 600\n")
    begun = time.monotonic()
    assert node(CODE=1)[0] == 1
    assert time.monotonic() - begun < 5
    assert "gpu7 could not be drained" in (place.folder / "log").read_text()
    assert wait_for(lambda: not place.processes("sleep 600"), seconds=5)


def test_settings_stand_in_a_file_and_times_are_bounded(node, place):
    (place.folder / "opt" / "health.conf").write_text("CHECK_ARGS='--locked x'\nHEALTH_S=9999\nHEALTH_RESUME=yes\n")
    script(place.bin / "timeout", IMPATIENT)
    node(CODE=0)
    assert place.words()[-2:] == ["--locked", "x"]
    check, control = [line.split() for line in (place.folder / "limits").read_text().splitlines()]
    assert (check[:4], control[:4]) == (["-k", "2", "40", "sh"], ["-k", "1", "4", "scontrol"])
    # With one more question to the controller, and two lines of the log, a second each.
    assert sum(int(limit) for limit in (*check[1:3], *control[1:3], *control[1:3])) + 2 < 60
    (place.folder / "opt" / "health.conf").unlink()
    node(CODE=0)
    assert place.words()[-4:] == ["--depth", "static", "--fail-on", "error"]


def test_a_node_that_cannot_be_drained_is_told(node):
    assert node(CODE=1, SCONTROL_CODE=1)[0] == 1


def test_without_a_place_for_files_nothing_is_drained(node, place):
    assert node(CODE=1, TMPDIR=place.folder / "none") == (0, [])
