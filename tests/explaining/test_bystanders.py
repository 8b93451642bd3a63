"""Words in a log that are of a user, or of another program, are no reason for an answer."""

from __future__ import annotations

import io

import pytest
from fault_cases import diagnosed

from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.reports import explained

REQUEST = "INFO 11-28 10:01:00 [logger.py:40] Received request c-1: prompt: "
OK = 'INFO:     10.0.0.1:55 - "POST /v1/completions HTTP/1.1" 200 OK'
NOTHING = "no error is told, and no sign of a fault that is known"
SENT = {
    "a question": f"{REQUEST}'why do I get CUDA out of memory?', params: SamplingParams(n=1)",
    "a shell": f"{REQUEST}'sh: g++: not found what now', params: SamplingParams(n=1)",
    "json": (
        'DEBUG 11-28 10:01:00 [api.py:7] {"messages": [{"role": "user", "content": "FlashInfer kernels are disabled: '
        'flashinfer-cubin is not installed"}]}'
    ),
    "lines": f"{REQUEST}what is\nAttributeError: module 'flashinfer.comm' has no attribute 'foo'\nCUDA toolkit: 12.4.1",
    "a log of JSON": (
        '{"level":"info","messages":[{"role":"user","content":"flashinfer: BatchPrefillWithPagedKVCache failed with '
        'error invalid argument"}]}'
    ),
    "a proxy": "INFO litellm: messages=[{'role': 'user', 'content': 'CUDA out of memory. Tried to allocate 2.00 GiB'}]",
    "a body": '{"request_body":"{\\"prompt\\": \\"sh: g++: not found\\"}","status":200}',
    "sglang's request": (
        "[2025-11-20 09:00:01] Receive: obj=GenerateReqInput(rid='1', text='Ninja build failed. nvcc fatal : "
        "Unsupported gpu architecture compute_90a', sampling_params={})"
    ),
    "sglang's answer": "[2025-11-20 09:00:01] Finish: obj=GenerateReqInput(rid=1), out={'text': 'sh: g++: not found'}",
    "a tool": "DEBUG 11-28 10:01:00 [tool.py:7] tool said: RuntimeError: Could not find nvcc and default cuda_home=",
}


@pytest.mark.parametrize("name", SENT)
def test_what_users_write_is_neither_sign_nor_fact(name):
    found = diagnosed(f"{SENT[name]}\n{OK}")
    assert (found.answer, found.diagnoses, found.facts) == (NOTHING, (), ())


def test_what_ends_a_process_after_its_watchdog_takes_nothing_away():
    watchdog = (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE) ran for 600012 "
        "milliseconds before timing out."
    )
    ended = "terminate called after throwing an instance of 'c10::DistBackendError'"
    alone, both = diagnosed(watchdog), diagnosed(f"{watchdog}\n{ended}")
    assert [one.cause for one in both.diagnoses] == [one.cause for one in alone.diagnoses] != []


def test_an_error_after_a_request_is_the_only_one():
    found = diagnosed(f"{REQUEST}'c++: not found', params: SamplingParams(n=1)\n{OK}\nValueError: nobody knows")
    assert found.diagnoses == ()
    assert found.answer.startswith("I do not know")


@pytest.mark.parametrize("before", ["INFO 11-28 10:01:00 [core.py:9] Loading weights", SENT["a question"], OK])
def test_a_traceback_after_a_record_that_has_ended_counts(before):
    found = diagnosed(
        f"{before}\nTraceback (most recent call last):\nRuntimeError: Could not find nvcc and default cuda_home="
    )
    assert [one.cause for one in found.diagnoses] == ["nvcc-not-found"]


def test_the_text_of_a_request_goes_on_in_the_next_block_of_the_log():
    text = f"{REQUEST}what is\n" + "word " * 210_000 + "\nRuntimeError: Could not find nvcc and default cuda_home=\n"
    assert diagnose([Source("log", io.BytesIO(text.encode()))]).diagnoses == ()


def test_a_message_that_is_logged_at_info_counts_where_it_begins_the_line():
    message = "FlashInfer unavailable since nvcc was not found"
    prefix = "DEBUG 11-28 10:01:00 [flashinfer.py:62] "
    assert diagnosed(prefix + message).diagnoses
    assert not diagnosed(f"{prefix}{'tool said ' * 9}{message}").diagnoses


