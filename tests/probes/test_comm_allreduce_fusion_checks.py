"""The all-reduce probe on the CPU: two real processes, and a stand-in for FlashInfer, right or wrong."""

import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import loading
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


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """What the ranks are started with; sets the fault of the calls from now on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cpu")
    monkeypatch.setenv("FI_DOCTOR_SCRATCH", str(tmp_path))  # where what a killed one leaves is removed by pytest
    monkeypatch.setenv("FI_DOCTOR_FAKE_FAULT", str(tmp_path / "fault"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_fault = (tmp_path / "fault").write_text
    set_fault("")
    return set_fault


@pytest.fixture(params=["fresh"])
def started(request, monkeypatch):
    """How the ranks are started; for forked ones, this process becomes like the harness."""
    if request.param == "forked":
        monkeypatch.syspath_prepend(FAKE)
        for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
            monkeypatch.delitem(sys.modules, name)
        before = set(sys.modules)
        importlib.import_module("torch").set_num_threads(1)  # a pool of threads would be missed in the fork
        importlib.import_module("flashinfer.comm")
    yield request.param
    if request.param == "forked":
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "flashinfer":
                del sys.modules[name]


@pytest.fixture
def probe(surroundings, started, monkeypatch):
    """The probe with smaller tensors; its ranks, if it has started any, are ended."""
    module = loading.load("comm_allreduce_fusion")
    monkeypatch.setattr(module, "_threads", lambda: 1)  # other tests may have left some, which do not matter to these
    if started == "fresh":
        monkeypatch.setattr(module, "_cuda_used", lambda: "as the test wants it")
    module.CALLS = tuple((min(tokens, 150), hidden // 8, form) for tokens, hidden, form in module.CALLS)
    module.INCOMPLETE_WARP = 360
    yield module
    if module._pair.cache_info().currsize:
        module._end_pair()


BOTH = pytest.mark.parametrize("started", ["fresh", "forked"], indirect=True)


def alive(process):
    return process.poll() is None


def in_table(pid):
    """Whether there is such a process, dead or alive; what ends as an orphan is its new parent's business."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not (state[0] == "Z" and int(state[1]) != os.getpid())


@BOTH
def test_right_numbers_pass_in_every_variant_with_the_same_two_processes(probe, started):
    pair = probe._pair()
    for variant in probe.PROBE["variants"]:
        measured = probe.run(variant)
        assert measured["calls"] == 9
        assert 0 < measured["residual_max_share"] <= 1
        assert 0 < measured["norm_max_share"] <= 1
        assert measured["workspace"] == "CUDA IPC"
        assert measured["world_size"] == 2
        assert measured["ranks"].startswith(started)
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


@BOTH
def test_wrong_numbers_end_the_ranks_and_the_next_variant_gets_new_ones(probe, surroundings):
    first = probe._pair()
    surroundings("eps_ignored@1")
    with pytest.raises(AssertionError, match=r"^rank 1: oneshot_bf16: call 1 of 9, 7x512, in_place: norm_out"):
        probe.run("oneshot_bf16")
    assert not any(in_table(process.pid) for process in first.processes)
    assert not first.path.exists()
    surroundings("")
    assert probe.run("oneshot_fp16")["calls"] == 9


@BOTH
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
    assert not any(in_table(process.pid) for process in pair.processes)


@BOTH
def test_a_rank_that_hangs_is_named_with_where_it_hangs(probe, surroundings, monkeypatch):
    ask, limit_s = probe._Ranks.ask, 2

    def ask_once_up(ranks, *words):
        """The start does not count, neither of forked ranks nor of the fresh ones that are asked after them."""
        surroundings("")
        assert probe._verdict(ask(ranks, "twoshot_bf16", probe._calls("twoshot_bf16"))) is None
        surroundings("hangs@1")
        with monkeypatch.context() as patch:
            patch.setattr(probe, "DEADLINE_S", limit_s)
            patch.setattr(probe, "FORKED_DEADLINE_S", limit_s)
            return ask(ranks, *words)

    monkeypatch.setattr(probe._Ranks, "ask", ask_once_up)
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        probe.run("oneshot_bf16")
    assert time.monotonic() - begun < 50  # a start, or two, on a busy machine; without a limit it is 60 s more
    assert (
        f"rank 1 did not come back from 'oneshot_bf16: call 1 of 9, 7x512, in_place: launching' within {limit_s} s"
        in str(caught.value).splitlines()[0]
    )
    assert "in misbehave" in str(caught.value)  # Python's stack
    assert "in <module>" not in str(caught.value)  # but not what is below it, of the parent


