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


BLACKWELL = """\
[2026-11-01 10:00:00] INFO GPU 0: NVIDIA B200 sglang 0.5.5 compute capability: 10.0
[2026-11-01 10:00:01 TP0] Enable FlashInfer AllReduce Fusion on sm100 for GptOssForCausalLM
[2026-11-01 10:00:02 TP0] Shuffling MoE weights for FlashInfer MXFP4 moe kernel (layer: model.layers.0.mlp.experts)
"""
CONSUMER = "compute capability: 12.0\nsglang 0.5.5\nValueError: something new\n"


def together(**logs):
    return diagnose([Source(f"{name}.log", io.BytesIO(text.encode())) for name, text in logs.items()])


def test_what_another_machine_s_log_tells_of_the_same_does_not_count():
    assert "sm12x-routed-to-sm10x-module" not in {one.cause for one in together(a=CONSUMER, b=BLACKWELL).diagnoses}
    assert "sm12x-routed-to-sm10x-module" in {
        one.cause for one in together(b=BLACKWELL.replace("10.0\n", "12.0\n")).diagnoses
    }


def test_what_only_another_log_tells_counts():
    """Ranks of one server write to several files: versions in one, the crash in another."""
    crash = "RuntimeError: No supported CUDA architectures found for major versions [12].\n"
    facts = "CUDA toolkit: 12.4\ncompute capability: 12.1\nflashinfer-python: 0.6.4\n"
    apart, whole = together(a=facts, b=crash).diagnoses, together(b=facts + crash).diagnoses
    assert [(one.cause, one.confidence) for one in apart] == [(one.cause, one.confidence) for one in whole] != []
