"""Whose an error is that any program brings about: its line, its traceback and the builder near it say."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed

from fi_doctor.explaining import tying
from fi_doctor.model import Confidence

ERROR = "(EngineCore_DP0 pid=77) ERROR 11-20 02:11:22 [core.py:866] "
INFO = "(EngineCore_DP0 pid=77) INFO 11-20 02:11:20 "
HEALTHY = f"{INFO}flashinfer.jit: Finished loading JIT ops: norm"
NO_CUDART = f"{ERROR}OSError: libcudart.so.12: cannot open shared object file: No such file or directory"
NO_NVCC = f"{ERROR}/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found"
NO_HEADER = "fatal error: cuda_fp8.h: No such file or directory"
OTHERS = {
    "a frame": (f'{ERROR}  File "/v/site-packages/torchaudio/_extension.py", line 3\n{NO_CUDART}', "torchaudio"),
    "a path in the line": (f"{ERROR}/v/site-packages/causal_conv1d/csrc/a.cu:1:10: {NO_HEADER}", "causal_conv1d"),
    "a cache in the line": (
        f"{ERROR}OSError: /root/.cache/vllm/torch_compile_cache/x.so: {NO_CUDART.partition('OSError: ')[2]}",
        "vllm",
    ),
    "torch's builder": (
        (
            f'{ERROR}  File "/v/torch/utils/cpp_extension.py", line 2600, in _run_ninja_build\n'
            f"{ERROR}RuntimeError: Error building extension 'rwkv_cuda': FAILED: q.cuda.o\n{NO_NVCC}"
        ),
        "torch's extensions",
    ),
    "SGLang's kernels": (
        (
            f'{ERROR}  File "/w/python/sglang/jit_kernel/utils.py", line 150, in load_jit\n'
            f'{ERROR}  File "/v/dist-packages/tvm_ffi/cpp/extension.py", line 366, in _run_build\n'
            f"{ERROR}RuntimeError: ninja exited with status 1\n{NO_NVCC}"
        ),
        "SGLang's own kernels",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_one_is_named_for_is_its_own_whatever_flashinfer_said_before(name):
    log, owner = OTHERS[name]
    found = diagnosed(f"{HEALTHY}\n{log}")
    assert (found.diagnoses[0].confidence, found.diagnoses[0].flashinfer_at_fault) == ("medium", False)
    assert f"which is of {owner}, not of FlashInfer" in found.answer
    assert not any("flashinfer" in line.lower() for line in found.diagnoses[0].remedies)


OWN = {
    "a frame": f'{ERROR}  File "/v/site-packages/flashinfer/jit/core.py", line 3, in load\n{NO_CUDART}',
    "a frame above another's": (
        f'{ERROR}  File "/v/site-packages/flashinfer/jit/core.py", line 3, in load\n'
        f'{ERROR}  File "/v/site-packages/nixl/__init__.py", line 3, in <module>\n{NO_CUDART}'
    ),
    "torch's builder, which it calls": (
        f'{ERROR}  File "/v/site-packages/flashinfer/jit/core.py", line 3, in load\n'
        f'{ERROR}  File "/v/torch/utils/cpp_extension.py", line 2600, in _run_ninja_build\n'
        f"{ERROR}RuntimeError: Error building extension 'x'\n{NO_NVCC}"
    ),
    "a build": f"{HEALTHY}\n{ERROR}FAILED: /root/.cache/flashinfer/0.6.1/90a/cached_ops/norm/norm.cuda.o\n{NO_NVCC}",
    "a load that goes on": f"{INFO}flashinfer.jit: Loading JIT ops: norm\n{NO_NVCC}",
}


@pytest.mark.parametrize("name", OWN)
def test_what_it_is_named_for_is_flashinfers(name):
    [first, *_] = diagnosed(OWN[name]).diagnoses
    assert (first.confidence, first.flashinfer_at_fault) == ("high", True)


def test_a_load_that_goes_on_calls_no_builder_of_torch():
    log, _ = OTHERS["torch's builder"]
    [first, *_] = diagnosed(f"{INFO}flashinfer.jit: Loading JIT ops: norm\n{log}").diagnoses
    assert not first.flashinfer_at_fault


@pytest.mark.parametrize("before", [HEALTHY, f"{INFO}flashinfer.jit: Loading JIT ops: norm\n{HEALTHY}"])
def test_a_healthy_start_ties_nothing(before):
    [first, *_] = diagnosed(f"{before}\n{NO_NVCC}").diagnoses
    assert (first.cause, first.is_tied, first.flashinfer_at_fault) == ("nvcc-not-found", False, False)


def test_what_torch_built_under_flashinfers_names_is_nobody_elses():
    [first, *_] = diagnosed(f"RuntimeError: Error building extension 'sampling'\n{NO_NVCC}").diagnoses
    assert (first.confidence, first.is_tied) == ("low", False)


def test_tvm_ffi_alone_is_not_flashinfer():
    wanted = "version `GLIBCXX_3.4.32' not found (required by /v/site-packages/tvm_ffi/lib/libtvm_ffi.so)"
    [first, *_] = diagnosed(
        f'{ERROR}  File "/v/site-packages/xgrammar/base.py", line 10\n{ERROR}OSError: /lib/libstdc++.so.6: {wanted}'
    ).diagnoses
    assert (first.cause, first.flashinfer_at_fault) == ("libstdcxx-older-than-compiler", False)


CRASH = "!!!!!!! Segfault encountered !!!!!!!\n"


@pytest.mark.parametrize(
    ("frame", "is_own"), [("llama_cpp/llama.py", False), ("vllm/pynccl.py", False), ("flashinfer/decode.py", True)]
)
def test_a_crash_names_nobody_by_itself(frame, is_own):
    found = diagnosed(f'{CRASH}  File "/v/site-packages/{frame}", line 1 in step')
    assert (found.diagnoses[0].confidence, found.diagnoses[0].flashinfer_at_fault) == ("low", is_own)


def test_a_title_does_not_name_flashinfer_where_the_error_is_anothers():
    refused = "nvcc fatal   : Unsupported gpu architecture 'compute_120'"
    other = diagnosed(f"{refused}\nmake[2]: *** [ggml/src/ggml-cuda/CMakeFiles/x.make:77: acc.cu.o] Error 1")
    alone, own = diagnosed(refused), diagnosed(f"FAILED: /root/.cache/flashinfer/0.6.1/cached_ops/x.o\n{refused}")
    assert other.answer == ("nvcc does not know this GPU, which is of llama.cpp, not of FlashInfer (confidence medium)")
    assert alone.answer.startswith("nvcc does not know this GPU, which nothing lays to FlashInfer")
    assert own.answer.startswith("FlashInfer has no architecture")


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ('  File "/v/site-packages/nixl/__init__.py", line 3', "nixl"),
        ("/v/dist-packages/flash_attn_2_cuda.so: undefined symbol", "flash_attn_2_cuda"),
        ("/root/.cache/vllm/torch_compile_cache/x", "vllm"),
        ('  File "/v/site-packages/vllm/v1/engine/core.py", line 3', ""),
        ("/v/site-packages/torch/include/ATen/x.h:1: error", ""),
        ("/root/.cache/flashinfer/0.6.1/x", ""),
    ],
)
def test_a_package_is_told_by_its_files_and_caches(text, package):
    assert tying.package(text) == package


BUILD = "nvcc -gencode=arch=compute_120f,code=sm_120f -c /root/.cache/flashinfer/0.5.3/120f/generated/x.cu"
REFUSED = "nvcc fatal   : Unsupported gpu architecture 'compute_120f'"


@pytest.mark.parametrize(
    ("before", "confidence"),
    [
        (BUILD, "high"),
        (f"export TORCH_CUDA_ARCH_LIST=12.0f\n{BUILD}", "medium"),
        (f"{BUILD.replace('-c', '-gencode=arch=compute_90a,code=sm_90a -c')}", "medium"),
    ],
)
def test_the_architecture_of_a_build_tells_the_gpu_unless_a_list_may(before, confidence):
    [first, *_] = diagnosed(f"{before}\n{REFUSED}").diagnoses
    assert (first.cause, first.confidence) == ("jit-arch-too-new-for-nvcc", confidence)
    assert "nvcc <12.9 follows from it" in first.reason
    assert first.unknown == (() if confidence == "high" else ("sm >=120",))


UNKNOWN = "nvcc fatal   : Unknown option '-static-global-template-stub=false'"


@pytest.mark.parametrize(
    ("toolkit", "confidences"), [("", ["high"]), ("CUDA toolkit: 12.4", ["high"]), ("CUDA toolkit: 12.9", [])]
)
def test_an_option_that_nvcc_does_not_know_tells_its_release(toolkit, confidences):
    own = "FAILED: /root/.cache/flashinfer/0.5.3/86/cached_ops/page/page.cuda.o"
    assert [one.confidence for one in diagnosed(f"{own}\n{UNKNOWN}", toolkit).diagnoses] == confidences


CODE = "/v/site-packages/flashinfer/jit/cpp_ext.py:62:            raise RuntimeError("
MESSAGE = "Could not find nvcc and default cuda_home="


@pytest.mark.parametrize("line", [f'{CODE}f"{MESSAGE}")', f'$ grep -rn "{MESSAGE}" /v/flashinfer'])
def test_what_grep_finds_in_sources_is_no_error(line):
    assert diagnosed(line).diagnoses == ()


def test_what_grep_finds_in_a_log_is_one():
    assert diagnosed(f"server.log:62:RuntimeError: {MESSAGE}").diagnoses


@pytest.mark.parametrize(("speaker", "confidence"), [("Assistant", "low"), ("User", "high")])
def test_a_fence_in_what_a_model_answers_is_no_log(speaker, confidence):
    log = f'```\n  File "/x/flashinfer/jit/core.py", line 300, in build\nRuntimeError: {MESSAGE}\n```'
    [first, *_] = diagnosed(f"You: why does my server crash?\n{speaker}: Here is a typical log:\n\n{log}").diagnoses
    assert first.confidence == confidence


BUILDER = '  File "/v/site-packages/{}", line 9, in f\n  File "/v/site-packages/{}", line 2600, in g\n{}'
NO_NINJA = "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)"


@pytest.mark.parametrize(
    ("raised", "confidence"), [("torch/utils/cpp_extension.py", "high"), ("deep_ep/build.py", "medium")]
)
def test_what_another_ones_file_raises_with_its_own_words_may_be_sure(raised, confidence):
    one = diagnosed(BUILDER.format("deep_ep/x.py", raised, NO_NINJA)).diagnoses[0]
    assert (one.rule, one.confidence, one.flashinfer_at_fault) == ("ninja-missing", confidence, False)


def first(text):
    return next(iter(diagnosed(text).diagnoses), None)


ELSEWHERE = {
    "a trainer": ("/v/site-packages/megatron/core/foo.py", "ValueError: Unsupported head_dim 80"),
    "a user's script": ("/home/me/loss.py", "ValueError: Input logits contains NaN"),
    "TensorRT-LLM": (
        "/v/site-packages/tensorrt_llm/_torch/autotuner.py",
        "AssertionError: All Given runners must be subclass of TunableRunner",
    ),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_another_raised_is_not_surely_flashinfers_whatever_its_words(case):
    path, said = ELSEWHERE[case]
    found = first(f'Traceback (most recent call last):\n  File "{path}", line 5, in f\n    raise\n{said}\n')
    assert found is None or not (found.flashinfer_at_fault and found.confidence is Confidence.HIGH)


@pytest.mark.parametrize(
    "path", ["/v/site-packages/flashinfer/utils.py", "/v/site-packages/vllm/v1/attention/backends/flashinfer.py"]
)
def test_the_same_raised_in_flashinfer_or_where_it_is_called_is_sure(path):
    said = "ValueError: Unsupported head_dim 80"
    found = first(f'Traceback (most recent call last):\n  File "{path}", line 5, in f\n    raise\n{said}\n')
    assert (found.cause, found.confidence) == ("head-dim-unsupported", Confidence.HIGH)


@pytest.mark.parametrize(
    "said",
    [
        "Assertion failed: Routing kernel expects topK experts <= 8 (/src/tensorrt_llm/cpp/runner.cu:80)",
        "Assertion failed: Unsupported head_dim 80 (/src/tensorrt_llm/cpp/fmha.cpp:12)",
    ],
)
def test_a_check_of_tensorrt_llms_own_files_is_not_surely_flashinfers(said):
    found = first(f"RuntimeError: [TensorRT-LLM][ERROR] {said}\n")
    assert found is None or not (found.flashinfer_at_fault and found.confidence is Confidence.HIGH)


def test_the_same_in_the_copy_that_flashinfer_brings_is_sure():
    path = "/v/flashinfer/data/csrc/nv_internal/tensorrt_llm/cpp/runner.cu"
    found = first(f"RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: Routing kernel expects topK ({path}:80)\n")
    assert (found.flashinfer_at_fault, found.confidence) == (True, Confidence.HIGH)


@pytest.mark.parametrize(
    "said",
    [
        "Warning 6: gdalbuildvrt does not support heterogeneous projection: expected WGS 84",
        "ValueError: Invalid activation type: swish",
        "ComputeError: line byte length 90 exceeds max buffer size 64",
        "ValueError: intermediate_size must be a multiple of gate_type blck size",
    ],
)
def test_words_that_others_have_too_make_at_most_a_guess(said):
    path = "/home/me/app.py"
    for text in (said, f'Traceback (most recent call last):\n  File "{path}", line 5, in f\n    raise\n{said}\n'):
        found = first(text)
        assert found is None or (found.flashinfer_at_fault, found.confidence) == (False, Confidence.LOW)
