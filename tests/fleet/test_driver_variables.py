"""What a driver's variables are for its workers: handed on by vLLM, held back by the user, or nobody's."""

import pytest
from msgspec.structs import replace

from fi_doctor.fleet import variables
from fi_doctor.knowledge import examples
from fi_doctor.model import RayCopies
from fi_doctor.reports import document

COPIES = RayCopies(prefixes=("NCCL_", "VLLM_"), names=("PYTHONHASHSEED",), source="ray/ray_env.py:36")


@pytest.mark.parametrize(
    ("name", "environment", "kept_back", "is_copied"),
    [
        ("NCCL_DEBUG", {}, (), True),
        ("NCCL_DEBUG", {}, ("NCCL_DEBUG",), False),
        ("FLASHINFER_NVCC", {}, (), False),
        ("FLASHINFER_NVCC", {"VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": "CC, FLASHINFER_NVCC"}, (), True),
        ("FLASHINFER_NVCC", {"VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY": "FLASHINFER_"}, (), True),
        ("PYTHONHASHSEED", {}, (), True),
        ("MAX_JOBS", {}, ("CC",), True),  # vLLM registers it
    ],
)
def test_whether_vllm_hands_a_variable_to_ray_workers(name, environment, kept_back, is_copied):
    report = document.read(examples.data("h200"), "h200")
    copies = replace(COPIES, kept_back=kept_back)
    facts = replace(report.facts, environment=environment, ray_copies=copies)
    assert variables._is_copied(name, replace(report, facts=facts)) is is_copied
