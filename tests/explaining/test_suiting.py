"""Users of other engines are offered no flags of vLLM's or SGLang's; those of vLLM and SGLang keep theirs."""

from __future__ import annotations

import re

import pytest
from fault_cases import FAULTS, diagnosed

from fi_doctor.conditions.logs import LogView
from fi_doctor.explaining.suiting import suited
from fi_doctor.knowledge import faults
from fi_doctor.model import LogFact, LogFacts

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
SETTINGS = faults.settings()
OTHERS = {
    "llama.cpp": "llama_model_loader: loaded meta data with 30 key-value pairs",
    "ollama": 'time=2025-11-28T10:01:00Z level=INFO source=server.go:1 msg="starting runner"',
    "text-generation-inference": "2025-11-28T10:01:00Z INFO text_generation_launcher: Starting Webserver",
    "lmdeploy": '  File "/opt/lmdeploy/lmdeploy/serve/api.py", line 1, in serve',
    "xinference": '  File "/v/site-packages/xinference/core/model.py", line 1, in load',
    "tritonserver": "I1120 10:00:00.123456 1 model_lifecycle.cc:462] loading: m:1",
}
NONE = (
    "asked about ollama and lmdeploy",
    "INFO 11-28 10:01:00 [chat.py:40] xinference is another server",
    '  File "/v/site-packages/vllm/model_executor/layers/quantization/gguf.py", line 1, in ggml_dequantize',
    "source=main.go",
)


def engines(text):
    return [fact.value for fact in diagnosed(text).facts if fact.name == "engine"]


def offered(*names):
    view = LogView(LogFacts(facts=tuple(LogFact(name="engine", value=name) for name in names)))
    return [line for fault in FAULTS for mend in fault.fix if (line := suited(mend, view, SETTINGS))]


@pytest.mark.parametrize("engine", OTHERS)
def test_another_engine_is_known_by_its_lines(engine):
    assert engines(OTHERS[engine]) == [engine]


@pytest.mark.parametrize("text", NONE)
def test_what_only_names_another_engine_tells_none(text):
    assert not {*engines(text)} & {*OTHERS}


@pytest.mark.parametrize("engine", OTHERS)
def test_no_remedy_has_flags_or_variables_of_vllm(engine):
    wrong = (
        r"--(?:attention|moe|linear|kv-cache|gpu-memory|mem-fraction|tensor-parallel|enforce-eager)|\bVLLM_|vllm serve"
    )
    assert [line for line in offered(engine) if re.search(wrong, line)] == []
    assert "nvidia-smi shows who else holds memory" in diagnosed(f"{OTHERS[engine]}\n{MEMORY}").diagnoses[0].remedies


def test_what_runs_vllm_within_is_offered_its_variables_and_none_of_its_flags():
    lines = offered("vllm", "xinference")
    assert [line for line in lines if re.search(r"--(?:enforce-eager|kv-cache-dtype|attention-backend)", line)] == []
    assert any("VLLM_USE_FLASHINFER_SAMPLER" in line for line in lines)


@pytest.mark.parametrize("names", [(), ("vllm",), ("vllm", "llama.cpp")])
def test_vllm_and_who_tells_no_engine_keep_them(names):
    lines = offered(*names)
    assert "--enforce-eager" in lines
    assert any("--tensor-parallel-size" in line for line in lines)


def test_tools_keep_their_flags():
    assert any("pip install" in line and "--index-url" in line for line in offered("lmdeploy"))
