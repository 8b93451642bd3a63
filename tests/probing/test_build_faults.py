"""What goes wrong while modules are built: a row or a word each, nothing left running, and a second run that works.

That a lock is held and that a build is waited for is in test_prebuild.py.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from permissions import printed_by
from test_prebuild import Machine

from fi_doctor import processes
from fi_doctor.inside import below
from fi_doctor.inside.excerpt import OUTPUT_LIMIT
from fi_doctor.inside.ninja import Run, ninja_version
from fi_doctor.model import Ending, Stage

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")

# Stops half-way, once, and is whole the next time.
HEADER = 64  # bytes of a library, before what it is made of
HALF = 'test -e "$FAKE_SOURCES/again" || { touch "$FAKE_SOURCES/again"; echo half > "$OBJECT"; sleep 60; }'
KILLED = 'test -e "$FAKE_SOURCES/mended" || kill -9 "$PPID"'
SAID = {"ninja": "ninja was killed by signal 9", "its parent": "the process that built it ended after "}
FULL = 'test -e "$FAKE_SOURCES/mended" || { trap "" XFSZ; ulimit -f 1; head -c 9999 /dev/zero > "$OBJECT"; }'


@pytest.fixture(params=["shared", "own"])
def machine(request, tmp_path):
    """Both ways in which FlashInfer keeps ninja's log."""
    return Machine(tmp_path, request.param)


def works(machine, **states):
    """A run in which modules are in these states, and are what their sources make."""
    outcomes, builds = machine.check()
    assert builds.modules == states
    for name in states:
        assert outcomes[name].ending is Ending.RETURNED
        assert library(machine, name) == whole(machine, name)
    assert left_by(machine) == []


def library(machine, name):
    return (machine.ops / name / f"{name}.so").read_bytes()[HEADER:].decode()


def whole(machine, name):
    """What stands in a library that is finished: its sources."""
    return "".join(path.read_text() for path in sorted((machine.sources / name).glob("*.cu")))


class Killer(threading.Thread):
    """Kills, once something is there, the ninja that builds or the process that started it."""

    def __init__(self, who, is_ready):
        super().__init__()
        self.who, self.is_ready, self.has_killed = who, is_ready, False
        self.start()

    def run(self):
        end = time.monotonic() + 30
        while time.monotonic() < end and not self.has_killed:
            time.sleep(0.02)
            for parent, ninja in ninjas():
                if self.is_ready() and not self.has_killed:
                    os.kill(ninja if self.who == "ninja" else parent, signal.SIGKILL)
                    self.has_killed = True


def ninjas():
    """(its parent, itself) of each below this process."""
    table = below.Table()
    family = [os.getpid(), *table.below(os.getpid())]
    return [
        (pid, child) for pid in family for child in table.children(pid) if below.command(child).startswith("ninja ")
    ]


def left_by(machine):
    """Commands of processes that still run for this machine."""
    mark = f"FLASHINFER_WORKSPACE_BASE={machine.folder}".encode()
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [below.command(pid) for pid in everybody if mark in processes.environ(pid)]


def test_a_compiler_that_is_killed_costs_its_own_module_only(machine):
    machine.module("good", "sleep 0.2")
    machine.module("dies", "true", KILLED)
    machine.probe("good")
    machine.probe("dies")
    outcomes, builds = machine.check()
    assert builds.modules["good"] == "built"
    # Ninja below 1.12 does not say how a command ended; its shell does.
    is_told = ninja_version() >= (1, 12)
    assert builds.modules["dies"] == f"failed: {'error: it was killed by signal 9' if is_told else 'Killed'}"
    assert outcomes["good"].ending is Ending.RETURNED
    assert outcomes["dies"].detail.startswith(f"dies: {'error: killed by signal 9: ' if is_told else 'Killed'}")
    assert (outcomes["dies"].stage, outcomes["dies"].ending) == (Stage.IMPORTED, Ending.RAISED)
    (machine.sources / "mended").touch()
    works(machine, dies="built", good="cache")


