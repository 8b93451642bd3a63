"""stdout and -o: a file appears whole or not at all, and a reader that goes away changes no verdict."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import stat
import subprocess

import pytest
from cli_command import BROKEN, FORMATS, in_three_parts, script, verdicts
from permissions import obey_permissions


@pytest.fixture
def broken(doctor):
    return doctor.report(broken=(BROKEN,))


@pytest.mark.parametrize("fmt", FORMATS)
def test_o_writes_what_stdout_would_hold(doctor, broken, fmt):
    target = doctor.folder / "out.txt"
    shown = doctor("check", "--from", broken, "--format", fmt)
    done = doctor("check", "--from", broken, "--format", fmt, "-o", target)
    assert (done.returncode, done.stdout) == (1, "")
    assert target.read_text(encoding="utf-8") == shown.stdout
    assert done.stderr.splitlines()[-1] == shown.stderr.splitlines()[-1]


def test_a_relative_name_is_in_the_current_folder(doctor, broken):
    assert doctor("report", "--from", broken, "-o", "out.yaml").returncode == 0
    assert (doctor.folder / "out.yaml").read_text(encoding="utf-8").startswith("schema:")


def test_o_takes_the_permissions_that_the_user_gives_new_files(doctor, broken):
    target = doctor.folder / "out.json"
    doctor("report", "--from", broken, "-o", target, preexec_fn=lambda: os.umask(0o027))
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_o_through_a_link_keeps_the_link(doctor, broken):
    (doctor.folder / "real").mkdir()
    link = doctor.folder / "out.json"
    link.symlink_to(doctor.folder / "real/file.json")
    assert doctor("report", "--from", broken, "--json", "-o", link).returncode == 0
    assert link.is_symlink()
    assert json.loads((doctor.folder / "real/file.json").read_text(encoding="utf-8"))


def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(doctor, broken):
    folder = doctor.folder / "out"
    folder.mkdir()
    (folder / "out.json").write_text("old", encoding="utf-8")
    done = doctor(
        *("check", "--from", broken, "--format", "json", "-o", folder / "out.json"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 2
    assert "too large" in in_three_parts(done.stderr)["why"].lower()
    assert [(path.name, path.read_text(encoding="utf-8")) for path in folder.iterdir()] == [("out.json", "old")]


@pytest.mark.parametrize(("name", "why"), [("none/out.json", "there is no folder"), ("", "it is a folder")])
def test_an_impossible_target_is_2_before_any_work(doctor, name, why):
    started = script(doctor.folder / "python", "#!/bin/sh\ntouch started\n")
    done = doctor("check", "--python", started, "-o", doctor.folder / name)
    assert (done.returncode, done.stdout) == (2, "")
    said = in_three_parts(done.stderr)
    assert why in said["why"]
    assert str(doctor.folder) in said["error"]
    assert said["try"] == "-o report.yaml"
    assert not (doctor.folder / "started").exists()


def test_a_folder_that_is_not_writable_is_2(doctor, broken):
    folder = doctor.folder / "locked"
    folder.mkdir(mode=0o555)
    done = doctor("check", "--from", broken, "-o", folder / "out.json", preexec_fn=obey_permissions)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not writable" in in_three_parts(done.stderr)["why"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])  # a pipe: nothing to replace
def test_o_may_name_a_stream(doctor, broken, name):
    done = doctor("check", "--from", broken, "--format", "json", "-o", name)
    assert done.returncode == 1, done.stderr
    assert verdicts(done.stdout)[BROKEN] == "broken"


def test_o_may_name_a_stream_that_leads_to_a_file(doctor, broken):
    # By this name nothing is lost if it goes wrong: a file can replace /dev/stdout, and none can be made in /dev/fd.
    target = doctor.folder / "redirected"
    target.write_text("kept\n", encoding="utf-8")
    with target.open("a") as stream:
        done = doctor("check", "--from", broken, "-o", "/dev/fd/1", stdout=stream, stderr=subprocess.PIPE)
    assert done.returncode == 1, done.stderr
    assert target.read_text(encoding="utf-8").startswith("kept\n")
    assert BROKEN in target.read_text(encoding="utf-8")


def test_o_may_name_a_pipe(doctor, broken):
    pipe = doctor.folder / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        done = doctor("check", "--from", broken, "--format", "json", "-o", pipe)
        read, _ = reader.communicate(timeout=20)
    assert done.returncode == 1, done.stderr
    assert verdicts(read)[BROKEN] == "broken"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("options", "code"), [({}, 0), ({"broken": (BROKEN,)}, 1)], ids=["0", "1"])
@pytest.mark.parametrize("target", [(), ("-o", "/dev/stdout")], ids=["stdout", "-o"])
def test_a_reader_that_went_away_does_not_change_the_code(doctor, options, code, fmt, target):
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = doctor(
            *("check", "--from", doctor.report(**options), "--format", fmt, *target),
            stdout=write_end,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(write_end)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_head_does_not_change_the_code(doctor, broken):
    shell = ["bash", "-c", '"$@" | head -n 1; exit "${PIPESTATUS[0]}"', "bash"]
    done = doctor(argv=[*shell, *doctor.argv("check", "--from", broken, "--format", "json")])
    assert (done.returncode, done.stdout) == (1, "{\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("options", "code"), [({}, 0), ({"broken": (BROKEN,)}, 1)], ids=["0", "1"])
def test_streams_that_are_closed_do_not_change_the_code(doctor, options, code, closed):
    argv = doctor.argv("check", "--from", doctor.report(**options))
    done = doctor(argv=["sh", "-c", f'exec "$@" {closed}', "sh", *argv])
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_with_stdout_closed_nothing_is_written_into_another_file(doctor):
    argv = doctor.argv("check", "--depth", "static", "-o", "out.json", "--format", "json")
    done = doctor(argv=["sh", "-c", 'exec "$@" >&-', "sh", *argv])
    assert done.returncode == 3, done.stderr
    assert json.loads((doctor.folder / "out.json").read_text(encoding="utf-8"))["gate"]["code"] == 3


def test_a_stdout_that_is_full_is_said(doctor, broken):
    with pathlib.Path("/dev/full").open("w") as full:
        done = doctor("check", "--from", broken, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert "No space left" in in_three_parts(done.stderr)["why"]
