"""Where an error was raised, of which rank the neighbours of a line are, and which remedies are ready."""

from __future__ import annotations

import pytest
from fault_cases import diagnosed
from test_signs import Folder, sign

FRAME = 'File "/v/site-packages/{}", line 88, in run'


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("frames", "is_there"),
    [
        (("vllm/core.py", "flashinfer/mla.py"), True),
        (("flashinfer/mla.py", "vllm/core.py"), False),
        (("flashinfer/mla.py", "torch/_ops.py"), True),
        ((r"flashinfer\mla.py", r"torch\_ops.py"), True),
        ((), False),
    ],
    ids=["last", "not last", "torch goes through", "as Windows writes it", "none"],
)
def test_the_frame_of_an_error_is_the_last_one_before_it(folder, frames, is_there):
    folder.add("a-fault", sign("ValueError: ", frame="/flashinfer/"))
    log = "\n".join(f"  {FRAME.format(one)}\n    code()" for one in frames)
    assert folder.rules(f"{log}\nValueError: no") == (["a-fault"] if is_there else [])


PYTHON = 'File "/v/site-packages/vllm/ops.py", line 88, in run'
OWN = 'File "/v/site-packages/flashinfer/data/csrc/norm.cu", line 33, in rmsnorm(tvm::ffi::TensorView)'


@pytest.mark.parametrize(
    ("frames", "is_there"),
    [
        ((PYTHON, OWN), True),
        ((PYTHON, 'File "python/tvm_ffi/cython/function.pxi", line 923, in tvm_ffi.core.Function.__call__', OWN), True),
        ((PYTHON, OWN, 'File "/v/site-packages/flashinfer/data/include/flashinfer/x.cuh", line 3, in f'), True),
        ((PYTHON, OWN.replace("/flashinfer/", "/tilelang/")), False),
        ((PYTHON,), False),
        ((OWN, PYTHON), False),
    ],
    ids=["its C++", "behind the binding", "in a header", "C++ of another package", "none", "before Python"],
)
def test_a_frame_of_flashinfers_c_plus_plus_raised_the_error(folder, frames, is_there):
    folder.add("a-fault", sign("ValueError: ", frame="/flashinfer/"))
    log = "\n".join(f"  {one}" for one in frames)
    assert folder.rules(f"{log}\nValueError: no") == (["a-fault"] if is_there else [])


def test_flashinfers_python_is_the_frame_before_its_c_plus_plus(folder):
    folder.add("a-fault", sign("ValueError: ", frame=r'/flashinfer/norm\.py"'))
    assert folder.rules(f'  File "/v/site-packages/flashinfer/norm.py", line 1, in x\n  {OWN}\nValueError: no')


def test_what_flashinfers_c_plus_plus_refuses_is_no_fault_of_the_engine():
    log = f"  {PYTHON.replace('/ops', '/v1/worker/gpu')}\n  {OWN}\nAttributeError: no such thing"
    assert [one.cause for one in diagnosed(log).diagnoses] == []
    assert [one.cause for one in diagnosed(log.replace(f"  {OWN}\n", "")).diagnoses] == ["engine-bug"]


def test_the_frame_is_of_the_error_s_own_rank(folder):
    folder.add("a-fault", sign("ValueError: ", frame="/flashinfer/"))
    of = {rank: f"(Worker_{rank} pid=1) ERROR 05-26 07:50:29 [a.py:1] " for rank in ("TP0", "TP1")}
    frames = [f"{of['TP0']}  {FRAME.format('flashinfer/mla.py')}", f"{of['TP1']}  {FRAME.format('vllm/a.py')}"]
    told = {rank: folder.rules("\n".join([*frames, f"{of[rank]}ValueError: no"])) for rank in of}
    assert told == {"TP0": ["a-fault"], "TP1": []}


def test_a_frame_far_before_an_error_is_none_of_its(folder):
    folder.add("a-fault", sign("ValueError: ", frame="/flashinfer/"))
    assert folder.rules(f"{FRAME.format('flashinfer/mla.py')}\n" + "x\n" * 60 + "ValueError: no") == []


@pytest.mark.parametrize(
    ("one", "other", "are_near"),
    [
        ("(Worker_TP0 pid=7) ", "(Worker_TP1 pid=8) ", False),
        ("(Worker_TP0 pid=7) ", "[rank0]: ", True),
        ("(EngineCore_DP0 pid=6) ", "(Worker_TP1 pid=8) ", True),
        ("(EngineCore_DP0 pid=6) ", "(EngineCore_DP1 pid=8) ", False),
        ("(RayWorkerWrapper pid=6) ", "(RayWorkerWrapper pid=8) ", False),
        ("(APIServer pid=1) ", "(EngineCore pid=8) ", True),
        ("", "(EngineCore pid=8) ", True),
    ],
)
def test_what_stands_near_is_of_no_other_rank(folder, one, other, are_near):
    folder.add("a-fault", sign("it broke", near="the cause"))
    assert folder.rules(f"{one}the cause\n{other}it broke") == (["a-fault"] if are_near else [])


