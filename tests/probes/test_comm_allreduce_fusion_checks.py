"""The all-reduce probe on the CPU: two real processes, and a stand-in for FlashInfer, right or wrong."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import loading
import pytest
from ranks import ask, missed

pytest.importorskip("torch")

NAME = "comm_allreduce_fusion"
PROBE = loading.PROBES / f"{NAME}.py"
NUMBERS = {  # fault -> what is said of it
    "residual_not_added": "residual_out: .* elements are wrong",
    "contribution_missing": "residual_out: .* elements are wrong",
    "contribution_missing@1": "rank 1: .*residual_out: .* elements are wrong",
    "truncated": "residual_out: .* elements are wrong",
    "rounded_to_7_bits": "residual_out: .* elements are wrong",
    "residual_unwritten": "residual_out: .* elements are wrong",
    "nan_residual": "residual_out: .* got nan",
    "last_token_unwritten": "elements are wrong",
    "residual_changed": "the residual was changed",
    "gamma_changed": "gamma was changed",
    "written_behind": "outside of the tensors",
    "returns_tensor": "returned Tensor instead of None",
}
SMALL = {name: NUMBERS[name] for name in ("contribution_missing@1", "last_token_unwritten", "written_behind")}
NORM = {
    "weight_ignored": "norm_out: .* elements are wrong",
    "eps_ignored": "norm_out: .* elements are wrong",
    "lanes_counted_twice": "norm_out: .* elements are wrong",
    "nan_element": "norm_out: .* got nan",
}
FP8 = {
    "weight_ignored": "quant_out: .* elements are wrong",
    "eps_ignored": "quant_out: .* elements are wrong",
    "nan_element": "quant_out: .* got nan",
    "scale_ignored": "quant_out: .* elements are wrong",
    "truncated_to_fp8": "quant_out: .* elements are wrong",
    "saturated_early": "quant_out: .* elements are wrong, .* got -?240",
    "not_saturated": "quant_out: .* got nan",
}
FP4 = {
    "scale_ignored": "scale_out: .* elements are wrong",
    "half_a_block_looked_at": "scale_out: .* elements are wrong",
    "scales_not_swizzled": "scale_out: .* elements are wrong",
    "truncated_to_fp4": "quant_out: .* elements are wrong",
    "halves_swapped": "quant_out: .* elements are wrong",
}
LAMPORT = {"stale_buffer@0": r"^rank 0: .*: call \d+ of \d+, .*: residual_out: .* elements are wrong"}
GRAPH = {
    "graph_keeps_input": "replay 1 of 3: residual_out: .* elements are wrong",
    "graph_keeps_input@1": "rank 1: .*replay 1 of 3: residual_out: .* elements are wrong",
    "graph_keeps_residual": "replay 1 of 3: residual_out: .* elements are wrong",
    "graph_keeps_gamma": "replay 1 of 3: norm_out: .* elements are wrong",
    "graph_does_nothing": "replay 1 of 3: residual_out: .* elements are wrong",
}
FAULTS = {  # variant -> the faults that are seeded in it
    "oneshot_bf16": {**NUMBERS, **NORM, **LAMPORT},
    "twoshot_bf16": {**NUMBERS, **NORM},
    "oneshot_fp16": {**NUMBERS, **NORM, **LAMPORT},
    "oneshot_bf16_h2880": NORM,
    "oneshot_fp8_bf16": {**NUMBERS, **FP8, **LAMPORT},
    "twoshot_fp8_fp16": {**FP8, **SMALL},
    "oneshot_fp4_bf16": {**FP4, **SMALL},
    "graph_oneshot_bf16": {**GRAPH, **SMALL, **LAMPORT},
    "graph_twoshot_bf16": GRAPH,
    "oneshot_bf16_load500": {**SMALL, **LAMPORT},
    "twoshot_bf16_limits": SMALL,
    "twoshot_bf16_order": SMALL,
    "oneshot_bf16_order": LAMPORT,
}
FOUR = {
    "oneshot_bf16_tp4": {**SMALL, **NORM, **LAMPORT, "contribution_missing@3": "rank 3: .*residual_out"},
    "twoshot_fp8_bf16_tp4": {
        "contribution_missing@2": "rank 2: .*residual_out",
        "scale_ignored@1": "rank 1: .*quant_out",
    },
    "oneshot_bf16_tp4_order": {"contribution_missing@3": "rank 3: .*residual_out"},
}


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


def of_two(probe):
    return [name for name in probe.PROBE["variants"] if not name.count("tp4")]


@BOTH
def test_right_numbers_pass_in_every_variant_with_the_same_processes(probe, started):
    ranks = probe._ranks()
    for variant in of_two(probe):
        measured = probe.run(variant)
        assert measured["calls"] == (12 if re.search("graph|load", variant) else 6 if "limits" in variant else 9)
        assert 0 < measured["residual_max_share"] <= 1
        assert 0 < measured["norm_max_share"] <= 1
        assert (measured["workspace"], measured["multicast"]) == ("CUDA IPC", "not run")
        assert measured["world_size"] == 2
        assert measured["ranks"].startswith(started)
    assert probe._ranks() is ranks
    assert all(map(alive, ranks.processes))
    assert len(ranks.processes) == 2


def test_right_numbers_pass_with_four_ranks_in_every_variant_after_those_of_two(probe):
    probe.run("oneshot_bf16")
    first = list(probe._ranks().processes)
    for variant in probe.PROBE["variants"]:
        if "tp4" in variant:
            assert probe.run(variant)["world_size"] == 4
    assert probe.run("twoshot_bf16_order")["gpus"] == "rank 0: CPU (1), rank 1: CPU (0)"
    assert probe._ranks().processes[:2] == first
    assert len(probe._ranks().processes) == 4


def test_every_wrong_number_is_caught(probe, surroundings):
    assert not missed(probe, surroundings, FAULTS)


def test_every_wrong_number_is_caught_with_four_ranks(probe, surroundings):
    assert not missed(probe, surroundings, FOUR)


def test_sizes_are_those_around_the_limits_of_vllm(probe):
    measured = probe.run("oneshot_bf16_limits")
    tokens = sorted(int(shape.partition("x")[0]) for shape in measured["shapes"].split())
    assert tokens == [15, 16, 17, 31, 32, 33]  # of 4096 elements: 128 and 256 KiB
    assert measured["limits"] == "0.25 MiB, one-shot 0.125 MiB (a table)"


VLLM = {
    "compilation/passes/fusion/allreduce_rms_fusion.py": """
