"""Logs of servers that work: no fault is seen in them, and what they say that they use is told.

They are made from the format strings of the packages' sources (vLLM 0.14.1, 0.20.2 and 0.33.0, SGLang 0.5.10,
FlashInfer 0.6.4, nvcc and ninja), with the prefixes that their loggers write.
"""

from __future__ import annotations

import io
import pathlib

import pytest

from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.knowledge import faults
from fi_doctor.model import Part

LOGS = sorted((pathlib.Path(__file__).parent / "healthy").glob("*.log"))
USED = {
    "vllm-0.14.1-b200": {
        Part.ATTENTION: "FLASHINFER_MLA",
        Part.MOE: "Flashinfer TRTLLM",
        Part.SAMPLER: "FlashInfer",
        Part.KV_CACHE: "fp8",
        Part.PRECISION: "KV cache scaling factor 1.0",
        Part.AUTOTUNE: "Autotuning process starts",
    },
    "vllm-0.20.2-rtx5090": {
        Part.ATTENTION: "TRITON_ATTN",
        Part.MOE: "MARLIN",
        Part.PRECISION: "does not have native support for FP8 computation",
        Part.AUTOTUNE: "Skipping FlashInfer autotune",
    },
    "vllm-0.33.0-h200": {
        Part.ATTENTION: "FLASH_ATTN",
        Part.MOE: "FLASHINFER_MXFP4_BF16",
        Part.SAMPLER: "FlashInfer",
        Part.ALL_REDUCE: "flashinfer allreduce backend: trtllm",
        Part.AUTOTUNE: "FlashInfer autotune cache",
    },
    "sglang-0.5.10-b200": {
        Part.ATTENTION: "trtllm_mha",
        Part.MOE: "flashinfer_mxfp4",
        Part.ALL_REDUCE: "FlashInfer AllReduce Fusion",
        Part.AUTOTUNE: "Running FlashInfer autotune",
    },
    "jit-build-h100": {Part.ATTENTION: "FLASHINFER"},
}


def told(path):
    with path.open("rb") as file:
        return diagnose([Source(path.name, file)])


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_no_fault_and_no_error_is_seen_in_a_log_of_a_server_that_works(path):
    found = told(path)
    assert [one.rule for one in found.diagnoses] == []
    assert [error.text for error in found.errors] == []
    assert found.answer == "no error is told, and no sign of a fault that is known"


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_what_the_server_uses_is_told(path):
    first = {}
    for one in told(path).used:
        first.setdefault(one.part, one.choice)
    assert first == USED[path.stem]


def test_there_are_five_logs():
    assert len(LOGS) == len(USED) == 5


def test_no_literal_of_a_fault_is_what_every_line_of_a_log_has():
    """A literal in many healthy lines would make the search slow, and its fault a matter of chance."""
    lines = [line for path in LOGS for line in path.read_bytes().splitlines()]
    often = {literal for literal in faults.literals() if sum(literal in line for line in lines) > len(lines) // 10}
    assert often == set()


def test_a_log_without_a_line_tells_nothing():
    assert diagnose([Source("log", io.BytesIO(b""))]).answer == "there is nothing to read"


def test_where_a_server_does_without_flashinfer_it_is_said_what_would_tell_whether_it_must():
    [help_] = told(LOGS[[path.stem for path in LOGS].index("vllm-0.20.2-rtx5090")]).helps
    assert "TRITON_ATTN for attention and MARLIN for moe" in help_
    assert "fi-doctor check --feature 'attention.*' --feature 'moe.*'" in help_