def is_cut_off_and_works(machine, who, is_ready):
    """Its module "half" is cut off by a kill at this moment, and its probe builds it again and finds it whole."""
    killer = Killer(who, is_ready)
    outcomes, builds = machine.check()
    killer.join()
    assert killer.has_killed
    assert builds.modules["half"].startswith(f"cut off: {SAID[who]}")
    assert outcomes["half"].ending is Ending.RETURNED
    assert library(machine, "half") == whole(machine, "half")
    assert left_by(machine) == []


@pytest.mark.parametrize("who", SAID)
def test_an_object_that_was_being_written_when_all_was_killed_is_written_again(machine, who):
    machine.module("half", "true", HALF)
    machine.probe("half")
    is_cut_off_and_works(machine, who, lambda: any(machine.ops.rglob("half1.cuda.o")))
    assert machine.compiled().count("half1") == 2
    works(machine, half="cache")


@pytest.mark.parametrize("who", SAID)
def test_a_library_that_was_being_written_when_all_was_killed_is_never_loaded(machine, who):
    machine.module("half", "true", "true")
    machine.probe("half")
    works(machine, half="built")
    (machine.ops / "half/half.so").unlink()  # ninja's log still tells of it
    (machine.sources / "half-link").touch()
    is_cut_off_and_works(machine, who, lambda: any(machine.ops.rglob("half.so")))
    assert sorted(machine.compiled()) == ["half0", "half1"]
    works(machine, half="cache")


def test_a_full_disk_is_said_and_what_it_cut_off_is_written_again(machine):
    machine.module("large", "true", FULL)
    machine.probe("large")
    outcomes, builds = machine.check()
    assert builds.modules == {"large": "failed: head: error writing 'standard output': File too large"}
    assert outcomes["large"].ending is Ending.RAISED
    assert outcomes["large"].detail == "large: head: error writing 'standard output': File too large"
    assert not (machine.ops / "large/large.so").exists()
    (machine.sources / "mended").touch()
    works(machine, large="built")


def test_without_ninja_every_row_says_so(machine, tmp_path):
    machine.module("norm", "true")
    machine.probe("norm")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cp", "date", "basename"):
        (tools / name).symlink_to(shutil.which(name))
    path, machine.environ["PATH"] = machine.environ["PATH"], str(tools)
    outcomes, builds = machine.check()
    assert builds.modules == {
        "norm": "not begun: left to its probe: FileNotFoundError: [Errno 2] No such file or directory: 'ninja'"
    }
    assert outcomes["norm"].ending is Ending.RAISED
    assert outcomes["norm"].detail.endswith("No such file or directory: 'ninja'")
    machine.environ["PATH"] = path
    works(machine, norm="built")


READ_ONLY = """
import pathlib, sys
sys.path[:0] = sys.argv[1:3]
import test_build_faults
machine = test_build_faults.Machine(pathlib.Path(sys.argv[3]), sys.argv[4])
machine.module("norm", "true")
machine.probe("norm")
machine.ops.mkdir(parents=True)
machine.ops.chmod(0o555)
outcomes, builds = machine.check()
print(builds.modules.get("norm"), outcomes["norm"].ending, outcomes["norm"].detail, sep="\\n")
machine.ops.chmod(0o755)
test_build_faults.works(machine, norm="built")
"""


@pytest.mark.parametrize("log", ["shared", "own"])
def test_a_read_only_cache_is_said(tmp_path, log):
    here = Path(__file__).parent
    words, ending, detail = printed_by(READ_ONLY, here, here.parent, tmp_path, log).splitlines()
    assert words.startswith("not begun: left to its probe: PermissionError: [Errno 13] Permission denied: ")
    assert ending == "raised"
    assert "Permission denied" in detail


def test_a_lock_that_a_process_left_behind_is_none(machine):
    machine.module("norm", "true")
    machine.probe("norm")
    (machine.ops / "tmp").mkdir(parents=True)
    (machine.ops / "tmp" / "norm.lock").write_text("4711")
    works(machine, norm="built")


INTERRUPTED = """
import pathlib, signal, sys
sys.path[:0] = sys.argv[1:3]
import test_build_faults
signal.signal(signal.SIGINT, signal.default_int_handler)
machine = test_build_faults.Machine(pathlib.Path(sys.argv[3]), sys.argv[4])
machine.module("half", "true", "true")
machine.probe("half")
(machine.sources / "half-link").touch()
try:
    machine.check()
except KeyboardInterrupt:
    print("interrupted", test_build_faults.left_by(machine))
test_build_faults.works(machine, half="built")
print("works")
"""


