"""A setting is recommended only where the installed package reads it."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor import knowledge
from fi_doctor.diagnosis.reads import is_read

SETTINGS = knowledge.load().settings


def reads(name, version, **changes):
    return is_read(name, make.facts(packages={"vllm": version}, **changes), SETTINGS)


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("--attention-backend", "0.11.0", False),
        ("--attention-backend", "0.14.1", True),
        ("VLLM_ATTENTION_BACKEND", "0.14.1", True),
        ("VLLM_ATTENTION_BACKEND", "0.15.0", False),
        ("VLLM_USE_FLASHINFER_MOE_FP8", "0.20.2", True),
        ("VLLM_USE_FLASHINFER_MOE_FP8", "0.33.0", False),
        ("VLLM_MXFP4_USE_MARLIN", "0.11.0", False),  # registered and read by nothing
        ("PassConfig.fuse_allreduce_rms", "0.33.0", True),
        ("VLLM_USE_FLASHINFER", "0.33.0", False),  # a fork's
        ("--moe-backend", "0.34.0", False),  # not looked at yet
    ],
)
def test_a_release_reads_what_its_range_says(name, version, expected):
    assert reads(name, version) is expected


def test_without_vllm_nothing_of_it_is_read():
    assert not is_read("VLLM_USE_FLASHINFER_SAMPLER", make.facts(), SETTINGS)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("VLLM_USE_FLASHINFER_SAMPLER", {"variables": {}}),
        ("VLLM_USE_FLASHINFER_SAMPLER", {"unread_variables": ("VLLM_USE_FLASHINFER_SAMPLER",)}),
        ("VLLM_BATCH_INVARIANT", {"other_variables": {}}),
        ("--attention-backend", {"flags": {}}),
        ("AttentionConfig.use_trtllm_attention", {"keys": {}}),
    ],
)
def test_a_source_that_lacks_the_setting_beats_the_range(name, changes):
    assert reads(name, "0.14.1", vllm=make.vllm())
    assert not reads(name, "0.14.1", vllm=make.vllm(**changes))


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("VLLM_USE_FLASHINFER_SAMPLER", "variables"),
        ("--attention-backend", "flags"),
        ("AttentionConfig.use_trtllm_attention", "keys"),
    ],
)
def test_a_source_that_could_not_be_read_leaves_it_to_the_range(name, table):
    assert reads(name, "0.14.1", vllm=make.vllm(**{table: {}}, unreadable={table: "cut off"}))
