"""The all-reduce probe on the CPU: two real processes, and a stand-in for FlashInfer, right or wrong."""

import importlib.util
import os
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROBE = Path(__file__).parents[2] / "probes" / "comm_allreduce_fusion.py"
FAKE = Path(__file__).parent / "fake_flashinfer"
NUMBERS = {  # fault -> what is said of it
    "residual_not_added": "residual_out: .* elements are wrong",
    "contribution_missing": "residual_out: .* elements are wrong",
    "contribution_missing@1": "rank 1: .*residual_out: .* elements are wrong",
    "truncated": "residual_out: .* elements are wrong",
    "rounded_to_7_bits": "residual_out: .* elements are wrong",
    "residual_unwritten": "residual_out: .* elements are wrong",
    "nan_residual": "residual_out: .* got nan",
    "weight_ignored": "norm_out: .* elements are wrong",
    "eps_ignored": "norm_out: .* elements are wrong",
    "lanes_counted_twice": "norm_out: .* elements are wrong",
    "nan_element": "norm_out: .* got nan",
    "last_token_unwritten": "elements are wrong",
    "residual_changed": "the residual was changed",
    "gamma_changed": "gamma was changed",
    "written_behind": "outside of the tensors",
    "returns_tensor": "returned Tensor instead of None",
}
LAMPORT = {"stale_buffer@0": r"^rank 0: .*: call \d of 9, .*: residual_out: .* elements are wrong"}


def load():
    spec = importlib.util.spec_from_file_location("comm_allreduce_fusion", PROBE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """What the ranks are started with; sets the fault of the calls from now on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cpu")
    monkeypatch.setenv("FI_DOCTOR_FAKE_FAULT", str(tmp_path / "fault"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_fault = (tmp_path / "fault").write_text
    set_fault("")
    return set_fault


@pytest.fixture
def probe(surroundings):
    """The probe with smaller tensors; its ranks, if it has started any, are ended."""
    module = load()
    module.CALLS = tuple((min(tokens, 150), hidden // 8, form) for tokens, hidden, form in module.CALLS)
    module.INCOMPLETE_WARP = 360
    yield module
    if module._pair.cache_info().currsize:
        module._end_pair()


def alive(process):
    return process.poll() is None


def test_right_numbers_pass_in_every_variant_with_the_same_two_processes(probe):
    pair = probe._pair()
    for variant in probe.PROBE["variants"]:
        measured = probe.run(variant)
        assert measured["calls"] == 9
        assert 0 < measured["residual_max_share"] <= 1
        assert 0 < measured["norm_max_share"] <= 1
        assert measured["workspace"] == "CUDA IPC"
        assert measured["world_size"] == 2
    assert probe._pair() is pair
    assert all(map(alive, pair.processes))


def test_every_wrong_number_is_caught(probe, surroundings):
    """One pair for all: the stand-in keeps its protocol whatever the numbers are."""
    pair, missed = probe._pair(), {}
    for variant in ("oneshot_bf16", "twoshot_bf16", "oneshot_fp16", "oneshot_bf16_h2880"):
        calls = probe._calls(variant)
        for fault, said in {**NUMBERS, **(LAMPORT if variant != "twoshot_bf16" else {})}.items():
            surroundings(fault)
            verdict = probe._verdict(pair.ask(variant, calls))
            if not (isinstance(verdict, AssertionError) and re.search(said, str(verdict))):
                missed[variant, fault] = verdict
        surroundings("rounded_once")  # which a kernel may do
        if (verdict := probe._verdict(pair.ask(variant, calls))) is not None:
            missed[variant, "rounded_once"] = verdict
    assert not missed


def test_wrong_numbers_end_the_ranks_and_the_next_variant_gets_new_ones(probe, surroundings):
    first = probe._pair()
    surroundings("eps_ignored@1")
    with pytest.raises(AssertionError, match=r"^rank 1: oneshot_bf16: call 1 of 9, 7x512, in_place: norm_out"):
        probe.run("oneshot_bf16")
    assert not any(map(alive, first.processes))
    assert not first.path.exists()
    surroundings("")
    assert probe.run("oneshot_fp16")["calls"] == 9


@pytest.mark.parametrize(
    ("fault", "first_line"),
    [
        ("segfault@1", "rank 1 was killed by SIGSEGV at 'oneshot_bf16: call 1 of 9, 7x512, in_place: launching'"),
        ("raises@1", "rank 1: ValueError: allreduce_fusion_op failed with error code"),
        ("asserts@0", "rank 0: AssertionError: sequence length should be larger than tp_size"),
    ],
)
def test_a_rank_that_fails_is_named_and_both_are_ended(fault, first_line, probe, surroundings, monkeypatch):
    monkeypatch.setattr(probe, "GRACE_S", 0.5)
    surroundings(fault)
    pair = probe._pair()
    with pytest.raises(RuntimeError) as caught:
        probe.run("oneshot_bf16")
    assert str(caught.value).startswith(first_line)
    assert "did not come back from 'oneshot_bf16: call 1 of 9" in str(caught.value)  # the other waits for it
    assert "trtllm_ar.py" in str(caught.value)
    assert not any(map(alive, pair.processes))


def test_a_rank_that_hangs_is_named_with_where_it_hangs(probe, surroundings, monkeypatch):
    probe.run("twoshot_bf16")  # the ranks are up
    monkeypatch.setattr(probe, "DEADLINE_S", 2.0)
    surroundings("hangs@1")
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        probe.run("oneshot_bf16")
    assert time.monotonic() - begun < 10
    assert (
        "rank 1 did not come back from 'oneshot_bf16: call 1 of 9, 7x512, in_place: launching' within 2 s"
        in str(caught.value).splitlines()[0]
    )
    assert "in _misbehave" in str(caught.value)  # Python's stack


def test_what_a_rank_cannot_import_is_said_with_its_words(probe, monkeypatch, tmp_path):
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer" / "__init__.py").write_text("raise RuntimeError('libcudart is not loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^rank 0: RuntimeError: libcudart is not loaded; rank 1: RuntimeError"):
        probe.run("oneshot_bf16")


def test_no_rank_is_allowed_to_make_a_multicast_object(surroundings):
    """Neither by what FlashInfer is asked for, nor by a library that does it by itself."""
    module = load()
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"):
        assert module.RANK_ENVIRONMENT[name] in {"0", "1"}
    code = PROBE.read_text().split('"""', 2)[2]
    for word in ("create_allreduce_fusion_workspace", "create_ipc_workspace", "mnnvl", "SymmDevice", "symm_mem"):
        assert word not in code.replace("TORCH_SYMM_MEM_DISABLE_MULTICAST", "")
