"""stdout and -o: a file appears whole or not at all, and a reader that goes away changes no verdict."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pathlib
import resource
import stat
import subprocess
import time

import pytest
from cli_command import BROKEN, in_three_parts, report, script, verdicts
from msgspec.structs import replace
from permissions import obey_permissions

from fi_doctor.cli import emit
from fi_doctor.errors import UsageError
from fi_doctor.reports import render


@pytest.fixture
def broken(doctor):
    return doctor.report(broken=(BROKEN,))


@pytest.mark.parametrize("fmt", ["console", "json", "html"])  # each: test_a_file_holds_what_stdout_would
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


@pytest.mark.parametrize("is_mounted", [True, False], ids=["mounted", "a file"])
def test_a_file_that_is_mounted_by_itself_is_written_in_its_place(tmp_path, monkeypatch, is_mounted):
    """As /dev/termination-log is in a pod, where no other file can take its name."""
    monkeypatch.setattr(emit, "_is_mounted", lambda target: is_mounted)
    target = tmp_path / "termination-log"
    target.write_text("an old and longer text", encoding="utf-8")
    inode = target.stat().st_ino
    emit.check_writable(str(target))
    emit.write("new", str(target))
    assert target.read_text(encoding="utf-8") == "new"
    assert (target.stat().st_ino == inode) is is_mounted


def test_a_folder_that_takes_no_file_is_told_before_the_work(tmp_path, monkeypatch):
    emit.check_writable(str(tmp_path / "out.json"))
    assert list(tmp_path.iterdir()) == []

    def full(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(emit.tempfile, "TemporaryFile", full)
    with pytest.raises(UsageError, match="cannot be written") as error:
        emit.check_writable(str(tmp_path / "out.json"))
    assert error.value.why == f"the folder {str(tmp_path)!r} takes no file: No space left on device"


@pytest.mark.skipif(not pathlib.Path("/proc/self").is_dir(), reason="there is no /proc")
def test_nobody_writes_to_proc():
    with pytest.raises(UsageError, match="cannot be written"):
        emit.check_writable("/proc/x")


def test_only_what_lies_on_another_file_system_than_its_folder_is_mounted_by_itself(tmp_path):
    (tmp_path / "file").touch()
    assert [emit._is_mounted(path) for path in (tmp_path / "file", tmp_path / "none", tmp_path)] == [False] * 3


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


@pytest.mark.parametrize(
    ("name", "why", "todo"),
    [("no ne/out.json", "there is no folder", "mkdir -p '{}/no ne'"), ("", "it is a folder", "-o report.yaml")],
)
def test_an_impossible_target_is_2_before_any_work(doctor, name, why, todo):
    started = script(doctor.folder / "python", "#!/bin/sh\ntouch started\n")
    done = doctor("check", "--python", started, "-o", doctor.folder / name)
    assert (done.returncode, done.stdout) == (2, "")
    said = in_three_parts(done.stderr)
    assert why in said["why"]
    assert str(doctor.folder) in said["error"]
    assert said["try"] == todo.format(doctor.folder)
    assert not (doctor.folder / "started").exists()


def test_a_folder_that_is_not_writable_is_2(doctor, broken):
    folder = doctor.folder / "locked"
    folder.mkdir(mode=0o555)
    done = doctor("check", "--from", broken, "-o", folder / "out.json", preexec_fn=obey_permissions)
    assert (done.returncode, done.stdout) == (2, "")
    assert "not writable" in in_three_parts(done.stderr)["why"]
    # Nor can a folder be made in it.
    done = doctor("check", "--from", broken, "-o", folder / "x" / "out.json", preexec_fn=obey_permissions)
    assert in_three_parts(done.stderr)["try"] == "-o report.yaml"


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


def test_a_pipe_that_nobody_may_read_is_refused_before_any_work(doctor, broken):
    pipe = doctor.folder / "pipe"
    os.mkfifo(pipe)
    for words, part in ((("--from", broken, "-o", pipe), "neither a file"), (("--from", pipe), "not a file")):
        done = doctor("check", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert part in in_three_parts(done.stderr)["why"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_shell_may_put_a_command_in_place_of_a_file(doctor, broken):
    shell = ["bash", "-c", f'"$@" --from <(cat {broken}) -o >(cat >&2)', "bash"]
    done = doctor(argv=[*shell, *doctor.argv("check", "--format", "json")])
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize("name", ["loop", "x" * 300, "file/x"])
def test_a_path_that_cannot_be_is_2(doctor, broken, name):
    (doctor.folder / "loop").symlink_to("loop")
    (doctor.folder / "file").touch()
    for words in (("--from", broken, "-o", doctor.folder / name), ("--from", doctor.folder / name)):
        done = doctor("check", *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert doctor("check", "--python", doctor.folder / name).returncode == 2


def test_a_folder_that_was_deleted_is_2(doctor, broken):
    for words in (["--from", broken, "-o", "x"], ["--from", "x"], ["--python", "x/y"], ["--python", ""]):
        script = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
        done = doctor(argv=["sh", "-c", script, "sh", *doctor.argv("check", *words)])
        assert done.returncode == 2, done.stderr
        assert in_three_parts(done.stderr)["try"] or words[0] == "--from"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["check", "--help"], ["check", "--python", "/none"]])
@pytest.mark.parametrize("stream", ["stdout", "stderr", "both"])
def test_full_streams_are_never_a_fault(doctor, words, stream):
    with pathlib.Path("/dev/full").open("w") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        streams.update({name: full for name in streams if stream in (name, "both")})
        done = doctor(*words, **streams)
    assert done.returncode == (2 if stream != "stderr" or "--python" in words else 0)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stdout_that_does_not_block_gets_all(doctor, broken, unbuffered):
    whole = doctor("check", "--from", broken, "--format", "json").stdout
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    fcntl.fcntl(write_end, 1031, 4096)  # F_SETPIPE_SZ
    words = ("check", "--from", broken, "--format", "json")
    with doctor.start(*words, stdout=write_end, stderr=subprocess.DEVNULL, env={"PYTHONUNBUFFERED": unbuffered}) as one:
        os.close(write_end)
        time.sleep(1.5)  # the pipe is full by now
        with os.fdopen(read_end, encoding="utf-8") as pipe:
            assert pipe.read() == whole
    assert one.returncode == 1
    assert len(whole) > 4096


def test_no_terminal_obeys_what_was_recorded(doctor):
    done = report(broken=(BROKEN,))
    rows = tuple(replace(row, why="\x1b[31mred\nerror: no\x9b") for row in done.features)
    path = doctor.folder / "esc.json"
    path.write_text(render(replace(done, features=rows), "json"), encoding="utf-8")
    said = doctor("check", "--from", path, "--as-recorded").stderr
    assert "\\x1b[31mred error: no\\x9b" in said
    evil = script(doctor.folder / "python", "#!/bin/sh\nprintf '\\033[31mred' >&2; exit 3\n")
    said = doctor("check", "--python", evil).stderr
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("fmt", ["console", "json", "html"])
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


@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-"])
@pytest.mark.parametrize(("options", "code"), [({}, 0), ({"broken": (BROKEN,)}, 1)], ids=["0", "1"])
def test_streams_that_are_closed_do_not_change_the_code(doctor, options, code, closed):
    argv = doctor.argv("check", "--from", doctor.report(**options))
    done = doctor(argv=["sh", "-c", f'exec "$@" {closed}', "sh", *argv])
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


PRINTING = (
    ("check", "--example", "h200", "--no-config"),
    ("check", "--example", "h200", "--no-config", "-f", "json:/dev/stdout"),
    ("report", "--example", "h200", "--yaml"),
    ("report", "--python", "python"),
    ("diff", "h200", "h200-nvcc-12.6"),
    ("diff", "h200", "--python", "python"),
    ("warm", "--python", "python"),
    ("check", "--python", "python"),
    ("schema", "policy"),
    ("features",),
    ("explain",),
    ("probes", "list"),
    ("--version",),
    ("check", "--help"),
)


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_with_stdout_closed_what_would_go_there_is_2_before_anything_is_started(doctor, words):
    python = script(doctor.folder / "python", "#!/bin/sh\ntouch started\n")
    argv = doctor.argv(*(python if word == "python" else word for word in words))
    done = doctor(argv=["sh", "-c", 'exec "$@" >&-', "sh", *argv])
    assert (done.returncode, done.stdout) == (2, "")
    assert in_three_parts(done.stderr)["why"] == "it is closed"
    assert not (doctor.folder / "started").exists()


def test_with_stderr_closed_a_report_that_is_to_go_there_is_2(doctor):
    argv = doctor.argv("check", "--example", "h200", "--no-config", "-f", "console:/dev/stderr", "-f", "json")
    done = doctor(argv=["sh", "-c", 'exec "$@" 2>&-', "sh", *argv])
    assert (done.returncode, done.stdout) == (2, "")


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


@pytest.mark.parametrize(
    ("name", "begins"), [("a.json", "{"), ("a.yaml", "schema:"), ("a.YML", "schema:"), ("a.txt", "")]
)
def test_the_ending_of_the_file_says_the_format(doctor, tmp_path, name, begins):
    done = doctor("check", "--example", "h200", "-o", tmp_path / name)
    assert done.returncode == 0
    assert (tmp_path / name).read_text().startswith(begins)
    doctor("check", "--example", "h200", "-o", tmp_path / name, "--format", "console")
    assert "rows work" in (tmp_path / name).read_text().splitlines()[0]
