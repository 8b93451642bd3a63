"""A remedy names settings that the release of a log reads, and none of another engine; an older vLLM gets its own."""

from __future__ import annotations

import functools
import re

import pytest
from fault_cases import FAULTS, diagnosed

from fi_doctor.conditions.logs import LogView
from fi_doctor.explaining import naming
from fi_doctor.explaining.suiting import suited
from fi_doctor.knowledge import faults, registry
from fi_doctor.model import LogFact, LogFacts

SETTINGS = faults.settings()
RELEASES = (("vllm", "0.11.0"), ("vllm", "0.17.1"), ("vllm", "0.33.0"), ("sglang", "0.5.18"))
NAME = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+|\b(?:VLLM|SGLANG|SGL)_[A-Z0-9_]+")
# What the tables of settings do not hold, though the engines take it: flags of the front end, and of SGLang's launcher.
FRONT = {
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "--chat-template",
    "--port",
    "--help",
    "--tp",
    "--device",
}  # the last: docker's, too
at = functools.cache(registry.at)


def seen(*names, **releases):
    facts = [LogFact(name="engine", value=name) for name in names]
    facts += [LogFact(name="package", key=key, value=value) for key, value in releases.items()]
    return LogView(LogFacts(facts=tuple(facts)))


def left(line, *names, **releases):
    return naming.left(line, seen(*names, **releases), SETTINGS)


@pytest.mark.parametrize(("engine", "release"), RELEASES)
def test_every_setting_of_every_remedy_is_read_by_the_release(engine, release):
    view, read = seen(engine, **{engine: release}), at(engine, release)
    ours = {*registry.names("vllm"), *registry.names("sglang")}
    wrong = {}
    for fault in FAULTS:
        for mend in fault.fix:
            line = suited(mend, view, SETTINGS)
            for name in NAME.findall(line):
                is_setting = name in ours or not name.startswith("--")
                if is_setting and name not in FRONT and read.find(name) is None:
                    wrong.setdefault(name, []).append((fault.id, line))
    assert wrong == {}


def test_no_remedy_for_sglang_installs_vllm_or_names_its_folders():
    view = seen("sglang", sglang="0.5.18")
    lines = [suited(mend, view, SETTINGS) for fault in FAULTS for mend in fault.fix]
    assert [line for line in lines if re.search(r"\bvllm\b", line) and "sglang" not in line.lower()] == []
    lines = [suited(mend, seen("vllm", vllm="0.33.0"), SETTINGS) for fault in FAULTS for mend in fault.fix]
    assert any("pip install -U vllm" in line for line in lines)
    assert [line for line in lines if "pip install -U sglang" in line] == []


LINES = (
    ("--attention-backend TRITON_ATTN", "export VLLM_ATTENTION_BACKEND=TRITON_ATTN", "--attention-backend TRITON_ATTN"),
    ("--attention-backend auto", "unset VLLM_ATTENTION_BACKEND", "--attention-backend auto"),
    ("--attention-backend TRITON_ATTN, or X", "VLLM_ATTENTION_BACKEND=TRITON_ATTN, or X", ""),
    (
        "Leave --attention-backend and VLLM_ATTENTION_BACKEND out",
        "Leave VLLM_ATTENTION_BACKEND out",
        "Leave --attention-backend out",
    ),
    ("export VLLM_ATTENTION_BACKEND=FLASHINFER", "export VLLM_ATTENTION_BACKEND=FLASHINFER", None),
    ("--linear-backend auto", None, "--linear-backend auto"),
    ("one of --moe-backend marlin or triton, --linear-backend and --block-size", "one of --block-size", ""),
)


@pytest.mark.parametrize(("line", "old", "new"), LINES)
def test_what_is_left_is_what_the_release_reads(line, old, new):
    assert left(line, "vllm", vllm="0.11.0") == (old or "")
    assert left(line, "vllm", vllm="0.33.0") == ("" if new is None else new or line)


@pytest.mark.parametrize("line", [line for line, _, _ in LINES])
def test_a_release_that_is_not_told_and_an_engine_that_is_not_told_keep_all_of_it(line):
    assert left(line, "vllm") == left(line) == line


def test_a_release_before_those_that_were_read_goes_by_the_ranges():
    assert left("--attention-backend FLASHINFER", "vllm", vllm="0.8.5") == "export VLLM_ATTENTION_BACKEND=FLASHINFER"
    assert left("--linear-backend auto", "vllm", vllm="0.8.5") == ""


def test_flags_of_tools_are_kept_and_those_of_the_other_engine_are_not():
    assert left("docker run --gpus all --device /dev/x", "vllm", vllm="0.33.0")
    assert (
        left("another --moe-backend or --moe-runner-backend", "sglang", sglang="0.5.18")
        == "another --moe-runner-backend"
    )
    assert left("--moe-runner-backend triton", "vllm") == ""
    row = "--mem-fraction-static 0.9, --max-mamba-cache-size smaller, --max-running-requests smaller"
    assert left(row, "sglang", sglang="0.5.5") == "--mem-fraction-static 0.9, --max-running-requests smaller"
    assert left("export VLLM_HOST_IP=10.0.0.1", "sglang") == ""


def test_an_answer_says_the_same_line_once_and_with_the_variable_of_the_release():
    name = "vLLM API server version"
    log = "ValueError: Selected backend FLASHINFER is not valid for this configuration."
    for release, wanted, other in (
        ("0.11.0", "export VLLM_ATTENTION_BACKEND=TRITON_ATTN", "--attention-backend"),
        ("0.33.0", "--attention-backend TRITON_ATTN", "VLLM_ATTENTION_BACKEND"),
    ):
        [first, *_] = diagnosed(f"INFO 11-20 02:11:02 [api_server.py:1839] {name} {release}\n{log}").diagnoses
        assert first.remedies.count(wanted) == 1
        assert not any(other in line for line in first.remedies)


def test_the_key_that_switches_the_fusion_off_is_given_to_releases_that_have_it():
    name = "fuse_allreduce_rms"
    for release, is_given in (("0.11.0", False), ("0.12.0", True), ("0.33.0", True)):
        view = seen("vllm", vllm=release)
        lines = [suited(mend, view, SETTINGS) for fault in FAULTS for mend in fault.fix if name in mend.line]
        assert any(lines) is is_given
