"""The action's step: annotations on stdout, the summary, the outputs, and the code of the gate."""

from __future__ import annotations

import itertools
import json
import signal
import sys

import junitparser
import pytest
from pieces import ASKED, GITHUB, ROOT, script
from waiting import wait_for

# Leaves what `python3 -I -m venv` and `pip install` leave, and takes nothing from elsewhere.
QUICK_PYTHON = """#!/bin/sh
case "$*" in
  "-I -m venv "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
  "-I -m pip install "*) cp "$ON_PATH" "${0%/*}/fi-doctor" ;;
  *) exec "$REAL" "$@" ;;
esac
"""


@pytest.fixture
def quick(action):
    """Run the step with the installation left out; test_the_step_installs_its_own_checkout has it."""
    script(action.bin / "python3", QUICK_PYTHON)
    known = {"ON_PATH": action.bin / "fi-doctor", "REAL": sys.executable}
    return lambda shell="sh", **changes: action.run(shell, GITHUB, **known, **changes)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("code", ASKED)
def test_code_outputs_and_files_say_the_same(action, quick, code, shell):
    done = quick(shell, CHECK_ARGS=ASKED[code])
    assert done.returncode == code, done.stderr
    report = action.folder / "out" / "report.json"
    if code == 2:
        assert action.outputs() == {"code": "2", "report": ""}
        assert not report.exists()
        assert done.stdout == "::error title=fi-doctor%3A exit 2::no verdict; the log says why\n"
        assert "norm.rmsnorm" in done.stderr
        return
    assert action.outputs() == {"code": str(code), "report": "out/report.json"}
    assert json.loads(report.read_text())["gate"]["code"] == code
    assert len(junitparser.JUnitXml.fromfile(str(action.folder / "out" / "junit.xml")))
    assert f"title=fi-doctor%3A exit {code}%2C" in done.stdout
    assert all(line.startswith("::") for line in done.stdout.splitlines())
    assert action.summary.read_text().startswith(f"# fi-doctor: exit {code},")
    assert f"\nExit {code} (" in done.stderr


def test_what_an_earlier_run_left_is_not_taken_for_this_one(action, quick):
    (action.folder / "out").mkdir()
    for name in ("report.json", "junit.xml"):
        (action.folder / "out" / name).write_text("old")
    assert quick(CHECK_ARGS=ASKED[2]).returncode == 2
    assert action.outputs()["report"] == ""
    assert list((action.folder / "out").iterdir()) == []


def test_words_keep_their_spaces_and_nothing_in_them_is_expanded(action, quick):
    action.put_doctor(ROOT)
    script(action.bin / "fi-doctor", '#!/bin/sh\nprintf "%s\\n" "$@" >words\n')
    (action.folder / "moe.x").touch()
    quick(CHECK_ARGS="--feature moe.*\n--config 'a b.toml' \"$(touch run)\" ; $HOME `touch run`")
    words = (action.folder / "words").read_text().splitlines()
    assert words[-9:] == ["--feature", "moe.*", "--config", "a b.toml", "$(touch run)", ";", "$HOME", "`touch", "run`"]
    assert not (action.folder / "run").exists()


def test_a_quote_without_its_other_one_is_2(action, quick):
    done = quick(CHECK_ARGS="--feature 'moe.*")
    assert done.returncode == 2
    assert "--feature 'moe.*" in done.stderr
    assert action.outputs()["code"] == "2"


def test_inputs_become_options(action, quick):
    script(action.bin / "fi-doctor", '#!/bin/sh\necho "$*" >>commands; printf "%s\\n" "$@" >words\n')
    quick(CHECK_PYTHON="/opt/a b/python", CHECK_CONFIG="policy dir/fi-doctor.toml", CHECK_WARM="1h")
    first, last = (action.folder / "commands").read_text().splitlines()
    assert (first, last.split()[0]) == ("warm --budget 1h --python /opt/a b/python", "check")
    words = (action.folder / "words").read_text().splitlines()
    pairs = dict(itertools.pairwise(words))
    assert pairs["--python"] == "/opt/a b/python"
    assert pairs["--config"] == "policy dir/fi-doctor.toml"


@pytest.mark.parametrize("wrong", ["/no/such/checkout", "."], ids=["absent", "another-folder"])
def test_what_cannot_be_installed_is_3_and_told(action, wrong):
    done = action.run("sh", GITHUB, CHECK_INSTALL=wrong, CHECK_ARGS=ASKED[0])
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].endswith("nothing was examined (exit 3)")
    assert wrong in done.stderr.splitlines()[-1]
    assert done.stdout.startswith("::error title=fi-doctor%3A exit 3::")
    assert action.outputs() == {"code": "3", "report": ""}
    assert not list(action.folder.glob("fi-doctor-*"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_job_that_is_cancelled_has_outputs_and_leaves_nothing_behind(action, quick, number, code):
    known = {"ON_PATH": action.bin / "fi-doctor", "REAL": sys.executable}
    # As the action starts it, and as the runner cancels it: the step's own process is told.
    child = action.start_hanging("bash", "-e", "-c", f"exec sh {GITHUB}", **known)
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode == code
    assert action.outputs() == {"code": str(code), "report": ""}
    assert wait_for(lambda: not action.processes(), seconds=5)
    assert not list(action.folder.glob("fi-doctor-*"))


def test_a_lock_is_named_by_the_arguments(action, quick):
    script(action.bin / "fi-doctor", '#!/bin/sh\nprintf "%s\\n" "$@" >words\n')
    quick(CHECK_ARGS="--locked 'the kernels.lock' --frozen")
    words = (action.folder / "words").read_text().splitlines()
    assert words[-3:] == ["--locked", "the kernels.lock", "--frozen"]


def test_the_step_installs_its_own_checkout(action):
    """With a real venv and pip: what runs is neither on PATH nor of the folder that is worked in."""
    (action.bin / "fi-doctor").unlink()
    before = set(ROOT.iterdir())
    # What lies on PYTHONPATH is the server's: fi-doctor takes nothing from there.
    info = action.folder / "server" / "packaging-99.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaging\nVersion: 99\n")
    words = {"CHECK_PYTHON": sys.executable, "CHECK_ARGS": "--no-config --depth static"}
    done = action.run("sh", GITHUB, PYTHONPATH=info.parent, **words)
    assert done.returncode == 3, done.stderr
    report = json.loads((action.folder / "out" / "report.json").read_text())
    assert report["facts"]["interpreter"]["executable"] == sys.executable
    assert set(ROOT.iterdir()) == before
    assert not list(action.folder.glob("fi-doctor-*"))