OTHERS = {
    "network file system": "OSError: [Errno 116] Stale file handle: '/mnt/models/x.safetensors'",
    "xformers": "building 'xformers._C' extension\n/bin/sh: 1: g++: not found",
    "deepspeed": "building deepspeed\n/usr/bin/ld: cannot find -lcudart: No such file or directory",
    "llama.cpp": "/src/llama.cpp/ggml.cu\n/usr/include/c++/14/type_traits(2): error: identifier is undefined",
    "a user's kernel": "/src/mykernels/a.cu:3:10: fatal error: cute/tensor.hpp: No such file or directory",
    "a folder of that name": "/home/bob/flashinfer-env/xformers/ops.cu\n/bin/sh: 1: c++: not found",
    "a documentation": "PermissionError: [Errno 13] Permission denied: '/home/b/.cache/flashinfer-docs'",
    "cub": '/src/me.cu(9): error: namespace "cub" has no member "Max"',
    "cupy": "ImportError: libnvJitLink.so.12: cannot open shared object file: No such file or directory",
    "nccl": "node1:7:7 [0] NCCL INFO NVLS multicast support is available: cuMulticastCreate ok",
    "another package": "RuntimeError: mypkg requires CUDA 12.8 or later",
    "another user's module": "  File \"/srv/me.py\", line 1\nAttributeError: module 'cutlass' has no attribute 'foo'",
    "a tool": (
        '  File "/v/site-packages/flashinfer/jit/core.py", line 4, in f\n    g()\nValueError: x\n'
        '  File "/srv/agent/tools.py", line 1, in <module>\n    import requests\n'
        "ModuleNotFoundError: No module named 'requests'"
    ),
    "another long name": "OSError: [Errno 36] File name too long: '/data/kv_cache_offload/x'",
    "another symbol": "ImportError: /b/flashinfer-env/xformers/_C.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    "another header": "AssertionError: Utils.h not found",
    "another image": "/b/flashinfer-models/ops.cu: no kernel image is available for execution on the device",
}


@pytest.mark.parametrize("name", OTHERS)
def test_flashinfer_is_not_blamed_for_sure_for_what_others_do(name):
    found = diagnosed(f"flashinfer-python: 0.6.13\n{OTHERS[name]}")
    assert not [one.rule for one in found.diagnoses if one.flashinfer_at_fault and one.confidence.value != "low"]


def test_the_same_message_near_a_file_of_flashinfer_is_sure():
    log = "/v/flashinfer/data/csrc/norm.cu\n/bin/sh: 1: c++: not found"
    assert diagnosed(log).diagnoses[0].confidence.value == "high"
    assert diagnosed("/bin/sh: 1: c++: not found").diagnoses[0].confidence.value == "low"


ORDINARY = (
    "installed handler for SIGSEGV, SIGBUS",
    "oom-kill:constraint=CONSTRAINT_NONE,task=chrome,pid=4242,uid=1000",
    "GatedRepoError rate 0",
    "bench.py: error: argument --num-prompts: expected one argument",
    "nvshmem initialised; error handler installed",
    "xgrammar/compiler.py:33 compiled",
    "NET/IB : No device found, falling back NET/Socket",
    "PermissionError: [Errno 13] Permission denied: '/home/bob/.local/share/dataset'",
)


@pytest.mark.parametrize("line", ORDINARY)
def test_what_other_programs_say_in_passing_is_no_cause(line):
    assert diagnosed(line).diagnoses == ()


@pytest.mark.parametrize("line", ["Fatal Python error: Bus error", "sidecar terminated: OOMKilled"])
def test_what_has_many_causes_is_hardly_sure(line):
    assert [one.confidence.value for one in diagnosed(line).diagnoses] == ["low"]


GUESS = "RuntimeError: CUDA error: invalid configuration argument"


def test_a_guess_that_nothing_ties_to_flashinfer_does_not_blame_it():
    found = diagnosed(GUESS)
    assert (found.diagnoses[0].confidence, found.diagnoses[0].flashinfer_at_fault) == ("low", False)
    assert found.answer.endswith(", if it is of FlashInfer at all (confidence low)")
    assert "; nothing says that it is FlashInfer's" in explained.render(found, width=200)


