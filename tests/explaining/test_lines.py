"""What runners, loggers and collectors put before a line is taken away, and ranks and levels are kept."""

from __future__ import annotations

import pathlib
import re

import pytest

from fi_doctor.explaining import lines
from fi_doctor.explaining.lines import Level, read

SAID = "RuntimeError: no"
LINES = {
    "plain": (SAID, "", Level.NONE),
    "vllm": (
        f"(EngineCore_DP0 pid=488) ERROR 08-13 11:11:59 [core.py:842] {SAID}",
        "EngineCore_DP0 pid=488",
        Level.ERROR,
    ),
    "vllm-worker": (
        f"(Worker_TP1_EP1 pid=36) WARNING 05-27 15:35:13 [multiproc_executor.py:962] {SAID}",
        "Worker_TP1_EP1 pid=36",
        Level.WARNING,
    ),
    "vllm-old": (f"INFO 01-07 11:20:12 selector.py:141] {SAID}", "", Level.INFO),
    "ray-data": (
        f"(MapWorker(MapBatches(vLLMEngineActor)) pid=1202, ip=10.53.120.118) {SAID}",
        "MapWorker(MapBatches(vLLMEngineActor)) pid=1202",
        Level.NONE,
    ),
    "ray": (f"(RayWorkerWrapper pid=356, ip=10.0.0.7) {SAID}", "RayWorkerWrapper pid=356", Level.NONE),
    "sglang": (f"[2025-11-11 15:55:06 TP2] INFO server_args.py:938: {SAID}", "TP2", Level.INFO),
    "sglang-ranks": (f"[2025-11-11 15:55:06 DP1 TP2] {SAID}", "DP1 TP2", Level.NONE),
    "tensorrt-llm": (f"[01/07/2025-11:20:12] [TRT-LLM] [E] {SAID}", "", Level.ERROR),
    "torchrun": (f"[rank3]: {SAID}", "rank3", Level.NONE),
    "mpirun": (f"[1,3]<stderr>: {SAID}", "3", Level.NONE),
    "kubectl": (f"[pod/vllm-0/server] {SAID}", "", Level.NONE),
    "kubectl-times": (f"2025-11-11T15:55:06.123456789Z {SAID}", "", Level.NONE),
    "containerd": (f"2025-11-11T15:55:06.123456789Z stderr F {SAID}", "", Level.NONE),
    "compose": (f"vllm-1  | {SAID}", "", Level.NONE),
    "docker": ('{"log":"RuntimeError: no\\n","stream":"stderr","time":"2025-11-11T15:55:06Z"}', "", Level.NONE),
    "journald": (f"Nov 11 15:55:06 gpu-7 vllm[123]: {SAID}", "", Level.NONE),
    "flashinfer": (f"2025-11-11 15:55:06,123 - WARNING - autotuner.py:486 - {SAID}", "", Level.WARNING),
    "flashinfer-old": (f"2025-11-11 15:55:06,123 - INFO - {SAID}", "", Level.INFO),
    "flashinfer-of-a-rank": (
        f"(Worker_TP1 pid=3) 2025-11-11 15:55:06,123 - ERROR - core.py:48 - {SAID}",
        "Worker_TP1 pid=3",
        Level.ERROR,
    ),
    "quoted": (f"> (Worker_TP1 pid=3) {SAID}", "Worker_TP1 pid=3", Level.NONE),
    "several": (
        f"Nov 11 15:55:06 gpu-7 docker[1]: (Worker_TP0 pid=4) ERROR 08-13 11:11:59 [core.py:8] {SAID}",
        "Worker_TP0 pid=4",
        Level.ERROR,
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_prefixes_are_taken_away(name):
    raw, rank, level = LINES[name]
    line = read("log", 1, raw.encode())
    assert (line.text, line.rank, line.level) == (SAID, rank, level)


def test_the_indentation_of_a_traceback_stays():
    line = read("log", 1, b'ERROR 08-13 11:11:59 [core.py:842]   File "a.py", line 1')
    assert line.text == '  File "a.py", line 1'


def test_what_is_no_utf_8_is_shown_as_escapes():
    assert read("log", 1, b"RuntimeError: \xff\xfe").text == "RuntimeError: \\xff\\xfe"


HEALTHY = sorted((pathlib.Path(__file__).parent / "healthy").glob("*.log"))


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_the_ways_that_are_short_tell_what_the_long_one_does(path, monkeypatch):
    written = [
        *path.read_bytes().splitlines(),
        *(said.encode() for said, *_ in LINES.values()),
        b"(Worker_TP1 pid=9) ERROR 05-26 07:50:27 [a.py:7]     raise",
        b"ERROR 05-26 07:50:27 [a.py:7]: it broke",
    ]
    short = [(lines.read("log", 1, raw), lines.is_record(raw)) for raw in written]
    monkeypatch.setattr(lines, "_VLLM", re.compile("(?!)"))
    monkeypatch.setattr(lines, "_MAYBE", re.compile(""))
    monkeypatch.setattr(lines, "_RECORD", re.compile(b"(?!)"))
    assert short == [(lines.read("log", 1, raw), lines.is_record(raw)) for raw in written]


WARNED = "/v/flashinfer/jit/core.py:12: UserWarning: Could not find nvcc"


@pytest.mark.parametrize(
    ("text", "level"),
    [(WARNED, "warning"), (f"vllm-1  | {WARNED}", "warning"), (f"ERROR 11-20 10:00:00 [x.py:1] {WARNED}", "error")],
)
def test_what_python_warns_of_is_a_warning_unless_a_logger_says_more(text, level):
    assert lines.read("log", 1, text.encode()).level.value == level


def test_an_error_about_a_warning_is_none():
    assert lines.read("log", 1, b"RuntimeError: UserWarning: turned into an error").level.value == ""


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("vllm-1  | x", "vllm-1"),
        ("[pod/vllm-0/main] x", "vllm-0/main"),
        ("vllm-7d9f8b6c5d-x2x7k sidecar x", "vllm-7d9f8b6c5d-x2x7k sidecar"),
        ("vllm-0 vllm-server x", "vllm-0 vllm-server"),
        ("vllm-0 \u203a vllm \u2502 x", "vllm-0 \u203a vllm"),
        ("vllm-0 \u2502 x", "vllm-0"),
        ("[vllm-6b8 vllm] x", "vllm-6b8 vllm"),
        ("x", ""),
        ("gpt-4 is not here", ""),
        ("flashinfer-cubin is not installed", ""),
        ("   12 \u2502 x", ""),
        ("[flash-attn fwd] x", ""),
    ],
)
def test_the_container_that_a_collector_names_is_told(text, origin):
    line = lines.read("log", 1, text.encode())
    assert (line.origin, line.text) == (origin, "x" if origin else text)
