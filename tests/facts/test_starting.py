"""vLLM's log lines are read as each release writes them, and what a tiny model's layers hold comes before them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from fi_doctor.facts import starting
from fi_doctor.facts.start_log import read_log
from fi_doctor.inside import starting as script
from fi_doctor.model import Evidence, Missing

CUDA = "platforms/cuda.py"
ORACLE = "model_executor/layers/fused_moe/oracle"
LINEAR = "model_executor/kernels/linear/__init__.py"
SAMPLER = "v1/sample/ops/topk_topp_sampler.py"
MXFP4 = "model_executor/layers/quantization/mxfp4.py"
ATTENTION = "Using %s attention backend out of potential backends: %s"
FORCED = "Using %s backend."
SAMPLES = "Using FlashInfer for top-p & top-k sampling."
SELECTED = "Selected %s for %s"
NVFP4 = "Using %s for NVFP4 GEMM"
FP8_OLD = "Using {backend_name} backend for FP8 MoE"
FP8_MOE = "Using {backend.value} Fp8 MoE backend out "
UNQUANTIZED = "Using {backend.value} Unquantized MoE backend out "
NVFP4_MOE = "Using '{backend.value}' NvFp4 MoE backend out "
NVFP4_OLD = "Using {backend.value} backend for NvFp4 MoE"
UNAVAILABLE = "FlashInfer top-p/top-k sampling unavailable: %s; falling back. "
MXFP4_MOE = "Using '{backend.value}' Mxfp4 MoE backend."
OF_SM90 = "Using FlashInfer MXFP4 BF16 backend for SM90"
# Release, file below vllm/, the format string that stands there, what is filled in, operator and name that are read.
LINES = [
    ("0.14.1", CUDA, ATTENTION, ("FLASH_ATTN", "('FLASH_ATTN', 'FLASHINFER')"), "attention", "FLASH_ATTN"),
    ("0.20.2", CUDA, ATTENTION, ("FLASHINFER", "['FLASHINFER']"), "attention", "FLASHINFER"),
    ("0.28.0", CUDA, ATTENTION, ("FLASHINFER_MLA", "['FLASHINFER_MLA']"), "attention", "FLASHINFER_MLA"),
    ("0.33.0", CUDA, ATTENTION, ("TRITON_ATTN", "['TRITON_ATTN']"), "attention", "TRITON_ATTN"),
    ("0.14.1", CUDA, FORCED, ("AttentionBackendEnum.FLASHINFER",), "attention", "FLASHINFER"),
    ("0.33.0", CUDA, FORCED, ("AttentionBackendEnum.FLASH_ATTN",), "attention", "FLASH_ATTN"),
    ("0.14.1", f"{ORACLE}/fp8.py", FP8_OLD, "FlashInfer CUTLASS", "moe", "FLASHINFER_CUTLASS"),
    ("0.14.1", f"{ORACLE}/fp8.py", FP8_OLD, "Triton", "moe", "TRITON"),
    (
        "0.14.1",
        f"{ORACLE}/nvfp4.py",
        "Using {backend.value} backend for NvFp4 MoE",
        "vLLM CUTASS",
        "moe",
        "VLLM_CUTLASS",
    ),
    ("0.14.1", MXFP4, OF_SM90, None, "moe", "SM90_FI_MXFP4_BF16"),
    ("0.14.1", MXFP4, "Using Marlin backend", None, "moe", "MARLIN"),
    ("0.20.2", f"{ORACLE}/fp8.py", FP8_MOE, "DEEPGEMM", "moe", "DEEPGEMM"),
    ("0.20.2", f"{ORACLE}/unquantized.py", UNQUANTIZED, "FlashInfer CUTLASS", "moe", "FLASHINFER_CUTLASS"),
    ("0.20.2", f"{ORACLE}/mxfp4.py", MXFP4_MOE, "MARLIN", "moe", "MARLIN"),
    ("0.28.0", f"{ORACLE}/nvfp4.py", NVFP4_MOE, "FLASHINFER_TRTLLM", "moe", "FLASHINFER_TRTLLM"),
    ("0.28.0", f"{ORACLE}/unquantized.py", UNQUANTIZED, "TRITON", "moe", "TRITON"),
    ("0.33.0", f"{ORACLE}/mxfp4.py", MXFP4_MOE, "TRITON", "moe", "TRITON"),
    ("0.33.0", f"{ORACLE}/fp8.py", FP8_MOE, "FLASHINFER_CUTLASS", "moe", "FLASHINFER_CUTLASS"),
    ("0.20.2", LINEAR, SELECTED, ("CutlassFP8ScaledMMLinearKernel", "Fp8LinearMethod"), "linear", None),
    ("0.28.0", LINEAR, SELECTED, ("DeepGemmFp8BlockScaledMMKernel", "Fp8LinearMethod"), "linear", None),
    ("0.33.0", LINEAR, SELECTED, ("FlashInferFP8ScaledMMLinearKernel", "Fp8LinearMethod"), "linear", None),
    ("0.33.0", LINEAR, NVFP4, ("FlashInferCutlassNvFp4LinearKernel",), "linear", None),
    ("0.14.1", SAMPLER, SAMPLES, None, "sampling", "FLASHINFER"),
    ("0.20.2", SAMPLER, "FlashInfer top-p/top-k sampling is available but disabled ", None, "sampling", "PYTORCH"),
    ("0.28.0", SAMPLER, "FlashInfer top-p/top-k sampling disabled via ", None, "sampling", "PYTORCH"),
    (
        "0.33.0",
        SAMPLER,
        "FlashInfer top-p/top-k sampling unavailable: %s; falling back. ",
        ("x",),
        "sampling",
        "PYTORCH",
    ),
    ("0.33.0", SAMPLER, SAMPLES, None, "sampling", "FLASHINFER"),
]


def filled(text, given):
    """A format string as its release fills it in, behind what its formatter writes (vllm/logger.py:28, 0.33.0)."""
    place = "{backend_name}" if "{backend_name}" in text else "{backend.value}"
    said = text % given if isinstance(given, tuple) else text.replace(place, given) if given else text
    return f"(EngineCore_DP0 pid=7) INFO 11-29 16:45:28 [file.py:352] {said}"


@pytest.mark.parametrize(
    ("text", "given", "operator", "name"), [line[2:] for line in LINES], ids=lambda part: str(part)[:30]
)
def test_a_line_names_what_was_taken(text, given, operator, name):
    assert read_log(filled(text, given)) == {operator: (name or given[0],)}


@pytest.mark.parametrize(
    "said",
    [
        "Using NHD KV cache layout for FLASHINFER backend.",  # v1/attention/selector.py:113 (0.14.1)
        "Using FLASHINFER MLA prefill backend.",  # v1/attention/backends/mla/prefill/selector.py:106 (0.33.0)
        "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",  # platforms/cuda.py:549 (0.33.0)
        "Using MoEPrepareAndFinalizeNoEP",  # fused_moe/oracle/fp8.py:880 (0.33.0)
        "Using CPU all reduce to synchronize DP padding between ranks.",  # v1/worker/dp_utils.py:50 (0.33.0)
    ],
)
def test_other_lines_name_nothing(said):
    assert read_log(filled(said.replace("%", "%%"), None)) == {}


LOG = "\n".join((filled(ATTENTION, ("FLASH_ATTN", "[]")), filled(SAMPLES, None)))
HELD = {"operator": "attention", "chosen": "FLASHINFER", "layers": "window layers"}


def answered(**given):
    return json.dumps({"phase": "generated", "vllm": "0.33.0", "choices": [], **given}).encode()


def test_what_layers_hold_comes_before_the_log_which_adds_the_rest():
    seen = starting.read(answered(choices=[HELD]), LOG, "")
    told = [(one.operator, one.layers, one.chosen, one.is_flashinfer, one.evidence) for one in seen.choices]
    assert told == [
        ("attention", "window layers", "FLASHINFER", True, Evidence.RAN),
        ("sampling", "all", "FLASHINFER", True, Evidence.RAN),
    ]
    assert (seen.vllm, seen.fault) == ("0.33.0", "")


def test_of_a_process_that_died_the_log_tells_how_far_it_came():
    seen = starting.read(answered(phase="starting"), LOG, "its process ended by 11")
    assert [(one.operator, one.chosen, one.evidence) for one in seen.choices] == [
        ("attention", "FLASH_ATTN", Evidence.BUILT),
        ("sampling", "FLASHINFER", Evidence.BUILT),
    ]
    assert seen.fault == "its process ended by 11"


@pytest.mark.parametrize(
    ("data", "ending", "why"),
    [
        (answered(phase="starting", error="RuntimeError: no GPU"), "", "while starting: RuntimeError: no GPU"),
        (b"", "it did not end within 900 s", ": it did not end within 900 s"),
        (answered(), "", ": it said nothing of its choices"),
        (b"{", "", "what was read of the tiny model is no answer: Input data was truncated"),
    ],
)
def test_what_told_nothing_is_missing_with_the_reason(data, ending, why):
    seen = starting.read(data, "", ending)
    assert isinstance(seen, Missing)
    assert seen.reason.endswith(why)


# What stands for vLLM: as much of it as the script calls.
VLLM = """
import os, sys, types

