"""What is given with a log fills in what the log leaves open, and is told where it contradicts it."""

from __future__ import annotations

import io

from fi_doctor.explaining.diagnose import Source, diagnose

LOG = """\
CUDA toolkit: 13.0.1
compute capability: 12.1
RuntimeError: No supported CUDA architectures found for major versions [12].
"""
OTHER = "CUDA toolkit: 12.4\ncompute capability: 9.0\nflashinfer-python: 0.5.3\n"


def told(log, environment):
    sources = [
        Source("env.txt", io.BytesIO(environment.encode()), is_environment=True),
        Source("log", io.BytesIO(log.encode())),
    ]
    return diagnose(sources)


def test_what_the_log_tells_counts_and_a_contradiction_is_told_with_its_file():
    found = told(LOG, OTHER)
    assert found.diagnoses == told(LOG, "").diagnoses == ()
    assert any(
        one.startswith("line 1 of env.txt has nvcc 12.4, and line 1 of the log tells 13.0.1") for one in found.helps
    )
    assert any("has sm 90, and line 2" in one for one in found.helps)


def test_what_the_log_leaves_open_is_filled_in_and_its_file_is_named():
    log = LOG.splitlines()[-1]
    first = told(log, "CUDA toolkit: 12.4\ncompute capability: 12.1").diagnoses[0]
    assert first.confidence.value == "high"
    assert "nvcc is 12.4 (line 1 of env.txt)" in first.reason
    assert not told(log, "CUDA toolkit: 12.4").helps[0].startswith("line")


def test_a_release_of_three_parts_is_the_finer_one_and_no_contradiction():
    found = told(LOG.replace("13.0.1", "12.8"), "CUDA toolkit: 12.8.93")
    assert not any("another machine" in one for one in found.helps)
    assert "nvcc is 12.8.93 (line 1 of env.txt)" in found.diagnoses[0].reason
