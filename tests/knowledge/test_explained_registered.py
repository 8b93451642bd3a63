"""Every variable, flag and key that releases register is explained: what it takes, and which releases have it."""

from __future__ import annotations

import pytest

from fi_doctor.knowledge import explained_registered, registry


def test_a_flag_says_its_newest_choices_and_what_older_releases_lack():
    [text] = explained_registered.texts("--moe-backend")
    assert text.startswith("--moe-backend (flag of vLLM)\n\nKnown to vLLM 0.17.0 to 0.33.0; the newest")
    assert 'In 0.33.0:\n  type: MoEBackend\n  default: "auto"\n' in text
    assert "  sets: KernelConfig.moe_backend\n  registered in: engine/arg_utils.py:1845\n" in text
    assert "In 0.32.0:\n  choices: without aiter_triton_mxfp4_mxfp4\n" in text


def test_a_variable_that_ended_says_what_stands_for_it():
    [text] = explained_registered.texts("VLLM_ATTENTION_BACKEND")
    assert "Known to vLLM 0.11.0 to 0.14.1; 0.33.0 has it no more." in text
    assert "In vLLM >=0.15,<0.34: --attention-backend stands for it" in text


@pytest.mark.parametrize(
    ("name", "said"),
    {
        "-tp": "sets: ParallelConfig.tensor_parallel_size",
        "--no-enable-prefix-caching": "also written: --no-enable-prefix-caching",
        "AudioDummyOptions.count": "(key of a configuration class of vLLM)",
        "VLLM_USE_FLASHINFER_SAMPLER": "takes: 0 or 1; a word raises",
        "SGLANG_ENABLE_JIT_DEEPGEMM": "(variable of SGLang)",
        "FLASHINFER_WORKSPACE_BASE": "(variable of FlashInfer)",
    }.items(),
)
def test_it_answers_for_short_forms_opposites_and_what_a_class_inherits(name, said):
    assert said in "\n".join(explained_registered.texts(name))


def test_no_name_is_without_a_text():
    names = explained_registered.names()
    assert len(names) > 3000
    assert [name for name in names[::40] if not explained_registered.texts(name)] == []  # all of them take seconds
    assert [name for name in names if not explained_registered.is_like_one(name)] == []


def test_nothing_is_said_of_what_no_release_has():
    assert explained_registered.texts("VLLM_NEVER_WAS") == []
    assert explained_registered.texts("norm.rmsnorm") == []


def test_stretches_are_those_of_the_releases_that_have_it():
    for name in ("--moe-backend", "VLLM_USE_FLASHINFER_SAMPLER", "-tp"):
        several = registry.spans(name, "vllm")
        known = registry.history(name).known
        assert (several[0].first, several[-1].last) == (known[0], known[-1])
