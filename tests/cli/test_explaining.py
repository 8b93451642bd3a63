"""fi-doctor explain FILE: what is a file and what an id, every way in which a log comes, and the exit codes."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import json
import os
import sys

import pytest
from test_schemas import validate

from fi_doctor.cli import explaining
from fi_doctor.cli.explaining import AskedExplain, explain, is_id
from fi_doctor.errors import DataError, UsageError
from fi_doctor.explaining import waiting
from fi_doctor.knowledge import examples
from fi_doctor.reports import document

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LOG = b"RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n"
PACKED = {"log": LOG, "log.gz": gzip.compress(LOG), "log.zst": zstd.compress(LOG)}
WINDOWS = {
    "little": codecs.BOM_UTF16_LE + LOG.decode().encode("utf-16-le"),
    "big": codecs.BOM_UTF16_BE + LOG.decode().encode("utf-16-be"),
}


def told(capfd, *names, **options):
    code = explain(AskedExplain(names=tuple(map(str, names)), formats=("json",), **options))
    return code, json.loads(capfd.readouterr().out)


@pytest.mark.parametrize("name", PACKED)
def test_a_log_is_read_whatever_it_is_packed_with(name, tmp_path, capfd):
    path = tmp_path / name
    path.write_bytes(PACKED[name])
    code, found = told(capfd, path)
    assert (code, found["diagnoses"][0]["cause"]) == (0, "nvcc-not-found")
    assert found["read"] == [{"file": str(path), "lines": 1, "bytes": len(LOG)}]
    validate(found, "explain")


@pytest.mark.parametrize("name", WINDOWS)
def test_a_log_that_a_shell_of_windows_wrote_is_read(name, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(WINDOWS[name])
    assert told(capfd, tmp_path / "x.log")[1]["diagnoses"][0]["cause"] == "nvcc-not-found"


def test_several_logs_are_one_and_their_lines_have_their_files(tmp_path, capfd):
    (tmp_path / "a.log").write_bytes(b"INFO: started\n")
    (tmp_path / "b.log").write_bytes(LOG)
    _, found = told(capfd, tmp_path / "a.log", tmp_path / "b.log")
    assert found["diagnoses"][0]["matched"][0]["file"] == str(tmp_path / "b.log")


def test_stdin_is_read(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG)))
    code, found = told(capfd, "-")
    assert (code, found["read"][0]["file"]) == (0, "-")


def test_stdin_that_is_packed_is_read(capfd, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(PACKED["log.zst"]))))
    assert told(capfd, "-")[0] == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [(b"", 3), (b"ValueError: what nobody knows\n", 3), (b"INFO: all is well\n", 0)],
    ids=["empty", "unknown error", "healthy"],
)
def test_the_exit_code_says_whether_a_cause_is_named(text, code, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(text)
    found_code, found = told(capfd, tmp_path / "x.log")
    assert (found_code, found["diagnoses"]) == (code, [])


def test_the_environment_comes_from_a_file_and_its_errors_do_not_count(tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(b"RuntimeError: No supported CUDA architectures found for major versions [12].\n")
    (tmp_path / "env.txt").write_bytes(b"compute capability: 120\nCUDA toolkit: 12.8\n" + LOG)
    _, found = told(capfd, tmp_path / "x.log", env_files=(str(tmp_path / "env.txt"),))
    assert [(one["cause"], one["confidence"]) for one in found["diagnoses"]] == [("jit-arch-too-new-for-nvcc", "high")]


@pytest.mark.parametrize("place", ["names", "env_files"])
def test_a_report_tells_of_its_machine_and_what_works_there(place, tmp_path, capfd):
    (tmp_path / "report.json").write_bytes(examples.data(examples.names()[0]))
    (tmp_path / "x.log").write_bytes(
        b"Using TRITON_ATTN attention backend out of potential backends: ['TRITON_ATTN'].\n"
    )
    given = {"names": (str(tmp_path / "x.log"),), place: (str(tmp_path / "report.json"),)}
    if place == "names":
        given = {"names": (str(tmp_path / "x.log"), str(tmp_path / "report.json"))}
    explain(AskedExplain(formats=("json",), **given))
    found = json.loads(capfd.readouterr().out)
    assert {"sm", "driver"} <= {fact["name"] for fact in found["facts"]}
    assert "attention." in found["used"][0]["instead"]


@pytest.mark.parametrize("form", ["console", "markdown"])
def test_other_formats_name_the_cause(form, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(LOG)
    assert explain(AskedExplain(names=(str(tmp_path / "x.log"),), formats=(form,))) == 0
    assert "nvcc-not-found" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), True),
        (("norm.rmsnorm",), True),
        (("nvcc-not-found",), True),
        (("no-such-thing",), True),
        (("--moe-backend",), True),
        (("-",), False),
        (("./norm.rmsnorm",), False),
        (("server.log",), False),
        (("a", "b"), False),
        (("crash",), False),
    ],
)
def test_what_is_an_id_and_what_a_file(names, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("norm.rmsnorm", "crash"):
        (tmp_path / name).write_bytes(LOG)
    assert is_id(AskedExplain(names=names)) is expected


def test_no_id_ends_as_a_file_does():
    from fi_doctor.cli import installed
    from fi_doctor.knowledge import explain as explaining_ids

    assert [name for name in explaining_ids.ids(*installed.known()) if name.endswith(explaining._ENDINGS)] == []


def test_a_log_that_is_cut_off_is_read_up_to_there_and_it_is_said(capfd, tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(LOG)[:-9])
    code, found = told(capfd, str(tmp_path / "x.gz"))
    assert code == 0
    assert "is damaged or cut off" in found["helps"][0]
    assert "damaged" not in found["answer"]


@pytest.mark.parametrize("line", ["INFO all is well", "ValueError: nobody knows this one"])
def test_that_no_cause_is_seen_in_a_damaged_file_says_how_far_it_was_read(line, capfd, tmp_path):
    lines = f"{line}\n".encode() * 9
    (tmp_path / "x.gz").write_bytes(gzip.compress(lines)[:-4])
    code, found = told(capfd, tmp_path / "x.gz")
    said = f"; {tmp_path}/x.gz is damaged or cut off, and could be read to {found['read'][0]['bytes']} bytes only"
    assert (code, found["answer"].endswith(said)) == (3, True)
    (tmp_path / "x.gz").write_bytes(gzip.compress(lines))
    code, found = told(capfd, tmp_path / "x.gz")
    assert (code == 0, "damaged" in found["answer"]) == (line.startswith("INFO"), False)


def test_what_is_piped_in_and_pauses_is_not_damaged(capfd, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def opened(name, cut):
        cut.append(f"{waiting.SILENT}600 s")
        yield io.BytesIO(b"INFO all is well\n")

    monkeypatch.setattr(explaining.inputs, "opened", opened)
    code, found = told(capfd, "-")
    assert (code, found["answer"]) == (0, "no error is told, and no sign of a fault that is known")


@pytest.mark.parametrize("form", ["json", "console", "markdown"])
def test_a_name_that_is_not_utf_8_is_shown_with_escapes(form, capfd, tmp_path):
    path = os.fsencode(tmp_path) + b"/bad\xff.log"
    with open(path, "wb") as file:  # noqa: PTH123 - a name of bytes
        file.write(LOG)
    names = (os.fsdecode(path), str(tmp_path / "x.log"))
    (tmp_path / "x.log").write_bytes(b"INFO: started\n")
    assert explain(AskedExplain(names=names, formats=(form,))) == 0
    shown = capfd.readouterr().out
    assert "bad\\xff.log" in shown.replace("\\\\", "\\")


def test_a_family_is_told_with_its_faults(capfd):
    assert explain(AskedExplain(names=("bystander-not-flashinfer",))) == 0
    shown = capfd.readouterr().out
    assert "\n  gpu-out-of-memory: " in shown
    assert "no-nvcc-for-jit" not in shown
    with pytest.raises(UsageError):
        explain(AskedExplain(names=("bystander-not-known",)))


def test_a_check_that_runs_nothing_is_not_said_to_settle_what_it_knows_nothing_of(tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    _, found = told(capfd, tmp_path / "x.log")
    assert (found["diagnoses"][0]["rule"], found["diagnoses"][0]["confirm"]) == ("gpu-out-of-memory", [])
    assert not any("--depth static" in line for line in found["helps"])
    (tmp_path / "x.log").write_bytes(LOG)
    assert told(capfd, tmp_path / "x.log")[1]["diagnoses"][0]["confirm"]


def test_what_cannot_be_read_is_said(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(LOG)[:9])
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 99)
    for name in (tmp_path / "none.log", f"{tmp_path}/"):
        with pytest.raises(UsageError):
            explain(AskedExplain(names=(str(name),)))
    with pytest.raises(DataError, match="cannot be unpacked"):
        explain(AskedExplain(names=(str(tmp_path / "x.gz"),)))
    with pytest.raises(DataError, match="binary is no text"):
        explain(AskedExplain(names=(str(tmp_path / "binary"),)))


@pytest.mark.parametrize(
    "asked",
    [
        AskedExplain(names=("x.log",), python="/usr/bin/python3"),
        AskedExplain(names=("norm.rmsnorm",), formats=("json",)),
        AskedExplain(env_files=("env.txt",)),
        AskedExplain(names=("-",), env_files=("-",)),
    ],
    ids=["--python alone", "a format of an id", "no log", "stdin twice"],
)
def test_what_cannot_be_meant_is_said(asked):
    with pytest.raises(UsageError):
        explain(asked)


@pytest.mark.parametrize("options", [{"env_files": ("none.txt",)}, {}], ids=["an environment", "a log"])
def test_one_file_that_cannot_be_read_takes_nothing_from_the_others(options, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(LOG)
    names = [str(tmp_path / "x.log"), *([] if options else [str(tmp_path / "none.log")])]
    code = explain(AskedExplain(names=tuple(names), formats=("json",), **options))
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (code, found["diagnoses"][0]["cause"]) == (2, "nvcc-not-found")
    assert found["helps"][0].startswith("not read: ")
    assert "none." in found["helps"][0]
    assert "error: " in err


def test_an_environment_without_a_log_that_can_be_read_is_an_error(tmp_path):
    (tmp_path / "env.txt").write_bytes(b"compute capability: 120\n")
    with pytest.raises(UsageError):
        explain(AskedExplain(names=(str(tmp_path / "none.log"),), env_files=(str(tmp_path / "env.txt"),)))


@pytest.mark.parametrize(("environment", "is_said"), [(b"hello\n", True), (b"compute capability: 120\n", False)])
def test_an_environment_that_tells_nothing_is_named(environment, is_said, tmp_path, capfd):
    (tmp_path / "x.log").write_bytes(LOG)
    (tmp_path / "env.txt").write_bytes(environment)
    code, found = told(capfd, tmp_path / "x.log", env_files=(str(tmp_path / "env.txt"),))
    assert code == 0
    assert any("env.txt tells nothing" in line for line in found["helps"]) is is_said


def test_the_machine_counts_before_what_the_log_tells(tmp_path, capfd, monkeypatch):
    report = document.read(examples.data(examples.names()[0]), "example")
    monkeypatch.setattr(explaining, "_here", lambda python, knowledge: report)
    (tmp_path / "x.log").write_bytes(b"NVIDIA driver: 1.2\n")
    _, found = told(capfd, tmp_path / "x.log", is_here=True)
    assert next(fact for fact in found["facts"] if fact["name"] == "driver")["file"] == "this machine"


def test_the_command_explains_a_log(doctor, tmp_path):
    (tmp_path / "x.log").write_bytes(LOG)
    done = doctor("explain", tmp_path / "x.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nvcc-not-found" in done.stdout