import torch
{first}: dict[int, dict[int, float]] = {{90: {{2: 48, 4: 3}}}}
{second} = {{90: {{2: 24, 4: 0.5}}}}
""",
    "compilation/collective_fusion.py": "{first} = {{90: {{2: 7}}}}\n{second} = {{90: {{2: 5}}}}\n",
    "compilation/other.py": "",
}


MOST = ({"2": 48, "4": 3}, {"2": 7}, {"2": 64, "4": 2})  # of each of these files


@pytest.mark.parametrize(("file", "most"), list(zip(VLLM, MOST, strict=True)), ids=lambda one: str(one)[-16:])
def test_limits_are_read_from_the_installed_vllm_which_is_not_imported(surroundings, monkeypatch, tmp_path, file, most):
    module = loading.load(NAME)
    path = tmp_path / "vllm" / file
    path.parent.mkdir(parents=True)
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError")
    path.write_text(VLLM[file].format(first=module.TABLES[0], second=module.TABLES[1]))
    monkeypatch.syspath_prepend(tmp_path)
    found, oneshot, source = module._limits()
    assert found["90"] == most
    assert oneshot["90"].keys() == most.keys()
    assert source == (
        f"vllm/{file}" if most["2"] != 64 else "those of vLLM 0.33.0, since no vLLM with such tables is installed"
    )


@BOTH
def test_wrong_numbers_end_the_ranks_and_the_next_variant_gets_new_ones(probe, surroundings):
    first = probe._ranks()
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
    pair = probe._ranks()
    with pytest.raises(RuntimeError) as caught:
        probe.run("oneshot_bf16")
    assert str(caught.value).startswith(first_line)
    assert "did not come back from 'oneshot_bf16: call 1 of 9" in str(caught.value)  # the other waits for it
    assert "trtllm_ar.py" in str(caught.value)
    assert not any(in_table(process.pid) for process in pair.processes)


HANG = "rank 1 did not come back from 'oneshot_bf16: call 1 of 9, 7x512, in_place: launching' within "
NOT_SENT = "(elements that have not arrived: 3584 of 3584 from rank 1)"


@BOTH
def test_a_rank_that_hangs_is_named_with_what_is_awaited_and_the_next_variant_runs(probe, surroundings, monkeypatch):
    ask = probe._Ranks.ask

    def ask_once_up(ranks, asked, until):
        """The start does not count."""
        surroundings("")
        assert probe._verdict(ask(ranks, probe._Asked("twoshot_bf16"), until)) is None
        surroundings("hangs@1")
        return ask(ranks, asked, until)

    monkeypatch.setattr(probe._Ranks, "ask", ask_once_up)
    monkeypatch.setattr(probe, "STALL_S", 2)
    monkeypatch.setattr(probe, "LATE_S", 0.5)
    with pytest.raises(RuntimeError) as caught:
        probe.run("oneshot_bf16")
    first = str(caught.value).splitlines()[0]
    assert HANG in first
    assert all(int(seconds) < 20 for seconds in re.findall(r"within (\d+) s", first))  # and not the deadline's 105
    assert first.count(NOT_SENT) == 2  # both wait for rank 1
    assert "in misbehave" in str(caught.value)  # Python's stack
    assert "in <module>" not in str(caught.value)  # but not what is below it, of the parent
    monkeypatch.setattr(probe._Ranks, "ask", ask)
    surroundings("")
    assert probe.run("oneshot_bf16")["calls"] == 9


STOPPED = "rank 1 did not come back from 'oneshot_bf16: call 1 of 9, 7x512, in_place: launching' within "


def test_a_rank_whose_process_is_stopped_is_told_from_the_one_that_waits_for_it(probe, surroundings, monkeypatch):
    monkeypatch.setattr(probe, "STALL_S", 1)
    monkeypatch.setattr(probe, "WAITING", "1 of 9, 7x512, in_place: launching")  # here the launch itself waits
    assert ask(probe, "twoshot_bf16") is None
    surroundings("stops@1")
    first = str(ask(probe, "oneshot_bf16")).splitlines()[0]
    assert first.startswith(STOPPED)
    assert re.search(r"s \(its process is stopped by a signal(, .*)?\); rank 0 waits for another rank in '", first)


@pytest.mark.parametrize("started", ["forked"], indirect=True)
def test_forked_ranks_that_hang_in_a_call_are_not_asked_again(probe, surroundings, monkeypatch):
    """A kernel that hangs now and then would do the second time."""
    asked = []
    ask = probe._Ranks.ask
    monkeypatch.setattr(probe._Ranks, "ask", lambda *args: asked.append(args) or ask(*args))
    monkeypatch.setattr(probe, "STALL_S", 1)
    surroundings("hangs@1")
    with pytest.raises(RuntimeError, match="did not come back"):
        probe.run("oneshot_bf16")
    assert len(asked) == 1


def test_of_a_two_shot_call_that_hangs_the_flags_are_told(probe, surroundings, monkeypatch):
    monkeypatch.setattr(probe, "STALL_S", 2)
    monkeypatch.setattr(probe, "LATE_S", 0.5)
    assert ask(probe, "twoshot_bf16") is None
    surroundings("hangs@1")
    said = str(ask(probe, "twoshot_bf16")).splitlines()[0]
    # Rank 0 has set its flags once more than rank 1, after 9 calls with two barriers each.
    assert "barrier flags by the rank that sets them: rank 0: [0, 19], rank 1: [0, 18]; before the call: 1" in said


def test_a_debugger_that_is_there_is_asked_for_the_kernels(probe, surroundings, monkeypatch, tmp_path):
    debugger = tmp_path / "bin" / "cuda-gdb"
    debugger.parent.mkdir()
    debugger.write_text('#!/bin/sh\necho "kernel 0 of $*"\n')
    debugger.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "STALL_S", 1)
    surroundings("hangs@1")
    said = r"cuda-gdb says:\nkernel 0 of -nx -batch -iex set auto-solib-add off -p \d+ -ex info cuda kernels"
    with pytest.raises(RuntimeError, match=said):
        probe.run("oneshot_bf16")


def test_too_little_memory_has_a_name_that_is_no_fault_of_the_kernel(probe, surroundings, monkeypatch):
    monkeypatch.setattr(probe, "GRACE_S", 0.5)
    surroundings("out_of_memory")
    with pytest.raises(RuntimeError, match=r"^rank 0: torch.OutOfMemoryError: CUDA out of memory") as caught:
        probe.run("oneshot_bf16")
    assert type(caught.value).__name__.endswith("OutOfMemoryError")


@pytest.mark.parametrize("started", ["fresh"], indirect=True)
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
        "measured = probe.run('oneshot_bf16'); pids = [process.pid for process in probe._ranks().processes]; "
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
    module = loading.load(NAME)
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
    assert probe._ranks.cache_info().currsize == forked
    assert probe.run("oneshot_bf16")["ranks"] == "forked"