def test_a_condition_can_ask_whether_a_package_or_a_variable_is_told(folder):
    folder.add("a-fault", sign("it broke"), more="when: {missing: {package: vllm}}")
    folder.add("another-fault", sign("it broke"), more="when: {not: {missing: {env: CUDA_HOME}}}")
    assert folder.rules("it broke") == ["a-fault"]
    assert folder.rules("vllm==0.33.0\nCUDA_HOME=/opt/cuda\nit broke") == ["another-fault"]


def test_a_remedy_of_which_a_word_is_not_told_is_left_out_where_another_is_ready(folder):
    lines = "fix: [{kind: note, line: 'take {package:vllm}'}, {kind: note, line: 'do that'}]"
    folder.add("a-fault", sign("it broke"))
    path = folder.path / "driver" / "a-fault.yaml"
    path.write_text(path.read_text().replace('fix: [{kind: note, line: "do that"}]', lines))
    assert folder.told("it broke").diagnoses[0].remedies == ("do that",)
    assert folder.told("vllm==0.33.0\nit broke").diagnoses[0].remedies == ("take 0.33.0", "do that")
    path.write_text(path.read_text().replace(", {kind: note, line: 'do that'}", ""))
    assert folder.told("it broke").diagnoses[0].remedies == ("take <vllm>",)


NAMED = f"{sign('it broke')}\nnamed: true"
TILELANG = '  File "/v/site-packages/tilelang/env.py", line 61, in find\n    raise\nRuntimeError: it broke'
FLASHINFER = TILELANG.replace("tilelang", "flashinfer")


@pytest.mark.parametrize(
    ("log", "is_at_fault"),
    [
        (FLASHINFER, True),
        ("flashinfer: it broke", True),
        (FLASHINFER.replace("RuntimeError", f"  {FRAME.format('torch/utils/cpp_extension.py')}\nRuntimeError"), True),
        (TILELANG, False),
        ("it broke", False),
        (f"{FLASHINFER.replace('it broke', 'another one')}\n{TILELANG}", False),
        (f"{FLASHINFER}\n{TILELANG}", True),
    ],
    ids=["frame", "line", "frame before the last", "another package", "nobody", "another traceback", "both"],
)
def test_what_several_packages_say_is_flashinfers_where_it_is_named(folder, log, is_at_fault):
    folder.add("a-fault", NAMED)
    [found] = folder.told(log).diagnoses
    assert (found.flashinfer_at_fault, found.confidence.value) == (is_at_fault, "high")


def test_whose_it_is_is_said_where_it_is_known(folder):
    folder.add("a-fault", NAMED)
    assert "which is not FlashInfer's fault" in folder.told(TILELANG).answer
    assert "if it is of FlashInfer at all" in folder.told("it broke").answer


def test_a_sign_of_flashinfers_own_beside_one_of_several_packages_decides(folder):
    folder.add("a-fault", NAMED, sign("it broke there"))
    assert folder.told("it broke there").diagnoses[0].flashinfer_at_fault


def test_what_is_not_flashinfers_is_not_mended_with_its_packages():
    log = TILELANG.replace("it broke", "Could not find nvcc")
    other, own = (diagnosed(one).diagnoses[0] for one in (log, log.replace("tilelang", "flashinfer")))
    assert (other.cause, own.cause) == ("nvcc-not-found", "nvcc-not-found")
    assert [any("flashinfer" in line for line in one.remedies) for one in (other, own)] == [False, True]
    assert (other.confirm, bool(own.confirm)) == ((), True)


LATER = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
NEARBY = "INFO 11-20 02:13:02 [env.py:9] of /v/site-packages/flashinfer/jit/core.py"


@pytest.mark.parametrize("frame", ["torch/cuda/streams.py", "triton/backends/nvidia/driver.py", "vllm/v1/worker/x.py"])
def test_a_crash_that_another_one_notices_is_laid_to_nobody_and_says_what_settles_it(frame):
    found = diagnosed(f"{NEARBY}\n  {FRAME.format(frame)}\n    go()\n{LATER}")
    first = found.diagnoses[0]
    assert (first.rule, first.flashinfer_at_fault) == ("some-kernel-crashed", False)
    assert "or one before it" in first.title
    assert all(any(word in line for line in first.remedies) for word in ("CUDA_LAUNCH_BLOCKING=1", "compute-sanitizer"))


def test_a_crash_with_flashinfer_in_its_traceback_is_perhaps_its_own():
    log = f"  {FRAME.format('flashinfer/mla.py')}\n    go()\n  {FRAME.format('torch/_ops.py')}\n    go()\n{LATER}"
    assert diagnosed(log).diagnoses[0].rule == "flashinfer-kernel-crashed"