def test_a_guess_that_is_near_a_frame_of_it_does():
    [first, *_] = diagnosed(f'File "/v/flashinfer/decode.py", line 9, in run\n{GUESS}').diagnoses
    assert (first.confidence, first.flashinfer_at_fault) == ("low", True)


CAPTURE = "torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"


def test_an_error_of_cuda_alone_is_nobodys():
    [first, *_] = diagnosed(CAPTURE).diagnoses
    assert (first.cause, first.confidence, first.flashinfer_at_fault) == ("graph-capture-forbidden-call", "low", False)


def test_the_same_error_under_a_frame_of_it_is_its_own():
    [first, *_] = diagnosed(f'File "/v/flashinfer/jit/core.py", line 9, in load\n{CAPTURE}').diagnoses
    assert (first.confidence, first.flashinfer_at_fault) == ("high", True)


REFUSED = "nvcc fatal   : Unsupported gpu architecture 'compute_120a'"
GIVEN = "Cuda compilation tools, release 12.6, V12.6.20\nGPU 0: NVIDIA GeForce RTX 5090\nflashinfer-python==0.6.1"
LOADED = "INFO 11-20 10:00:00 [x.py:1] Loading flashinfer.sampling"
OWN = "nvcc -arch=sm_120a -c /root/.cache/flashinfer/0.6.1/120a/generated/norm/norm.cu"
BUILDS = {
    "deep_gemm": "/usr/local/cuda/bin/nvcc -arch=sm_120a -o /root/.deep_gemm/cache/x.cubin",
    "torch's extensions": "FAILED: /root/.cache/torch_extensions/py312_cu128/fused/x.cuda.o",
    "a wheel": "building /tmp/pip/xformers/csrc/x.cu",
}


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_of_another_is_not_blamed_on_flashinfer_that_is_loaded_before(name):
    (one,) = diagnosed(f"{LOADED}\n{BUILDS[name]}\n{REFUSED}", GIVEN).diagnoses
    assert (one.cause, one.confidence.value) == ("jit-arch-too-new-for-nvcc", "medium")
    assert not one.flashinfer_at_fault


@pytest.mark.parametrize("name", BUILDS)
def test_a_build_of_flashinfer_is_its_own_after_one_of_another(name):
    (one,) = diagnosed(f"{BUILDS[name]}\n{OWN}\n{REFUSED}", GIVEN).diagnoses
    assert (one.confidence.value, one.is_tied) == ("high", True)


def test_a_file_of_another_that_is_not_built_ties_nothing():
    frame = '  File "/v/deepspeed/runtime/engine.py", line 1, in step'
    (one,) = diagnosed(f"{LOADED}\n{frame}\n{REFUSED}", GIVEN).diagnoses
    assert (one.confidence.value, one.is_tied) == ("high", True)


@pytest.mark.parametrize(("other", "confidence"), [("trainer-1  | ", "low"), ("vllm-1  | ", "high")])
def test_a_container_does_not_speak_for_another(other, confidence):
    (one,) = diagnosed(f"vllm-1  | {LOADED}\n{other}{REFUSED}", GIVEN).diagnoses
    assert one.confidence.value == confidence


FENCED = "```\nOSError: [Errno 98] Address already in use\n```"
SAID = "It is not `RuntimeError: Could not find nvcc`, I have one:"


def test_what_people_say_of_a_fenced_log_is_hardly_a_sign():
    first, *others = diagnosed(f"{SAID}\n{FENCED}").diagnoses
    assert (first.cause, first.confidence.value) == ("port-in-use", "high")
    assert [one.confidence.value for one in others] == ["low"]


@pytest.mark.parametrize("fences", ["", "```\nflashinfer-python==0.6.1\n```", "```\nNo, all is well\n```"])
def test_without_a_sign_in_a_fence_what_stands_outside_is_as_sure_as_ever(fences):
    (one,) = diagnosed(f"{fences}\nRuntimeError: Could not find nvcc").diagnoses
    assert (one.cause, one.confidence.value) == ("nvcc-not-found", "high")


@pytest.mark.parametrize("said", ["GPU models and configuration : GPU 0: NVIDIA GB10", "GPU 0: NVIDIA GB10"])
def test_the_only_gpu_of_an_environment_is_read(said):
    assert [fact.value for fact in diagnosed(said).facts if fact.name == "sm"] == ["121"]
