"""The benchmark of builds prints the makespan beside the two numbers that bound it."""

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[1] / "benchmarks" / "builds.py"
REPORT = {
    "seconds": 120.0,
    "request": {"features": ["moe.*", "norm.*"], "memory_mib": 16384},
    "facts": {
        "gpus": {"cuda_order": ["GPU-1"], "gpus": [{"name": "NVIDIA H100"}]},
        "system": {"cpus": 16},
        "flashinfer": {"version": "0.7.2.post1"},
    },
    "features": [{"evidence": "verified"}, {"evidence": "declared"}],
    "builds": {
        "jobs": 4, "build_seconds": 100.0, "cpu_seconds": 320.0, "longest": "norm", "longest_seconds": 50.0,
        "peak_mib": 2048, "memory_mib": 4096, "costs": {"norm": {}},
        "modules": {"moe": "not compiled", "moe.bf16": "built", "norm": "built"},
    },
}  # fmt: skip


def printed(path):
    return subprocess.run([sys.executable, SCRIPT, path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("longest_s", "ratio"), [(50.0, "1.25"), (100.0, "1.00")])
def test_the_larger_bound_counts(tmp_path, longest_s, ratio):
    path = tmp_path / "cold.json"
    path.write_text(json.dumps({**REPORT, "builds": {**REPORT["builds"], "longest_seconds": longest_s}}))
    text = printed(path)
    assert "FlashInfer 0.7.2.post1, 4 jobs, moe.* norm.* only, --memory 16g:" in text
    assert f"makespan 100 s = {ratio} x max of" in text
    assert "320 CPU s / 4 jobs = 80 s" in text
    assert "2 of 3 modules built, 1 of them parts of a larger one" in text
    assert "1 of 2 rows ran here" in text


def test_a_check_that_compiled_nothing_is_left_out(tmp_path):
    path = tmp_path / "warm.json"
    path.write_text(json.dumps({**REPORT, "builds": {"modules": {"norm": "cache"}}}))
    assert printed(path) == ""