@pytest.mark.parametrize("log", ["shared", "own"])
def test_ctrl_c_while_a_library_is_written_leaves_nothing_and_it_is_written_again(tmp_path, log):
    here = Path(__file__).parent
    command = [sys.executable, "-c", INTERRUPTED, str(here), str(here.parent), str(tmp_path), log]
    environ = {**os.environ, "PYTHONPATH": str(here.parents[1])}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as run:
        end = time.monotonic() + 30
        while not any(tmp_path.rglob("half.so")) and time.monotonic() < end:
            time.sleep(0.02)
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=60)[0] == "interrupted []\nworks\n"


def emptied(path):
    path.write_bytes(b"")


def cut(path):
    path.write_bytes(path.read_bytes()[:40])


def shorter_than_it_says(path):
    header = bytearray(path.read_bytes()[:HEADER])
    header[40:48] = (10**6).to_bytes(8, "little")
    path.write_bytes(bytes(header))


def something_else(path):
    path.write_text("no library, but as long as one could be: " + 99 * ".")


@pytest.mark.parametrize("damage", [emptied, cut, shorter_than_it_says, something_else])
def test_a_file_that_is_no_library_is_not_up_to_date_and_is_linked_anew(machine, damage):
    machine.module("a", "true", "true")
    machine.probe("a")
    works(machine, a="built")
    damage(machine.ops / "a/a.so")
    works(machine, a="built")
    assert sorted(machine.compiled()) == ["a0", "a1"]
    works(machine, a="cache")


def test_a_folder_in_the_place_of_a_library_is_said(machine):
    machine.module("a", "true")
    machine.probe("a")
    works(machine, a="built")
    (machine.ops / "a/a.so").unlink()
    (machine.ops / "a/a.so").mkdir()
    _, builds = machine.check()
    assert builds.modules["a"].startswith("not begun: left to its probe: IsADirectoryError: ")


@pytest.mark.parametrize("left", ["", "name = a\nrule cuda_compile\n  comm"])
def test_a_ninja_file_that_is_half_written_is_written_again(machine, monkeypatch, left):
    machine.environ["FAKE_KEEPS_NINJA_FILE"] = "yes"
    machine.module("a", "true")
    machine.probe("a")
    (machine.ops / "a").mkdir(parents=True)
    (machine.ops / "a/build.ninja").write_text(left)
    works(machine, a="built")


def test_a_ninja_that_does_nothing_builds_nothing(machine, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ninja").write_text('#!/bin/sh\ntest "$1" = --version && echo 1.11.1\nexit 0\n')
    (tmp_path / "bin/ninja").chmod(0o755)
    machine.environ["PATH"] = f"{tmp_path / 'bin'}:{machine.environ['PATH']}"
    machine.module("a", "true")
    machine.probe("a")
    outcomes, builds = machine.check()
    assert "is no library" in builds.modules["a"]
    assert outcomes["a"].ending is not Ending.RETURNED


LOUD = 'echo "the first line"; {much}; echo "the last line"; exit 1'
MUCH = {
    "in lines": "yes 'a.cu(3): warning: this is said again and again' | head -c 100000000; echo",
    "in one line": "head -c 100000000 /dev/zero | tr '\\0' x; echo",
}


@pytest.mark.parametrize("much", MUCH.values(), ids=MUCH)
def test_of_a_compiler_that_says_very_much_the_beginning_and_the_end_are_kept(tmp_path, much):
    module = SimpleNamespace(name="m", workdir=str(tmp_path), ninja_file=str(tmp_path / "build.ninja"), target="m.o")
    (tmp_path / "loud").write_text(LOUD.format(much=much))
    (tmp_path / "build.ninja").write_text("rule compile\n  command = sh loud # -o $out\nbuild m.o: compile\n")
    began = time.process_time()
    loud = Run([module], [], {})
    assert loud.wait() == 1
    assert time.process_time() - began < 1.5
    said = loud.said("m")
    assert len(said) <= OUTPUT_LIMIT
    assert "the first line\n" in said[:100]
    assert "\nthe last line\n" in said[-100:]
