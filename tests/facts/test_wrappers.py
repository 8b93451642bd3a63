"""What a program that starts the interpreter sets, unsets and says by options is what all children have."""

import os
import sys

import pytest

from fi_doctor.facts import Gathering

GIVEN = {"PATH": os.environ["PATH"], "PYTHONPATH": "/given", "TAKEN": "away", "KEPT": "here", "LC_CTYPE": "C"}


@pytest.fixture
def started(tmp_path):
    """The variables and the interpreter, once everything was read through a wrapper with this line in it."""

    def start(line, **given):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        gathering = Gathering(str(path), {**GIVEN, **given}, asks_cuda=False)
        facts = gathering.finish()
        assert facts.interpreter.wrapper == str(path)
        assert not facts.interpreter.is_own
        return gathering.environ, facts

    return start


def test_what_it_sets_and_what_it_unsets_counts(started, tmp_path):
    (tmp_path / "home").mkdir()
    line = f'unset TAKEN; export PYTHONPATH=/set CUDA_HOME={tmp_path}/home; exec {sys.executable} "$@"'
    environ, facts = started(line)
    assert environ == {
        **{name: value for name, value in GIVEN.items() if name != "TAKEN"},
        "PYTHONPATH": "/set",
        "CUDA_HOME": f"{tmp_path}/home",
    }
    assert facts.interpreter.pythonpath == "/set"
    assert "/set" in facts.interpreter.sys_path
    # What is read beside the interpreter goes by them too.
    assert facts.toolkit.jit.cuda_home == f"{tmp_path}/home"


def test_a_value_that_is_no_text_survives(started):
    environ, _ = started(f'export ODD="$ODD+"; exec {sys.executable} "$@"', ODD="a\udcff\n=\u00e4")
    assert environ["ODD"] == "a\udcff\n=\u00e4+"


def test_options_with_which_variables_count_for_nothing_take_them_away(started):
    environ, facts = started(f'exec {sys.executable} -I "$@"')
    assert "PYTHONPATH" not in environ
    assert environ["PYTHONNOUSERSITE"] == "1"
    assert "/given" not in facts.interpreter.sys_path


def test_an_interpreter_that_is_started_itself_has_what_was_given(tmp_path):
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    gathering = Gathering(str(link), GIVEN, asks_cuda=False)
    assert gathering.finish().interpreter.wrapper == ""
    assert gathering.environ == GIVEN