__version__ = "0.0"
platforms = types.ModuleType("vllm.platforms")
platforms.current_platform = types.SimpleNamespace(device_type=os.environ.get("DEVICE", "cuda"))
sys.modules["vllm.platforms"] = platforms


class SamplingParams:
    def __init__(self, **_):
        pass


class LLM:
    def __init__(self, **given):
        assert os.path.isfile(os.path.join(given["model"], "config.json")) and given["load_format"] == "dummy"
        assert str(given.get("max_model_len")) == os.environ.get("LONGEST", "None")

    def collective_rpc(self, work):
        rule = types.SimpleNamespace(_forward_method=self.generate)
        layer = type("GatedDeltaNet", (), {"A_log": 1, "chunk_gated_delta_rule": rule})()
        model = types.SimpleNamespace(named_modules=lambda: [("layers.0", layer)])
        return [work(types.SimpleNamespace(get_model=lambda: model))]

    def generate(self, *_, **__):
        if os.environ.get("DIES"):
            os.abort()
"""


@pytest.mark.parametrize(
    ("variables", "config", "phase", "error"),
    [
        ({}, {}, "generated", None),  # vLLM refuses a length above the model's own default, which it knows
        ({"LONGEST": "2048"}, {"max_position_embeddings": 2048}, "generated", None),
        ({"LONGEST": "8192"}, {"max_position_embeddings": 131072}, "generated", None),
        ({"DIES": "1"}, {}, "started", None),
        ({"DEVICE": ""}, {}, "starting", "RuntimeError: vLLM finds no GPU: its platform is SimpleNamespace"),
    ],
)
def test_the_script_says_how_far_it_came(tmp_path, variables, config, phase, error):
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text(VLLM)
    asked, written = tmp_path / "request.json", tmp_path / "answer.json"
    asked.write_text(json.dumps({"config": {"num_hidden_layers": 2, **config}, "engine": {}, "fresh": True}))
    subprocess.run(
        [sys.executable, str(pathlib.Path(script.__file__)), str(asked), str(written)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path), **variables},
        check=False,
        capture_output=True,
        timeout=60,
    )
    answer = json.loads(written.read_text())
    assert (answer["phase"], answer.get("error")) == (phase, error)
    if phase != "starting":
        assert [one["chosen"] for one in answer["choices"]] == ["generate"]
