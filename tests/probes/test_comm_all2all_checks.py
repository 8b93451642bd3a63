"""The all-to-all probe on the CPU: two real processes, and a stand-in for FlashInfer, right or wrong."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import forked_ranks
import loading
import pytest

pytest.importorskip("torch")

PROBE = loading.PROBES / "comm_all2all.py"
FAKE = Path(__file__).parent / "fake_flashinfer"
ROUNDS = (
    (9, 17, 512, 8, "random"),
    (1, 1, 1024, 8, "random"),
    (5, 30, 512, 2, "second"),
    (60, 50, 1024, 2, "random"),
    (7, 3, 512, 1, "abroad"),
    (7, 3, 512, 4, "home"),
    (8, 13, 512, 8, "repeated"),
    (13, 1, 512, 2, "first"),
)
VARIANTS = ("two_sided_bf16", "two_sided_fp8", "one_sided_bf16", "one_sided_fp8", "moe_ep_bf16", "moe_ep_fp8")
MOVED = {  # fault -> what is said of it, in every variant
    "token_lost": "tokens have come|that no token has",
    "token_twice": "tokens are missing, others came twice",
    "token_of_other_rank": "tokens are missing|that no token has",
    "states_of_neighbour": "rows have other hidden states",
    "states_one_bit": "1 of .* rows have other hidden states, 1 of ",
    "states_tail_unwritten": "1 of .* rows have other hidden states",
    "states_stale": "1 of .* rows have other hidden states",
    "states_changed": "the hidden states that were given have been changed",
    "ids_of_neighbour": "rows have other expert ids",
    "ids_one_bit": "rows have other expert ids",
    "ids_changed": "the expert ids that were given have been changed",
    "weights_of_neighbour": "rows have weights that no token has|tokens are missing",
    "weights_one_bit": "rows have weights that no token has",
    "weights_stale": "rows have weights that no token has",
    "weights_changed": "the weights that were given have been changed",
    "padding_not_marked": r"rows without a token do not say expert (-1|16)",
    "rank_left_out": "sums are wrong",
    "rank_counted_twice": "sums are wrong",
    "sums_swapped": "sums are wrong",
    "one_sum_off": r"1 of \d+ sums are wrong, the first at \(\d+, 0\)",
    "last_sums_unwritten": "sums are wrong",
    "nan_element": "got nan",
    "states_of_neighbour@1": "rank 1: .*rows have other hidden states",
}
SCALES = {
    "scales_of_neighbour": "rows have other scales",
    "scales_one_bit": "1 of .* rows have other scales, 1 of ",
    "scales_changed": "the scales that were given have been changed",
}
TWO_SIDED = {
    "counts_swapped": "it says that up to each rank",
    "foreign_expert_kept": "rows have other expert ids",
}
GRAPH = {
    "graph_does_nothing": "rows have weights that no token has",
    "graph_keeps_states": "rows have other hidden states",
    "graph_keeps_ids": "expert ids|tokens|weights",
    "graph_keeps_weights": "rows have weights that no token has",
}


def faults_of(variant):
    """Fault -> what is said of it: all of them for BF16; else those of what the variant alone hands over."""
    found = {} if variant.endswith("bf16") else SCALES
    if "moe_ep" in variant:
        few = ("states_one_bit", "ids_one_bit", "weights_one_bit", "padding_not_marked", "one_sum_off")
        return {**found, **{fault: MOVED[fault] for fault in few}, "output_unwritten": "got nan"}
    if variant.endswith("fp8"):
        return {**found, **{fault: said for fault, said in MOVED.items() if fault.startswith("states")}}
    return {**MOVED, **(TWO_SIDED if "two_sided" in variant else {})}


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


@pytest.fixture
def started(surroundings):
    """The probe with fewer tokens, as it starts its ranks itself; if it has started any, they are ended."""
    module = loading.load("comm_all2all", ROUNDS=ROUNDS, REPLAYED=(11, 11, 512, 8, "random"))
    yield module
    if module._ranks.cache_info().currsize:
        module._end_ranks()


@pytest.fixture
def probe(started, monkeypatch):
    """The same with ranks that are forked."""
    monkeypatch.setattr(started, "subprocess", forked_ranks.instead_of_subprocess(FAKE))
    return started


def test_right_numbers_pass_in_every_variant_with_the_same_two_processes(started):
    probe = started
    ranks = probe._ranks()
    for variant in probe.PROBE["variants"]:
        measured = probe.run(variant)
        assert measured["rounds"] == (3 if variant.startswith("graph_") else len(ROUNDS))
        assert measured["rows"] > 50
        assert measured["sums"] > 30000
        assert measured["memory"] == "cuMemCreate, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"
    assert probe._ranks() is ranks
    assert all(process.poll() is None for process in ranks.processes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_fault_is_caught(probe, surroundings, variant):
    """Two ranks for all: the stand-in keeps its protocol whatever it moves."""
    ranks, rounds, missed = probe._ranks(), [probe._rounds(variant)[number] for number in (0, 1, 3)], {}
    for fault, said in faults_of(variant).items():
        surroundings(fault)
        verdict = probe._verdict(ranks.ask(variant, rounds, time.monotonic() + 90))
        if not (isinstance(verdict, AssertionError) and re.search(said, str(verdict))):
            missed[fault] = verdict
    surroundings("")
    assert probe._verdict(ranks.ask(variant, rounds, time.monotonic() + 90)) is None
    assert not missed


@pytest.mark.parametrize("kind", ["two_sided", "one_sided", "moe_ep"])
def test_what_a_graph_wrongly_keeps_is_caught(probe, surroundings, kind):
    variant = f"graph_{kind}_bf16"
    ranks, missed = probe._ranks(), {}
    for fault, said in GRAPH.items():
        surroundings(fault)
        verdict = probe._verdict(ranks.ask(variant, probe._rounds(variant), time.monotonic() + 90))
        if not (isinstance(verdict, AssertionError) and re.search(said, str(verdict))):
            missed[fault] = verdict
    assert not missed


def test_every_kind_of_routing_is_among_the_rounds_and_some_rank_gets_nothing():
    module = loading.load("comm_all2all")
    rounds = module.ROUNDS
    assert {which for *_, which in rounds} == {"random", "repeated", "first", "second", "home", "abroad"}
    assert {top_k for *_, top_k, _ in rounds} == {1, 2, 4, 8}
    # One channel's FIFO holds 8 entries of 256 KiB: half of an H200's 132 multiprocessors make 33 channels.
    entry = 256 * 1024 // (-(-7168 * 2 // 1920) * 2048)
    assert max(tokens for tokens, _, hidden, *_ in rounds if hidden == 7168) > 8 * entry * 33
    fp8 = module._rounds("two_sided_fp8")
    assert all(hidden % module.FP8_STEP == 0 for _, _, hidden, *_ in fp8)


def test_sums_are_numbers_that_bf16_holds():
    module = loading.load("comm_all2all")
    most = max(
        sum(module.LARGEST * (rank + 1) * count for rank, count in enumerate(counts))
        for top_k in (1, 2, 4, 8)
        for counts in [(top_k - other, other) for other in range(top_k + 1)]
    )
    assert most == 256
    assert len(module.ROUNDS) * module.NEXT_ROUND + module.NEXT_ROUND < 1 / module.ONE
    assert max(max(one, other) * top_k for one, other, _, top_k, _ in module.ROUNDS) < module.NEXT_ROUND


@pytest.mark.parametrize(
    ("fault", "first_line"),
    [
        (
            "segfault@1",
            "rank 1 was killed by SIGSEGV at 'two_sided_bf16: round 1, 9+17 tokens of 512, 8 experts, random: ",
        ),
        ("raises@1", "rank 1: ValueError: allreduce_fusion_op failed with error code"),
        (
            "not_permitted",
            "rank 0: RuntimeError: pidfd_getfd(pidfd=9, fd=9) failed with errno 1: Operation not permitted",
        ),
    ],
)
def test_a_rank_that_fails_is_named_and_both_are_ended(fault, first_line, probe, surroundings, monkeypatch):
    monkeypatch.setattr(probe, "GRACE_S", 0.5)
    surroundings(fault)
    ranks = probe._ranks()
    with pytest.raises(RuntimeError) as caught:
        probe.run("two_sided_bf16")
    assert str(caught.value).startswith(first_line)
    assert all(process.poll() is not None for process in ranks.processes)
    assert not ranks.path.exists()
    surroundings("")
    assert probe.run("one_sided_bf16")["rounds"] == len(ROUNDS)


def test_links_that_are_down_are_said_in_flashinfers_words(probe, surroundings):
    surroundings("link_down@1")
    with pytest.raises(
        RuntimeError, match=r"^rank 0: RuntimeError: NVLink backends are not supported on EP ranks \[1\]"
    ):
        probe.run("moe_ep_bf16")


def test_a_rank_that_hangs_is_named_with_where_it_hangs(started, surroundings, monkeypatch):
    probe = started  # a stack that begins with the rank, of which the last lines are said
    assert probe.run("two_sided_bf16")  # the start does not count
    monkeypatch.setattr(started, "SPARE_S", probe.PROBE["timeout_s"] - 2)
    surroundings("hangs@1")
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        probe.run("one_sided_bf16")
    assert time.monotonic() - begun < 20
    first = str(caught.value).splitlines()[0]
    label = "one_sided_bf16: round 1, 9+17 tokens of 512, 8 experts, random"
    assert f"rank 1 did not come back from '{label}: dispatching' within 2 s" in first
    assert "in misbehave" in str(caught.value)  # Python's stack


def test_what_a_rank_cannot_import_is_said_with_its_words(started, monkeypatch, tmp_path):
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer" / "__init__.py").write_text("raise RuntimeError('libcudart is not loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^rank 0: RuntimeError: libcudart is not loaded; rank 1: RuntimeError"):
        started.run("two_sided_bf16")


@pytest.mark.usefixtures("surroundings")
def test_no_rank_outlives_its_parent():
    code = (
        "import importlib.util, os, sys; spec = importlib.util.spec_from_file_location('probe', sys.argv[1]); "
        "probe = importlib.util.module_from_spec(spec); spec.loader.exec_module(probe); "
        "print(*[process.pid for process in probe._ranks().processes], flush=True); os.kill(os.getpid(), 9)"
    )
    said = subprocess.run([sys.executable, "-c", code, PROBE], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    pids = said.split()
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(map(_is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(_is_alive, pids))


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_no_rank_is_allowed_to_make_a_multicast_object():
    """Neither by what FlashInfer is asked for, nor by a library that does it by itself."""
    module = loading.load("comm_all2all")
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"):
        assert module.RANK_ENVIRONMENT[name] in {"0", "1"}
    code = PROBE.read_text().split('"""', 2)[2].replace("TORCH_SYMM_MEM_DISABLE_MULTICAST", "")
    assert not re.search(r"Mcast|SymmDevice|symm_mem|[Mm]ulticast_|allreduce", code)