def test_what_a_rank_cannot_import_is_said_with_its_words(probe, monkeypatch, tmp_path):
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer" / "__init__.py").write_text("raise RuntimeError('libcudart is not loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^rank 0: RuntimeError: libcudart is not loaded; rank 1: RuntimeError"):
        probe.run("oneshot_bf16")


UNFIT = {
    "nothing to object to": "import flashinfer",
    "flashinfer is not imported": "",
    "another thread": "import flashinfer; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "CUDA is initialised": "import flashinfer; torch.cuda.is_initialized = lambda: True",
    "torch minds": "import flashinfer; own = os.getpid(); torch.cuda._is_in_bad_fork = lambda: os.getpid() != own",
    "torch does not say": "import flashinfer; del torch.cuda._is_in_bad_fork",
    "no status is kept": "import flashinfer; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "a fork dies": "import flashinfer; os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), 11))",
    "a fork hangs": "import flashinfer; os.register_at_fork(after_in_child=lambda: time.sleep(9))",
}
HARNESS = """
import faulthandler, importlib.util, os, signal, sys, threading, time
import torch
{first}
spec = importlib.util.spec_from_file_location("probe", sys.argv[1])
probe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(probe)
probe.CALLS = ((7, 512, "in_place"),)
{then}
"""


def said_by(first, then):
    """What a process like the harness says: it imports torch, does the first thing, loads the probe, does the other."""
    words = [sys.executable, "-c", HARNESS.format(first=first, then=then), PROBE]
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60).stdout


@pytest.mark.usefixtures("surroundings")
def test_ranks_are_forked_from_a_process_like_the_harness_whose_timer_goes_on():
    timer = "import flashinfer; faulthandler.dump_traceback_later(100)"
    assert said_by(timer, "print(probe.run('oneshot_bf16')['ranks'], probe._threads())") == "forked 2\n"


@pytest.mark.usefixtures("surroundings")
def test_no_timer_is_started_where_there_was_none():
    assert said_by("import flashinfer", "print(probe.run('oneshot_bf16')['ranks'], probe._threads())") == "forked 1\n"


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("first", ["import flashinfer", ""], ids=["forked", "fresh"])
def test_no_rank_outlives_its_parent(first):
    said = said_by(
        first,
        "measured = probe.run('oneshot_bf16'); pids = [process.pid for process in probe._pair().processes]; "
        "print(measured['ranks'].partition(':')[0], *pids, flush=True); os.kill(os.getpid(), 9)",
    )
    how, *pids = said.split()
    assert how == ("forked" if first else "fresh")
    assert len(pids) == 2
    deadline = time.monotonic() + 5
    while any(map(in_table, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(in_table, pids))


@pytest.mark.usefixtures("surroundings")
def test_ranks_are_fresh_where_a_fork_would_not_do():
    first = f"probe.REHEARSAL_S = 0.5\nfor case, code in {UNFIT!r}.items():"
    each = """
    if os.fork() == 0:
        exec(code)
        with probe._forking() as obstacle:
            print(case, not obstacle, sep=": ", flush=True)
        os._exit(0)
    os.wait()
"""
    said = said_by("", first + each).splitlines()
    assert said == [f"{case}: {case == 'nothing to object to'}" for case in UNFIT]


def test_no_rank_is_allowed_to_make_a_multicast_object(surroundings):
    """Neither by what FlashInfer is asked for, nor by a library that does it by itself."""
    module = loading.load("comm_allreduce_fusion")
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"):
        assert module.RANK_ENVIRONMENT[name] in {"0", "1"}
    code = PROBE.read_text().split('"""', 2)[2]
    for word in ("create_allreduce_fusion_workspace", "create_ipc_workspace", "mnnvl", "SymmDevice", "symm_mem"):
        assert word not in code.replace("TORCH_SYMM_MEM_DISABLE_MULTICAST", "")


@pytest.mark.parametrize("started", ["forked"], indirect=True)
def test_what_only_forked_ranks_cannot_do_is_no_verdict(probe, monkeypatch):
    def broken(*_):
        raise OSError("a fork of this process cannot use CUDA")

    monkeypatch.setattr(probe, "_serve", broken)  # fresh ranks execute the file, where it is as it was
    monkeypatch.setattr(probe, "_FRESH", [])
    measured = probe.run("oneshot_bf16")
    assert measured["ranks"].startswith("fresh: forked ranks failed: rank 0")
    assert probe.run("twoshot_bf16")["ranks"] == measured["ranks"]


@pytest.mark.parametrize(("named", "forked"), [("GPU-a,GPU-b", 1), ("GPU-a", 0), ("", 0)])
@pytest.mark.parametrize("started", ["forked"], indirect=True)
def test_ranks_are_forked_before_the_module_is_loaded_where_their_gpus_are_named(probe, monkeypatch, named, forked):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    probe.build("oneshot_bf16")
    assert probe._pair.cache_info().currsize == forked
    assert probe.run("oneshot_bf16")["ranks"] == "forked"
