"""What is no regular file is waited for and read up to a limit, and what was given up is said."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest

from fi_doctor.errors import DataError, UsageError
from fi_doctor.explaining import inputs, waiting

LINE = b"RuntimeError: no\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(waiting, "FIRST_S", 5.0)
    monkeypatch.setattr(waiting, "NEXT_S", 0.05)


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def read(name):
    cut = []
    with inputs.opened(str(name), cut) as stream:
        text = b""
        while found := stream.read(1 << 20):
            text += found
    return text, cut


@contextlib.contextmanager
def written(pipe, *, held):
    """A writer that leaves the pipe open, or ends it."""
    done = threading.Event()

    def write():
        with pipe.open("wb", buffering=0) as file:
            file.write(LINE)
            if held:
                done.wait(5)

    writer = threading.Thread(target=write)
    writer.start()
    yield
    done.set()
    writer.join()


def test_a_pipe_to_which_nobody_writes_is_given_up(pipe, monkeypatch):
    monkeypatch.setattr(waiting, "FIRST_S", 0.05)
    with pytest.raises(UsageError, match="tells nothing"):
        read(pipe)


def test_a_pipe_that_falls_silent_is_read_up_to_there(pipe):
    with written(pipe, held=True):
        assert read(pipe) == (LINE, ["nothing came for 0 s"])


def test_a_pipe_that_ends_is_read_to_its_end(pipe, monkeypatch):
    monkeypatch.setattr(waiting, "NEXT_S", 5.0)
    with written(pipe, held=False):
        assert read(pipe) == (LINE, [])


def test_what_never_ends_is_read_up_to_a_limit(pipe, monkeypatch):
    monkeypatch.setattr(waiting, "NEXT_S", 5.0)
    monkeypatch.setattr(waiting, "MOST_BYTES", 4)
    with written(pipe, held=True):
        text, cut = read(pipe)
    assert (text, cut) == (LINE, ["more than 0 GiB came"])


def test_a_device_of_zeros_is_no_log(monkeypatch):
    monkeypatch.setattr(inputs, "_MOST_ZEROS", 1 << 16)
    with pytest.raises(DataError, match="binary, and no log"):
        read("/dev/zero")


def test_a_device_without_anything_is_empty():
    assert read("/dev/null") == (b"", [])


@pytest.mark.parametrize(("data", "text"), [(b"\0" * 9000 + LINE, LINE), (b"\0" * 20 + LINE, LINE), (LINE, LINE)])
def test_the_hole_before_a_log_is_passed_over(data, text, tmp_path):
    (tmp_path / "log").write_bytes(data)
    assert read(tmp_path / "log") == (text, [])


@pytest.mark.parametrize("data", [b"\0" * 100, b"\0" * 20_000, (b"a" + b"\0" * 3) * 2000])
def test_a_file_of_zeros_is_no_log(data, tmp_path):
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(DataError):
        read(tmp_path / "log")
