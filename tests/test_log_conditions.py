"""What conditions of faults can ask: what a log tells, and what its facts are to each other."""

from __future__ import annotations

import pytest

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.model import LogFact, LogFacts


def view(*told, captured=None, seen=()):
    """Facts as (name, value) or (name, key, value), each of a line of its own."""
    facts = tuple(
        LogFact(name=one[0], key=one[1] if len(one) > 2 else "", value=one[-1], file="log", line=line)
        for line, one in enumerate(told, 1)
    )
    return LogView(LogFacts(facts=facts), captured or {}, frozenset(seen))


YES, NO, UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
CASES = {
    "number": ({"sm": ">=120"}, view(("sm", "121")), YES),
    "number of another": ({"sm": ">=120"}, view(("sm", "90")), NO),
    "not told": ({"sm": ">=120"}, view(), UNKNOWN),
    "any of the GPUs": ({"sm": ">=120"}, view(("sm", "90"), ("sm", "120")), YES),
    "package": ({"package": {"vllm": "<0.16"}}, view(("package", "vllm", "0.15.1")), YES),
    "the first line counts": (
        {"package": {"vllm": "<0.16"}},
        view(("package", "vllm", "0.17"), ("package", "vllm", "0.15")),
        NO,
    ),
    "no version": ({"package": {"vllm": "<0.16"}}, view(("package", "vllm", "main")), UNKNOWN),
    "installed by its version": ({"installed": {"vllm": True}}, view(("package", "vllm", "0.15")), YES),
    "not installed": ({"installed": {"vllm": True}}, view(("installed", "vllm", "no")), NO),
    "variable": ({"env": {"CUDA_HOME": {"matches": "^:"}}}, view(("env", "CUDA_HOME", ":/usr")), YES),
    "argument": ({"argument": {"moe_backend": "marlin"}}, view(("argument", "moe_backend", "triton")), NO),
    "captured": ({"captured": {"arch": "100a"}}, view(captured={"arch": ("100a",)}), YES),
    "captured number": ({"captured_number": {"size": ">=8"}}, view(captured={"size": ("9",)}), YES),
    "captured nothing": ({"captured_version": {"found": "<2"}}, view(), UNKNOWN),
    "seen": ({"seen": {"frame": True}}, view(seen=("frame",)), YES),
    "not seen": ({"seen": {"frame": True}}, view(), NO),
    "missing": ({"missing": "nvcc"}, view(), YES),
    "the driver's CUDA by its branch": ({"driver_cuda": "<12.8"}, view(("driver", "550.163.01")), YES),
    "and not as compat has it": (
        {"driver_cuda": "<12.8"},
        view(("driver_cuda", "12.9"), ("driver", "535.129.03")),
        YES,
    ),
    "a branch that is not known": ({"driver_cuda": ">=13"}, view(("driver", "700.1"), ("driver_cuda", "14.0")), YES),
    "toolkit and driver": ({"nvcc_newer_than_driver": True}, view(("nvcc", "12.9"), ("driver", "570.1")), YES),
    "of one major": ({"nvcc_major_newer_than_driver": True}, view(("nvcc", "12.9"), ("driver", "570.1")), NO),
    "torch and driver": (
        {"torch_cuda_major_newer_than_driver": True},
        view(("torch_cuda", "13.0"), ("driver", "570.1")),
        YES,
    ),
    "toolkit and torch": ({"nvcc_differs_from_torch": True}, view(("nvcc", "12.8.93"), ("torch_cuda", "12.8")), NO),
    "toolkit alone": ({"nvcc_differs_from_torch": True}, view(("nvcc", "12.8.93")), UNKNOWN),
    "companion": (
        {"differs_from_flashinfer": {"flashinfer-cubin": True}},
        view(("package", "flashinfer-python", "0.6.14"), ("package", "flashinfer-cubin", "0.6.13")),
        YES,
    ),
    "companion for a CUDA": (
        {"differs_from_flashinfer": {"flashinfer-jit-cache": True}},
        view(("package", "flashinfer-python", "0.6.14"), ("package", "flashinfer-jit-cache", "0.6.14+cu130")),
        NO,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_condition_over_a_log(name):
    condition, looked_at, truth = CASES[name]
    assert LOG.check(condition, "when") == []
    assert LOG.holds(condition, looked_at) is truth


def test_what_cannot_be_asked_is_told_with_what_is_nearest():
    assert LOG.check({"torch_cud": ">=12"}, "when") == ["when.torch_cud: no such subject; the nearest is 'torch_cuda'"]
    assert LOG.check({"outcome": {"probe": "*"}}, "when") != []
