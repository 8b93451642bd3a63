"""Ctrl-C, SIGTERM and SIGHUP end a check at once, with a code of their own and with nobody left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest
from cli_command import ROOT, script
from waiting import wait_for

SLOW_TORCH = """
import os, pathlib, subprocess, sys, time
subprocess.Popen(["sleep", "600"])  # stays in the group
subprocess.Popen(["sleep", "600"], start_new_session=True)  # leaves it
pathlib.Path(os.environ["BEGUN"]).touch()
time.sleep(600)
"""
ENDINGS = {
    signal.SIGINT: (130, "fi-doctor: interrupted; no verdict"),
    signal.SIGTERM: (143, "fi-doctor: terminated; no verdict"),
    signal.SIGHUP: (129, "fi-doctor: its terminal was closed; no verdict"),
}


@pytest.fixture
def slow_stack(tmp_path):
    """A torch whose import never ends."""
    site = tmp_path / "site"
    (site / "torch").mkdir(parents=True)
    (site / "torch/__init__.py").write_text(SLOW_TORCH, encoding="utf-8")
    (site / "torch/version.py").write_text("__version__ = '2.13.0'\ncuda = '13.0'\n", encoding="utf-8")
    (site / "torch-2.13.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
    (site / "torch-2.13.0.dist-info/METADATA").write_text(metadata, encoding="utf-8")
    return site


@pytest.mark.parametrize("number", [signal.SIGHUP], ids=lambda number: number.name)  # others: tests/chaos/faults.py
def test_a_signal_while_a_probe_runs(doctor, slow_stack, number):
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun}
    child = doctor.start(
        *("check", "--feature", "import.torch", "--format", "json"),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_for(begun.exists)
    assert len(doctor.processes()) == 4  # the command, the probe and its two children
    ended(doctor, child, number)


@pytest.mark.parametrize("number", ENDINGS, ids=lambda number: number.name)
def test_a_signal_while_the_interpreter_is_being_examined(doctor, tmp_path, number):
    hanging = script(tmp_path / "python", '#!/bin/sh\nsleep 600 &\ntouch "$BEGUN"\nexec sleep 600\n')
    begun = doctor.folder / "begun"
    child = doctor.start(
        *("check", "--python", hanging),
        env={"BEGUN": begun},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert wait_for(begun.exists)
    ended(doctor, child, number)


def test_a_terminal_that_is_closed_ends_the_check(doctor, slow_stack):
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun}
    ours, theirs = pty.openpty()
    # The first terminal that the leader of a session opens is the one whose end it is told of.
    command = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs)]
    argv = [*command, *doctor.argv("check", "--feature", "import.torch")]
    child = doctor.start(argv=argv, env=env, start_new_session=True)
    assert wait_for(begun.exists)
    os.close(theirs)
    os.close(ours)
    assert child.wait(timeout=30) == 129
    assert wait_for(lambda: not doctor.processes(), seconds=5)


def test_a_table_that_is_watched_stays_and_gives_the_terminal_back(doctor, slow_stack):
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun, "TERM": "xterm"}
    ours, theirs = pty.openpty()
    words = ("check", "--watch", "--feature", "import.torch", "--format", "json")
    child = doctor.start(*words, env=env, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert wait_for(begun.exists)
    child.send_signal(signal.SIGTERM)
    assert child.communicate(timeout=30)[0] in (b"", "")
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert child.returncode == 143
    assert "elapsed" in shown
    drawn, said = shown.rsplit("\x1b[?25h", 1)  # the cursor is shown again
    # The second where the table was drawn once more after the probe's own file was loaded.
    assert re.search(r"import\.torch  (started|imported) ", drawn.rstrip().splitlines()[-1])
    assert said.strip() == ENDINGS[signal.SIGTERM][1]
    assert wait_for(lambda: not doctor.processes(), seconds=5)


def test_under_nohup_a_closed_terminal_changes_nothing(doctor, slow_stack):
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun}
    argv = ["nohup", *doctor.argv("check", "--feature", "import.torch", "--format", "json", "--budget", "4s")]
    child = doctor.start(argv=argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(begun.exists)
    child.send_signal(signal.SIGHUP)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 3, err
    assert '"import.torch"' in out


@pytest.mark.parametrize("gap_s", [0.002, 0.03])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_signals_that_follow_at_once_do_not_break_off_the_killing(doctor, slow_stack, first, gap_s):
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun}
    words = ("check", "--feature", "import.torch")
    child = doctor.start(*words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert wait_for(begun.exists)
    for number in (first, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        child.send_signal(number)
        time.sleep(gap_s)
    _, err = child.communicate(timeout=30)
    assert child.returncode == ENDINGS[first][0]
    assert err.splitlines()[-1] == ENDINGS[first][1]
    assert "Traceback" not in err
    assert wait_for(lambda: not doctor.processes(), seconds=5)


def ended(doctor, child, number):
    """It ends with its code and its line, with nothing on stdout, and so does all that it started."""
    code, line = ENDINGS[number]
    child.send_signal(number)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (code, "")
    assert err.splitlines()[-1] == line
    assert "Traceback" not in err
    assert wait_for(lambda: not doctor.processes(), seconds=5)


@pytest.mark.parametrize("most", [9, 11, 13, 16, 19])
def test_with_too_few_descriptors_nothing_is_called_measured(most):
    command = f'ulimit -n {most}; exec "{sys.executable}" -m fi_doctor check --depth static -f json'
    for _ in range(3):
        done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode in {2, 3, 4}, done.stderr


STUBBORN = """
import os, pathlib, subprocess, time
ignoring = 'trap "" TERM HUP INT; while :; do sleep 1; done'
mine = {"THIS_TEST": os.environ["THIS_TEST"], "PATH": os.environ["PATH"]}
subprocess.Popen(["sh", "-c", ignoring])
subprocess.Popen(["sh", "-c", ignoring], start_new_session=True)  # is found by its environment
subprocess.Popen(["sh", "-c", ignoring], env=mine, preexec_fn=os.setpgrp)  # is found by its session
pathlib.Path(os.environ["BEGUN"]).touch()
time.sleep(600)
"""


def test_what_ignores_signals_ends_with_a_command_that_is_killed(doctor, slow_stack):
    (slow_stack / "torch/__init__.py").write_text(STUBBORN, encoding="utf-8")
    begun = doctor.folder / "begun"
    env = {"PYTHONPATH": f"{slow_stack}{os.pathsep}{ROOT}", "BEGUN": begun}
    child = doctor.start("check", "--feature", "import.torch", env=env, stderr=subprocess.DEVNULL)
    assert wait_for(begun.exists)
    assert len(doctor.processes()) >= 5
    child.kill()
    child.wait()
    assert wait_for(lambda: not doctor.processes(), seconds=10)


def test_an_interpreter_that_hangs_ends_with_a_command_that_is_killed(doctor, tmp_path):
    hanging = script(tmp_path / "python", '#!/bin/sh\ntrap "" TERM\ntouch "$BEGUN"\nwhile :; do sleep 1; done\n')
    begun = doctor.folder / "begun"
    child = doctor.start("check", "--python", hanging, env={"BEGUN": begun}, stderr=subprocess.DEVNULL)
    assert wait_for(begun.exists)
    child.kill()
    child.wait()
    assert wait_for(lambda: not doctor.processes(), seconds=10)
