"""What is said of variables that vLLM does not read, and of where sinks can run."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor.conditions import vllm
from fi_doctor.model import Missing


def unread(environment, **changes):
    return vllm.unread_variables(make.facts(environment=environment, vllm=make.vllm(**changes)))


def test_a_variable_that_is_not_registered_or_registered_for_nothing_is_unread():
    names = ("VLLM_ATTENTION_BACKEND", "VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB")
    assert unread(dict.fromkeys(names, "x")) == names


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_USE_FLASHINFER_SAMPLER", "1"),
        ("VLLM_BATCH_INVARIANT", "1"),
        ("VLLM_USE_FLASHINFER", "1"),
        ("FLASHINFER_NO_SUCH", "1"),
        ("VLLM_BUILD_COMMIT", "abc"),
        ("VLLM_TARGET_DEVICE", "cuda"),
        ("VLLM_ROUTER_SERVICE_HOST", "10.0.0.7"),
        ("VLLM_ROUTER_SERVICE_PORT_HTTP", "80"),
        ("VLLM_ROUTER_PORT_80_TCP_ADDR", "10.0.0.7"),
        ("VLLM_ROUTER_PORT", "tcp://10.0.0.7:80"),
    ],
)
def test_what_is_read_or_meant_for_others_is_not_unread(name, value):
    assert unread({name: value}) == ()


@pytest.mark.parametrize("table", ["variables", "other_variables", "unread_variables"])
def test_of_a_source_that_could_not_be_read_nothing_is_said(table):
    assert unread({"VLLM_NO_SUCH": "1"}, unreadable={table: "cut off"}) == Missing(reason="cut off")


def test_without_vllm_nothing_is_said_of_its_variables_but_of_forks():
    facts = make.facts(environment={"VLLM_NO_SUCH": "1", "VLLM_USE_FLASHINFER": "1"})
    assert isinstance(vllm.unread_variables(facts), Missing)
    assert vllm.fork_variables(facts) == ("VLLM_USE_FLASHINFER",)


def test_a_fork_that_is_installed_reads_its_own_variables():
    facts = make.facts(
        environment={"VLLM_USE_FLASHINFER": "1"}, vllm=make.vllm(variables={"VLLM_USE_FLASHINFER": "envs.py:9"})
    )
    assert vllm.fork_variables(facts) == ()


@pytest.mark.parametrize(
    ("sms", "backend"),
    [((90,), "FLASH_ATTN"), ((86,), "TRITON_ATTN"), ((121,), "TRITON_ATTN"), ((90, 89), "TRITON_ATTN")],
)
def test_sinks_run_on_flash_attention_3_where_all_gpus_have_it(sms, backend):
    gpus = make.gpu_facts(*(make.gpu(sm=sm, index=index) for index, sm in enumerate(sms)))
    assert vllm.sinks_backend(make.facts(gpus=gpus)) == (backend,)


def test_without_a_gpu_no_backend_is_named():
    assert isinstance(vllm.sinks_backend(make.facts(gpus=make.no_gpus())), Missing)
