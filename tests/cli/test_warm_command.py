"""`fi-doctor warm` as a command: what it writes where, its exit codes. FlashInfer is a stand-in with a real ninja."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess

import pytest
from cli_command import ROOT, in_three_parts
from jit_stack import Stack
from waiting import wait_for

pytestmark = pytest.mark.skipif(shutil.which("ninja") is None, reason="no ninja on PATH")


@pytest.fixture
def stack(tmp_path, doctor):
    made = Stack(tmp_path / "stack", doctor)
    made.module("a", "true", "true")
    made.module("b", "true")
    return made


ROWS = ("--feature", "fake.*", "--jobs", "2")


def said(done):
    """stdout on one line."""
    return " ".join(done.stdout.split())


def modules(done):
    """The lines of the modules."""
    return re.findall(r"^(?:a|b|slow) +[a-z].*$", done.stdout, re.MULTILINE)


def test_the_cache_is_filled_and_a_second_run_has_nothing_to_do(stack):
    done = stack(*ROWS)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in modules(done)] == [["a", "built"], ["b", "built"]]
    assert "2 modules: 2 built" in done.stdout
    assert (stack.ops / "a/a.so").is_file()
    assert done.stderr.splitlines()[-1] == "fi-doctor: a server's first start compiles nothing of the above (exit 0)"
    assert "] begins: " in done.stderr
    assert "2/2 " in done.stderr
    again = stack(*ROWS)
    assert (again.returncode, modules(again)) == (0, ["a  up to date", "b  up to date"])
    dry = stack(*ROWS, "--dry-run")
    assert dry.returncode == 0
    assert said(dry).endswith(f" All 2 modules are there: nothing would be compiled in {stack.ops.parent}")


def test_a_dry_run_shows_what_there_is_to_do_and_writes_nothing(stack):
    done = stack(*ROWS, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "units   time  MiB a job  MiB on disk  module\n" in done.stdout
    assert re.findall(r"^ +(\d+) .* (a|b|all of them)$", done.stdout, re.MULTILINE) == [
        ("2", "a"),
        ("1", "b"),
        ("3", "all of them"),
    ]
    assert "no such module was measured" in said(done)
    assert "2 modules would be compiled: fi-doctor warm --feature 'fake.*' --jobs 2 (exit 0)" in done.stderr
    assert list(stack.home.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["filled", "dry"])
def test_json_is_alone_on_stdout_and_has_one_shape(stack, words):
    done = stack(*ROWS, "--json", *words)
    found = json.loads(done.stdout)
    assert (found["schema"], found["code"], found["dry_run"]) == ("fi-doctor.warm/1.0", 0, bool(words))
    assert [one["name"] for one in found["modules"]] == ["a", "b"]
    assert {one["place"] for one in found["modules"]} == {"to compile" if words else "built"}
    assert {"seconds", "cpu_seconds", "least_seconds", "peak_mib", "disk_mib", "estimated_seconds"} <= found.keys()
    assert found["folder"] == str(stack.ops.parent)


def test_what_fails_is_1_with_its_first_error_and_the_command_that_goes_on(stack):
    (stack.sources / "b/b0.cu").write_text("echo 'b0.cu:1: error: no such type' >&2; exit 1\n")
    done = stack(*ROWS)
    assert done.returncode == 1
    assert modules(done)[1] == "b  failed: b0.cu:1: error: no such type"
    last = "fi-doctor: 1 module failed to compile; what says why: fi-doctor check --feature fake.b --jobs 2 (exit 1)"
    assert done.stderr.splitlines()[-1] == last


def test_which_vllm_and_which_toolkit_are_meant_is_said_first_and_in_json(stack):
    toolkit = f"nvcc 13.0 ({stack.cuda}/bin/nvcc)"
    caller = "no vLLM is installed: as vLLM 0.33 would call them"
    assert said(stack(*ROWS, "--dry-run")).startswith(f"N{caller[1:]}; compiled with {toolkit} ")
    found = json.loads(stack(*ROWS, "--dry-run", "--json").stdout)
    assert (found["caller"], found["toolkit"]) == (caller, toolkit)


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["filled", "dry"])
def test_what_is_not_known_has_the_same_words_and_code_whether_or_not_it_is_compiled(stack, words):
    probe = stack.place / "probes/fake_b.py"
    probe.write_text(
        probe.read_text().replace("    from flashinfer.ops", "    raise OSError('no')\n    from flashinfer.ops")
    )
    unknown = "it is not known what fake.b would compile; what says why: fi-doctor check --feature fake.b --jobs 2"
    done = stack(*ROWS, *words)
    assert done.returncode == 1
    assert unknown in done.stderr
    alone = stack("--feature", "fake.b", "--jobs", "2", *words)
    assert alone.stderr.splitlines()[-1] == f"fi-doctor: {unknown} (exit 3)"
    assert alone.returncode == 3


def test_more_than_there_is_is_said_in_one_line_and_printed_back_as_it_was_typed(stack):
    done = stack("--feature", "fake.*", "--jobs", "4096", "--memory", "999.5g", "--budget", "120m", "--dry-run")
    assert "--jobs 4096 is more than the CPUs that this process may use (" in done.stderr
    assert "--memory 999.5g is more than the memory that is available (" in done.stderr
    assert "fi-doctor warm --feature 'fake.*' --jobs 4096 --memory 999.5g --budget 120m (exit 0)" in done.stderr
    assert "estimated for 4096 jobs" not in said(done)


def test_a_toolkit_that_cannot_link_is_3_at_once_and_anyway_compiles_all_the_same(stack):
    (stack.cuda / "lib64/libcudart.so").unlink()
    for words in ((), ("--dry-run",)):
        done = stack(*ROWS, *words)
        assert (done.returncode, done.stdout) == (3, "")
        assert "toolkit-lacks-link-libraries" in in_three_parts(done.stderr)["error"]
        assert list(stack.home.iterdir()) == []
    assert stack(*ROWS, "--anyway").returncode == 0


@pytest.mark.parametrize("words", [(), ("--dry-run",)], ids=["filled", "dry"])
@pytest.mark.parametrize(("lost", "what"), [("bin/nvcc", "no nvcc"), ("lib64/libcudart.so", "toolkit-lacks-link")])
def test_where_all_is_there_a_faulty_or_absent_toolkit_is_no_obstacle(stack, lost, what, words):
    assert stack(*ROWS).returncode == 0
    (stack.cuda / lost).unlink()
    done = stack(*ROWS, *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "fi-doctor: a server's first start compiles nothing of the above (exit 0)"
    (stack.sources / "b/b0.cu").write_text("true # changed\n")
    done = stack(*ROWS, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert what in in_three_parts(done.stderr)["error"]


def test_a_folder_that_cannot_be_written_is_3_with_the_same_words_in_a_dry_run(stack, tmp_path):
    (tmp_path / "file").write_text("")
    done, dry = (stack(*ROWS, *words, FLASHINFER_WORKSPACE_BASE=tmp_path / "file") for words in ((), ("--dry-run",)))
    assert (done.returncode, done.stdout) == (3, "")
    assert "cannot be written" in in_three_parts(done.stderr)["error"]
    assert (dry.returncode, dry.stdout, dry.stderr) == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"PYTHONPATH": ROOT}, "FlashInfer is not there"),
        ({"FLASHINFER_CUDA_ARCH_LIST": None}, "for which GPU"),
        ({"FLASHINFER_CUDA_ARCH_LIST": "8.0 9.0a"}, "for which GPU"),
    ],
    ids=["no-flashinfer", "no-architecture", "two-architectures"],
)
def test_where_nothing_can_be_compiled_it_is_3(stack, changes, what):
    words = ("--feature", "norm.*") if "PYTHONPATH" in changes else ROWS  # the stand-in's probes are gone too
    done = stack(*words, **changes)
    assert (done.returncode, done.stdout) == (3, "")
    said = in_three_parts(done.stderr)
    assert what in said["error"]
    assert said["try"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--all", "--feature", "norm.*"), "--all and --feature"),
        (("--feature", "norm.rmsnrm"), "norm.rmsnrm"),
        (("--feature", ""), "no feature is named"),
        (("--feature", " , "), "no feature is named"),
        (("--budget", "soon"), "'soon'"),
        (("--memory", "much"), "'much'"),
        (("--python", ""), "names no interpreter"),
    ],
    ids=["all-and-feature", "feature", "empty", "commas", "budget", "memory", "python"],
)
def test_a_mistake_is_2_with_one_sentence(doctor, words, what):
    done = doctor("warm", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert what in in_three_parts(done.stderr)["error"]


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_row_without_a_probe_is_not_said_to_compile_nothing(stack, words):
    done = stack("--feature", "moe.trtllm_fp8_block", *words)
    assert done.returncode == 1
    assert "it is not known what moe.trtllm_fp8_block would compile" in done.stderr
    assert "compiles nothing" not in done.stderr


def test_ctrl_c_is_130_and_what_was_finished_is_kept(stack):
    stack.module("slow", "sleep 300")
    child = stack.doctor.start(
        "warm", *ROWS, env=stack.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    logs = {name: stack.ops / name / ".ninja_log" for name in "ab"}
    assert wait_for(lambda: all(log.exists() and f"{name}.so" in log.read_text() for name, log in logs.items()))
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (130, "")
    assert "what was finished is kept" in err
    (stack.sources / "slow/slow0.cu").write_text("true\n")
    again = stack(*ROWS)
    assert [line.split(maxsplit=1)[1].split()[0] for line in modules(again)] == ["up", "up", "built"]
