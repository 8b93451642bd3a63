"""What lines tell of the machine and the server, from every kind of text that people add to a log."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

TOLD = {
    "vllm collect-env": ("vLLM Version                 : 0.19.1", ("package", "vllm", "0.19.1")),
    "banner": ("Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', x", ("package", "vllm", "0.11.0")),
    "banner-model": ("Initializing a V1 LLM engine (v0.11.0) with config: model='a/b', x", ("model", "", "a/b")),
    "api server": ("vLLM API server version 0.20.2", ("package", "vllm", "0.20.2")),
    "pip3": ("[pip3] flashinfer-python==0.6.6", ("package", "flashinfer-python", "0.6.6")),
    "pip list": ("flashinfer-python                        0.6.4", ("package", "flashinfer-python", "0.6.4")),
    "pip list torch": ("torch                     2.8.0", ("package", "torch", "2.8.0")),
    "cubin": ("flashinfer-python: 0.6.14 (cubin 0.6.13)", ("package", "flashinfer-cubin", "0.6.13")),
    "flashinfer collect-env": (
        "flashinfer                   : 0.7.0.dev1",
        ("package", "flashinfer-python", "0.7.0.dev1"),
    ),
    "absent": ("flashinfer-cubin             : not installed", ("installed", "flashinfer-cubin", "no")),
    "cache": ("/root/.cache/flashinfer/0.6.4/90a/cached_ops/x", ("package", "flashinfer-python", "0.6.4")),
    "cache-arch": ("/root/.cache/flashinfer/0.6.4/90a/cached_ops/x", ("architectures", "", "90a")),
    "torch cuda": ("torch: 2.13.0+cu132", ("torch_cuda", "", "13.2")),
    "torch collect_env": ("CUDA used to build PyTorch: 12.8", ("torch_cuda", "", "12.8")),
    "runtime": ("CUDA runtime version: 12.8.93", ("nvcc", "", "12.8.93")),
    "nvcc": ("Cuda compilation tools, release 12.8, V12.8.93", ("nvcc", "", "12.8.93")),
    "nvcc-path": ("[1/2] /usr/local/cuda-12.6/bin/nvcc -c x.cu", ("nvcc", "", "12.6")),
    "gencode": ("nvcc -gencode=arch=compute_120f,code=sm_120f", ("architectures", "", "120f")),
    "smi": (
        "| NVIDIA-SMI 535.216.01   Driver Version: 535.216.01   CUDA Version: 12.2  |",
        ("driver", "", "535.216.01"),
    ),
    "smi-cuda": (
        "| NVIDIA-SMI 535.216.01   Driver Version: 535.216.01   CUDA Version: 12.2  |",
        ("driver_cuda", "", "12.2"),
    ),
    "smi-gpu": ("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |", ("sm", "", "90")),
    "gpu": ("GPU 0: Tesla T4", ("sm", "", "75")),
    "gpu-order": ("GPU 0 (CUDA order)   : NVIDIA RTX PRO 6000 Blackwell | SM120", ("sm", "", "120")),
    "device name": ("Using default MoE config. E=8,device_name=NVIDIA_GB10.json", ("sm", "", "121")),
    "capability": ("compute capability: 120", ("sm", "", "120")),
    "capability-dot": ("GPU compute capability 8.9", ("sm", "", "89")),
    "capability-pair": ("torch.cuda.get_device_capability(0) -> (8, 9)", ("sm", "", "89")),
    "torch": ("Tesla P4 with CUDA capability sm_61 is not compatible with the current PyTorch", ("sm", "", "61")),
    "message": ("kernel does not support current device sm_120", ("sm", "", "120")),
    "variable": ("export VLLM_USE_FLASHINFER_SAMPLER=1", ("env", "VLLM_USE_FLASHINFER_SAMPLER", "1")),
    "flag": ("vllm serve m --kv-cache-dtype fp8 -tp 2", ("argument", "kv_cache_dtype", "fp8")),
    "arguments": ("non-default args: {'model': 'm', 'kv_cache_dtype': 'fp8'}", ("argument", "kv_cache_dtype", "fp8")),
    "sglang": (
        "server_args=ServerArgs(model_path='m', attention_backend='trtllm_mha')",
        ("argument", "attention_backend", "trtllm_mha"),
    ),
    "python": ('File "/usr/lib/python3.12/site-packages/x.py"', ("python", "", "3.12")),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_line_tells(name):
    text, fact = TOLD[name]
    assert fact in [(one.name, one.key, one.value) for one in diagnosed(text).facts]


@pytest.mark.parametrize("text", ["INFO: 12 requests", "Retrying in 0.6.4 s", "HTTP/1.1 200 OK"])
def test_a_line_without_facts_tells_none(text):
    assert diagnosed(text).facts == ()


ADVICE = (
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "set the environment variable `VLLM_ALLOW_LONG_MAX_MODEL_LEN=1`",
    "You can use float16 instead by setting --dtype=half",
    "for example: --dtype=half",
    "Try increasing --gpu-memory-utilization 0.95 or --max-model-len 4096",
    "Please install flashinfer-python==0.6.4",
    "foo needs flashinfer-python 0.6.4 or newer",
    "FP8 requires compute capability 8.9",
    "only for GPUs with compute capability 9.0 or higher",
    "a list of GPUs with CUDA capability sm_61 and newer",
)


@pytest.mark.parametrize("text", ADVICE)
def test_advice_and_what_is_asked_for_are_no_facts(text):
    assert diagnosed(text).facts == ()


def test_the_name_of_a_type_is_no_argument():
    assert [one.name for one in diagnosed("server_args=ServerArgs(").facts] == ["engine"]


def test_what_stands_beside_a_demand_is_a_fact():
    facts = diagnosed("ERROR: vllm 0.11.0 requires torch==2.8.0, but you have torch 2.9.0 which is incompatible").facts
    assert [(one.key, one.value) for one in facts if one.name == "package"] == [("vllm", "0.11.0"), ("torch", "2.9.0")]


def test_each_fact_has_its_line():
    [fact] = [one for one in diagnosed("x\ny\nGPU 0: Tesla T4").facts if one.name == "gpu"]
    assert (fact.file, fact.line) == ("log", 4)
