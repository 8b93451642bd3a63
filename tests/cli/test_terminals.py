"""Colour is for terminals; text reaches every locale."""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import subprocess

import factory as make
import pytest
from cli_command import BROKEN, FORMATS

from fi_doctor.cli import streams
from fi_doctor.errors import DoctorError

ESCAPE = "\x1b"


@pytest.fixture
def broken(doctor):
    return doctor.report(broken=(BROKEN,))


def on_terminal(doctor, *args, stream="stdout", **env):
    """Exit code and what a terminal of 80 columns shows of one stream; the other is no terminal."""
    ours, theirs = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    child = doctor.start(*args, env={"TERM": "xterm-256color", **env}, **streams)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other end was closed
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    child.communicate(timeout=60)
    return child.returncode, shown.decode()


def test_a_terminal_gets_colour(doctor, broken):
    code, shown = on_terminal(doctor, "check", "--from", broken)
    assert code == 1
    assert ESCAPE in shown
    assert BROKEN in shown


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_color_and_dumb_terminals_get_none(doctor, broken, env):
    code, shown = on_terminal(doctor, "check", "--from", broken, **env)
    assert code == 1
    assert ESCAPE not in shown
    assert BROKEN in shown


def test_an_empty_no_color_counts_for_nothing(doctor, broken):
    assert ESCAPE in on_terminal(doctor, "check", "--from", broken, NO_COLOR="")[1]


@pytest.mark.parametrize("fmt", ["json", "yaml"])
def test_a_machine_format_has_no_colour_on_a_terminal(doctor, broken, fmt):
    assert ESCAPE not in on_terminal(doctor, "check", "--from", broken, "--format", fmt)[1]


@pytest.mark.parametrize("env", [{}, {"TERM": "xterm-256color", "COLORTERM": "truecolor"}], ids=["plain", "xterm"])
def test_what_is_no_terminal_gets_no_colour_and_80_columns(doctor, broken, env):
    done = doctor("check", "--from", broken, env={**env, "COLUMNS": None})
    assert ESCAPE not in done.stdout + done.stderr
    assert 70 < longest_line(done.stdout) <= 80


@pytest.mark.parametrize(("columns", "width"), [("10", 60), ("66", 66), ("120", 120), ("999", 200), ("many", 80)])
def test_columns_is_honoured_where_stdout_is_no_terminal(doctor, broken, columns, width):
    done = doctor("check", "--from", broken, env={"COLUMNS": columns})
    assert width - 20 < longest_line(done.stdout) <= width


def test_what_decides_is_broken_at_spaces_on_a_terminal_and_nowhere_else(doctor, broken):
    words = ("check", "--from", broken, "--explain-gate")
    whole = doctor(*words).stderr.splitlines()
    assert max(map(len, whole)) > 80
    _, shown = on_terminal(doctor, *words, stream="stderr")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(whole).split())
    assert lines[-1].endswith("(exit 1)")


def longest_line(text):
    """Its length; commands, which are never wrapped, aside."""
    return max(len(line) for line in text.splitlines() if "fi-doctor " not in line and "reproduce" not in line)


def test_a_file_that_is_written_from_a_terminal_has_no_colour(doctor, broken):
    code, shown = on_terminal(doctor, "check", "--from", broken, "-o", "out.txt")
    assert (code, shown) == (1, "")
    assert ESCAPE not in (doctor.folder / "out.txt").read_text(encoding="utf-8")


ASCII = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def foreign(doctor):
    """A report with other letters than a locale may have."""
    return doctor.report(facts=make.facts(gpus=make.gpu_facts(make.gpu(name="NVIDIA Größe → \U0001f600"))))


@pytest.mark.parametrize(("fmt", "coercion"), [("console", "0"), ("console", "1"), ("json", "0"), ("html", "0")])
def test_a_locale_without_unicode_does_no_harm(doctor, foreign, fmt, coercion):
    done = doctor("check", "--from", foreign, "--format", fmt, env={**ASCII, "PYTHONCOERCECLOCALE": coercion})
    assert done.returncode == 0, done.stderr
    assert done.stdout == doctor("check", "--from", foreign, "--format", fmt).stdout


def test_a_locale_without_unicode_does_no_harm_to_files(doctor, foreign):
    for place, env in (("here", ASCII), ("there", {})):
        (doctor.folder / place).mkdir()
        words = itertools.chain.from_iterable(("--format", f"{fmt}:{place}/{fmt}") for fmt in FORMATS)
        done = doctor("check", "--from", foreign, *words, env=env)
        assert done.returncode == 0, done.stderr
    for fmt in FORMATS:
        assert (doctor.folder / "here" / fmt).read_bytes() == (doctor.folder / "there" / fmt).read_bytes()


@pytest.mark.parametrize(
    "args", [["--help"], ["check", "--help"], ["features"], ["probes", "list"], ["explain", BROKEN]]
)
def test_every_text_can_be_printed_in_ascii(doctor, args):
    done = doctor(*args, env=ASCII)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_in_other_letters_can_be_told_in_ascii(doctor):
    done = doctor("check", "--feature", "größe→", env=ASCII)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_error_says_of_what_was_typed_as_much_as_can_be_read_and_its_command_whole(capsys):
    command = "fi-doctor check " + "--feature x " * 500
    streams.tell_error(DoctorError("a\x1b" * 5000, why=f"{'b' * 2000}\n{'c' * 2001}", todo=command))
    what, why, more, todo = capsys.readouterr().err.splitlines()
    assert what.endswith(" [23000 more characters]")
    assert why == f"  why: {'b' * 2000}"
    assert more == f"       {'c' * 2000} [1 more characters]"
    assert todo == f"  try: {command}"
