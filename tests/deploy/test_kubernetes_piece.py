"""The init container's message: what decided comes first, in 4096 bytes, however the check ends."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from pieces import ASKED, EXAMPLE, checkout, script
from waiting import wait_for

SHELLS = ["sh", "bash"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", ASKED)
def test_the_message_begins_with_what_decided(pod, code, shell):
    done = pod.run(shell, pod.script, CHECK_ARGS=ASKED[code])
    assert done.returncode == code, done.stderr
    first, *rest = pod.message().splitlines()
    assert first.startswith("fi-doctor: ")
    assert f"(exit {code})" in first
    if code == 2:
        assert "no verdict" in first
        assert rest[0].startswith("error: ")
        assert first == f"fi-doctor: no verdict (exit 2): {rest[0].removeprefix('error: ')}"
        assert "norm.rmsnorm" in rest[-1]
    else:
        assert first == done.stderr.splitlines()[-1]
        assert " on NVIDIA H200" in "\n".join(rest)
        assert "rows work" in done.stdout or "row works" in done.stdout


def test_of_a_long_report_whole_lines_are_kept_from_its_beginning(pod):
    done = pod.run("sh", pod.script, CHECK_ARGS=EXAMPLE)
    message = pod.message()
    assert len(done.stdout) > 4096
    assert 4096 - 81 < len(message.encode()) <= 4096  # a line of the console has at most 80 columns
    verdict, _, console = message.partition("\n")
    assert verdict.endswith("(exit 0)")
    assert console.endswith("\n")
    assert done.stdout.startswith(console)


def test_of_what_was_asked_only_what_does_not_hold_is_told(pod):
    pod.run("sh", pod.script, CHECK_ARGS=f"{ASKED[1]} --require comm.allreduce_fusion --require moe.bf16")
    gates = [line for line in pod.message().splitlines() if line.startswith("gate: ")]
    assert [line.split()[1] for line in gates] == ["no", "cannot"]
    assert "decided: moe.trtllm_fp8_block" in gates[0]


def test_of_a_policy_that_is_not_there_the_error_comes_first(pod):
    assert pod.run("sh", pod.script, CHECK_CONFIG="/none/fi-doctor.toml").returncode == 2
    first = pod.message().splitlines()[0]
    assert first.startswith("fi-doctor: no verdict (exit 2): ")
    assert "/none/fi-doctor.toml" in first


def test_a_verdict_that_is_too_long_is_cut_between_words(pod):
    script(pod.bin / "fi-doctor", '#!/bin/sh\necho "fi-doctor: $(seq -s " " 2000) µ (exit 1)" >&2\nexit 1\n')
    assert pod.run("sh", pod.script).returncode == 1
    message = pod.message()
    assert 4090 < len(message.encode()) <= 4096
    assert message.startswith("fi-doctor: 1 2 3 ")
    *_, last, dots = message.split()
    assert (dots, len(last)) == ("...", 4)


def fake(pod, lines, code):
    """A fi-doctor that says these lines on stderr."""
    (pod.folder / "lines").write_text(lines, encoding="utf-8")
    script(pod.bin / "fi-doctor", f'#!/bin/sh\ncat "{pod.folder}/lines" >&2\nexit {code}\n')


@pytest.mark.parametrize("word", ["x", "µ"])
def test_of_a_verdict_that_is_one_long_word_what_fits_is_kept(pod, word):
    fake(pod, f"fi-doctor: {word * 5000} (exit 1)\n", 1)
    assert pod.run("sh", pod.script).returncode == 1
    message = pod.message()
    assert message.startswith(f"fi-doctor: {word * 2000}")
    assert message.endswith(f"{word} ...\n")
    assert 4090 < len(message.encode()) <= 4096


def test_of_a_long_line_below_the_verdict_what_fits_is_kept_and_nothing_follows_it(pod):
    fake(pod, f"error: {'it is long ' * 500}\n  try: less\n", 2)
    assert pod.run("sh", pod.script, CHECK_CONFIG="x").returncode == 2
    first, *_ = pod.message().splitlines()
    assert first.startswith("fi-doctor: no verdict (exit 2): it is long it is")
    fake(pod, f"fi-doctor: it is short (exit 1)\nwarning: {'it is long ' * 500}\nfi-doctor: it is short (exit 1)\n", 1)
    assert pod.run("sh", pod.script).returncode == 1
    first, second = pod.message().splitlines()
    assert first == "fi-doctor: it is short (exit 1)"
    assert second.startswith("warning: it is long")
    assert second.endswith(" ...")
    assert 4090 < len(pod.message().encode()) <= 4096


def test_an_error_of_several_lines_is_told_by_what_it_says_first(pod):
    pod.mounted.joinpath("fi-doctor.toml").write_text('budget = "x"\ndepth = "y"\n')
    done = pod.run("sh", pod.script, CHECK_CONFIG=pod.mounted / "fi-doctor.toml")
    assert done.returncode == 2
    first, second, *_, last = pod.message().splitlines()
    what = f"the policy '{pod.mounted}/fi-doctor.toml' cannot be used: 2 errors"
    assert (first, second) == (f"fi-doctor: no verdict (exit 2): {what}", f"error: {what}")
    assert last == "  try: mend the file, or leave it out with --no-config"


def test_a_fault_of_several_lines_is_told_by_its_exception(pod):
    fake(pod, "error: it failed\nTraceback (most recent call last):\n  File x\nValueError: one\ntwo\n", 4)
    assert pod.run("sh", pod.script).returncode == 4
    assert pod.message().startswith("fi-doctor: no verdict (exit 4): ValueError: one\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("words", ["--help", "--version", "--feature norm.rmsnorm --help"])
def test_what_gives_0_and_is_no_check_does_not_let_the_pod_start(pod, shell, words):
    done = pod.run(shell, pod.script, CHECK_ARGS=words)
    assert done.returncode == (2 if words == "--version" else 3)
    if words != "--version":  # which is no option of a check
        assert pod.message() == "fi-doctor: no verdict, and no check ended with code 0 (exit 3)\n"
    assert done.stderr.splitlines()[-1:] == pod.message().splitlines()[-1:]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("code", "last"), [(0, ""), (1, ""), (0, "fi-doctor: all is there (exit 0)"), (1, "x: no y")])
def test_0_and_1_without_the_line_of_the_gate_are_no_verdict(pod, shell, code, last):
    """The line with exit 0 may be that of `warm`."""
    fake(pod, f"{last}\n" * bool(last), code)
    assert pod.run(shell, pod.script).returncode == 3
    assert pod.message().startswith(f"fi-doctor: no verdict, and no check ended with code {code} (exit 3)")
    assert last in pod.message()


@pytest.mark.parametrize("shell", SHELLS)
def test_without_the_other_script_it_is_3_and_told(pod, shell):
    (pod.mounted / "check.sh").unlink()
    done = pod.run(shell, pod.script)
    assert done.returncode == 3
    assert "there is no check.sh beside" in pod.message()
    assert pod.message() == done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_without_a_place_for_files_it_is_3_and_told(pod, shell):
    pod.log.write_text("fi-doctor: 3 rows work (exit 0)\n")
    done = pod.run(shell, pod.script, TMPDIR=pod.folder / "none")
    assert done.returncode == 3
    assert pod.message().startswith(f"fi-doctor: no file can be made in {pod.folder}/none: ")
    assert pod.message().endswith("nothing was examined (exit 3)\n")


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_message_that_cannot_be_written_does_not_change_the_code(pod, code):
    done = pod.run("sh", pod.script, CHECK_ARGS=ASKED[code], TERMINATION_LOG=pod.folder)
    assert done.returncode == code
    assert done.stderr.splitlines()[-1].endswith("cannot be written")


def test_a_fault_in_fi_doctor_is_4_and_the_message_names_it(pod, tmp_path):
    damaged = checkout(tmp_path / "copy")
    gate = damaged / "fi_doctor" / "diagnosis" / "gate.py"
    gate.write_text(gate.read_text().replace("def decide(", "def decide(*_, **__):\n    1 / 0\n\n\ndef decided("))
    pod.put_doctor(damaged)
    assert pod.run("sh", pod.script, CHECK_ARGS=ASKED[0]).returncode == 4
    first, second, *rest = pod.message().splitlines()
    assert first == "fi-doctor: no verdict (exit 4): ZeroDivisionError: division by zero"
    assert second.startswith("error: fi-doctor itself failed")
    assert any(line.startswith("Traceback") for line in rest)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["TERM", "INT"])
def test_a_signal_ends_the_check_and_all_that_it_started(pod, shell, number, code):
    child = pod.start_hanging(shell, pod.script)
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode == code
    assert pod.message() == "fi-doctor: terminated; no verdict\n"
    assert wait_for(lambda: not pod.processes(), seconds=5)


def test_a_check_that_is_killed_is_told_as_no_verdict(pod):
    child = pod.start_hanging("sh", pod.script)
    check = min(pod.processes("-m fi_doctor"))  # what it starts looks like it for a moment
    os.kill(check, signal.SIGKILL)
    child.communicate(timeout=30)
    assert child.returncode == 137
    assert pod.message().startswith("fi-doctor: the check was killed")
    assert "no verdict (exit 137)" in pod.message()


def test_a_container_that_is_killed_whole_leaves_no_verdict_of_an_earlier_run(pod):
    pod.log.write_text("fi-doctor: 3 rows work (exit 0)\n")
    child = pod.start_hanging("sh", pod.script)
    pod.kill_all()
    child.communicate(timeout=30)
    assert pod.message() == ("fi-doctor: the container ended before its check did, as where memory ends; no verdict\n")


def test_warming_comes_first_and_what_it_could_not_do_is_told(pod):
    """Without FlashInfer nothing can be compiled, and it is the check that decides."""
    python = script(pod.folder / "python", f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    asked = {"CHECK_ARGS": "--no-config --depth static", "CHECK_PYTHON": python}
    done = pod.run("sh", pod.script, CHECK_WARM="1m", **asked)
    assert done.returncode == 3, done.stderr
    assert "\nwarning: fi-doctor warm ended with code 3: not all is compiled\n" in pod.message()
    assert done.stderr.index("warm ended") < done.stderr.index("gate: ")
    pod.run("sh", pod.script, **asked)
    assert "warning: fi-doctor warm" not in pod.message()


def test_a_mistake_that_warming_meets_is_the_code(pod):
    done = pod.run("sh", pod.script, CHECK_WARM="soon", CHECK_ARGS=ASKED[0])
    assert (done.returncode, done.stdout) == (2, "")
    assert "'soon'" in pod.message()


def test_without_fi_doctor_nothing_could_be_told(pod):
    (pod.bin / "fi-doctor").unlink()
    done = pod.run("sh", pod.script, PATH="/usr/bin:/bin")
    assert done.returncode == 3
    assert pod.message() == "fi-doctor: there is no fi-doctor on PATH, and nothing was examined (exit 3)\n"
