"""What is said of variables that vLLM does not read, and of where sinks can run."""

from __future__ import annotations

import factory as make
import pytest

from fi_doctor.conditions import vllm
from fi_doctor.model import Missing


@pytest.mark.parametrize(
    ("sms", "backend"),
    [((90,), "FLASH_ATTN"), ((86,), "TRITON_ATTN"), ((121,), "TRITON_ATTN"), ((90, 89), "TRITON_ATTN")],
)
def test_sinks_run_on_flash_attention_3_where_all_gpus_have_it(sms, backend):
    gpus = make.gpu_facts(*(make.gpu(sm=sm, index=index) for index, sm in enumerate(sms)))
    assert vllm.sinks_backend(make.facts(gpus=gpus)) == (backend,)


def test_without_a_gpu_no_backend_is_named():
    assert isinstance(vllm.sinks_backend(make.facts(gpus=make.no_gpus())), Missing)
