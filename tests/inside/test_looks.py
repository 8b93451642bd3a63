"""A ninja that looks for jobs of its pool while its own commands run."""

import contextlib
import os
import shutil
import threading
import time
from types import SimpleNamespace

import pytest

from fi_doctor.inside import below
from fi_doctor.inside.jobs import Budget, Pool
from fi_doctor.inside.looks import LOOK, looks
from fi_doctor.inside.ninja import Run, ninja_version

pytestmark = pytest.mark.skipif(
    shutil.which("ninja") is None or ninja_version() < (1, 13), reason="ninja below 1.13 knows no pool of jobs"
)


@pytest.fixture
def pool():
    with contextlib.closing(Pool(Budget(4), has_tokens=True)) as made:
        yield made


def module(folder, *commands):
    lines = ["rule run", "  command = $what # -o $out", "rule link", "  command = touch $out # -o $out"]
    for number, command in enumerate(commands):
        lines += [f"build {number}.o: run", f"  what = {command}"]
    objects = " ".join(f"{number}.o" for number in range(len(commands)))
    lines += [f"build m.so: link {objects}", "default m.so", ""]
    (folder / "build.ninja").write_text("\n".join(lines))
    made = SimpleNamespace(name="m", objects=len(commands), workdir=str(folder), target="")
    made.ninja_file = str(folder / "build.ninja")
    made.modules = [made]
    return made


def compilers(run):
    commands = map(below.command, below.Table().children(run.pid))
    return [command for command in commands if command and LOOK not in command]


def begun(pool, one):
    assert pool.take(one, []) == 1
    return Run([one], pool.options(1), pool.variables(), 600.0)


def waited(run):
    """Its exit status, once a thread has read all that it says."""
    told = []
    thread = threading.Thread(target=lambda: told.append(run.wait()), daemon=True)
    thread.start()
    return thread, told


def test_a_job_that_becomes_free_is_used_at_once_and_not_when_a_command_has_ended(tmp_path, pool):
    one = module(tmp_path, *["sleep 30"] * 4)
    assert pool.take(one, []) == 1
    kept = pool._take_out(3)
    run = Run([one], [], pool.variables(), 600.0)
    thread, _ = waited(run)
    time.sleep(2.5)
    assert len(compilers(run)) == 1
    os.write(pool._write, kept)
    deadline = time.monotonic() + 5
    while len(compilers(run)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(compilers(run)) == 4
    run.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_it_ends_when_its_module_is_linked_and_its_log_has_nothing_of_it(tmp_path, pool):
    run = begun(pool, module(tmp_path, "sleep 0.1", "sleep 1.5"))
    begun_at = time.monotonic()
    assert run.wait() == 0
    assert time.monotonic() - begun_at < 5
    assert run.linked == {"m"}
    assert run.objects == {"m": 2}
    assert run.failed == {}
    assert ".look" not in (tmp_path / ".ninja_log").read_text()
    assert pool.waiting() == 4


@pytest.mark.parametrize("is_counted", [True, False])  # whether the objects are as many as were counted before
def test_one_that_cannot_link_ends_when_nothing_is_left_to_compile(tmp_path, pool, is_counted):
    one = module(tmp_path, "echo no such thing; false", "sleep 1.5", "sleep 0.1")
    one.objects += not is_counted
    run = begun(pool, one)
    begun_at = time.monotonic()
    thread, told = waited(run)
    while thread.is_alive() and time.monotonic() - begun_at < 20:
        time.sleep(0.2)
        run.watch(len(compilers(run)), are_jobs_free=pool.waiting() > 0)
    assert told == [1]
    assert is_counted == (time.monotonic() - begun_at < 3)
    assert run.failed["m"].startswith("echo no such thing; false")
    assert "no such thing" in run.failed["m"].splitlines()[-1]
    assert run.objects == {"m": 2}
    assert (tmp_path / ".ninja_log").read_text().count(".o\t") == 2


def test_one_without_jobs_is_not_taken_for_one_without_work(tmp_path, pool):
    one = module(tmp_path, "sleep 0.1")
    assert pool.take(one, []) == 1
    kept = pool._take_out(4)
    run = Run([one], [], pool.variables(), 600.0)
    thread, told = waited(run)
    for _ in range(25):
        time.sleep(0.2)
        run.watch(len(compilers(run)), are_jobs_free=pool.waiting() > 0)
    assert not run.is_over
    os.write(pool._write, kept)
    thread.join(10)
    assert told == [0]
    assert run.linked == {"m"}


@pytest.mark.parametrize("seconds", [1.0, 600.0, 7 * 86_400.0])
def test_there_are_enough_looks_and_not_too_many(seconds):
    lines = looks(seconds)
    pause_s = float(next(line for line in lines if "sleep" in line).split()[3].rstrip(";"))
    count = sum(line.startswith("build .look") and not line.startswith("build .looked") for line in lines)
    assert count * pause_s > seconds
    assert count <= 2000
