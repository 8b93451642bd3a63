import json

import pytest
from fake_grid import ended, node

from fi_doctor.cluster import ranks
from fi_doctor.cluster.grid import Lost
from fi_doctor.cluster.places import groups, place
from fi_doctor.inside import rank as script

ELEMENTS = (1, 1000)
LIMIT = "it did not go on and was killed"


def said(*lines, **how):
    text = "".join(f"{ranks.MARK}{json.dumps(line)}\n" for line in lines)
    return ended(text.encode(), **how)


def steps(*names, wrong="", until=None):
    """Lines of steps that were done, then of one that only began."""
    told = []
    for name in names:
        told += [{"kind": "begun", "step": name}, {"kind": "done", "step": name, "seconds": 0.5, "wrong": wrong}]
    return [*told, {"kind": "begun", "step": until}] if until else told


def all_steps(backend="gloo"):
    return [
        ranks.MEET,
        *(
            step
            for operation in ("all_reduce", "all_gather")
            for step in ranks.Group(backend, "tp", (0, 1), operation).steps(ELEMENTS)
        ),
    ]


def device(count=0):
    return {"kind": "device", "devices": count, "name": "NVIDIA H200" if count else ""}


END = {"kind": "end"}


def rows(*results):
    found = [ranks.read(number, f"node-{number}", result) for number, result in enumerate(results)]
    return {f"{row.backend} {row.operation}": row for row in ranks.rows(found, 2, 1, ELEMENTS)}


def test_ranks_that_agree_work_and_without_a_gpu_nccl_is_unknown():
    one = said(device(), *steps(*all_steps()), END)
    found = rows(one, one)
    assert [str(found[name].verdict) for name in ("gloo meet", "gloo all_reduce", "gloo all_gather")] == ["works"] * 3
    assert str(found["gloo all_reduce"].evidence) == "verified"
    assert (str(found["nccl all_reduce"].verdict), str(found["nccl all_reduce"].evidence)) == ("unknown", "none")
    assert found["nccl all_reduce"].why == "not run: torch sees no GPU on node-0, node-1"


def test_wrong_numbers_name_the_rank_and_the_size():
    good = said(device(), *steps(*all_steps()), END)
    bad = said(device(), *steps(*all_steps()[:2]), *steps(*all_steps()[2:], wrong="1 of 1000 elements are wrong"), END)
    found = rows(good, bad)
    assert str(found["gloo all_reduce"].verdict) == "wrong-result"
    assert found["gloo all_reduce"].why == "rank 1 on node-1, 1000 elements: 1 of 1000 elements are wrong"


def test_a_hang_names_the_rank_that_stopped_and_who_waits():
    first, second = all_steps()[:2]
    waits = said(device(), *steps(first, second, until=all_steps()[2]), code=None, timed_out=True)
    stops = said(device(), *steps(first, until=second), code=None, timed_out=True)
    row = rows(waits, stops)["gloo all_reduce"]
    assert (str(row.verdict), str(row.evidence)) == ("broken", "ran")
    assert row.why == f"rank 1 on node-1 stopped: {second}: {LIMIT}; rank 0 came further: {all_steps()[2]}"


def test_a_rank_that_never_meets_the_others_is_a_row_of_its_own():
    waits = said(device(), *steps("import torch", until=ranks.MEET), code=1)
    found = rows(waits, Lost("its node died", "preempted"))
    assert str(found["gloo meet"].verdict) == "broken"
    assert "rank 1 on node-1 stopped: before its first step: its node died (preempted)" in found["gloo meet"].why
    assert str(found["gloo all_reduce"].verdict) == "unknown"


def test_of_ranks_that_came_equally_far_the_frozen_one_is_named_first():
    waits = said(device(), *steps("import torch", until=ranks.MEET), code=1, stderr=b"Timeout (0:01:10)!")
    frozen = said(device(), *steps("import torch", until=ranks.MEET), code=None, timed_out=True)
    further = said(device(), *steps("import torch", ranks.MEET, until=all_steps()[1]), code=1)
    found = [ranks.read(number, "a", one) for number, one in enumerate((waits, frozen, further))]
    words = ranks.stopped(found)
    assert words.startswith(f"rank 1 on a stopped: {ranks.MEET}: {LIMIT}; so did rank 0; rank 2 came further")


def test_without_torch_nothing_is_known():
    lacks = said(
        {"kind": "begun", "step": "import torch"},
        {"kind": "raised", "step": "import torch", "seconds": 0.1, "error": "ModuleNotFoundError: No torch"},
        code=1,
    )
    row = rows(lacks, lacks)["gloo meet"]
    assert str(row.verdict) == "unknown"
    assert row.why.endswith("all 2 ranks stopped in the same step: import torch: ModuleNotFoundError: No torch")


@pytest.mark.parametrize(
    ("way", "evidence"), [("P2P/CUMEM", "verified"), ("NET/Socket/0", "verified"), ("NET/IB/0/GDRDMA", "predicted")]
)
def test_nccl_names_its_way_and_infiniband_is_only_predicted(way, evidence):
    log = f"n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}"
    one = said(device(1), *steps(*all_steps(), *all_steps("nccl")), END)
    one = one._replace(stderr=log.encode())
    row = rows(one, one)["nccl all_reduce"]
    assert (str(row.verdict), str(row.evidence)) == ("works", evidence)
    assert row.transports == (way.replace("/0", ""),)


def test_the_script_and_the_reader_have_the_same_mark():
    assert script.MARK == ranks.MARK


def test_stages_and_chains_are_those_of_vllm():
    assert groups(2, 3) == ([[0, 1], [2, 3], [4, 5]], [[0, 2, 4], [1, 3, 5]])


def test_stages_are_spread_over_nodes_where_there_are_enough():
    found = place([node("a", gpus=2), node("b", gpus=4), node("c", gpus=1)], 2, 2)
    assert (found.strategy, found.bundles, found.of_rank) == ("STRICT_SPREAD", (2, 2), (0, 0, 1, 1))


@pytest.mark.parametrize(("tp", "pp"), [(4, 1), (2, 2)])
def test_what_fits_on_one_node_only_is_packed_there(tp, pp):
    found = place([node("a", gpus=4)], tp, pp)
    assert (found.strategy, found.bundles, found.of_rank) == ("STRICT_PACK", (1, 1, 1, 1), (0, 1, 2, 3))


def test_what_does_not_fit_says_what_it_takes_and_what_is_there():
    words = place([node("a", gpus=2), node("b", gpus=8, alive=False)], 4, 2)
    assert words == "it takes 2 nodes with 4 GPUs each, or one with 8 GPUs; the nodes and their GPUs: a (2)"


def test_a_rank_that_somebody_stopped_is_named_with_what_is_known_of_it():
    first, second, *_ = all_steps()
    error = "it was stopped by a signal"
    stopped = said(device(), *steps(first, until=second), code=None, signal=9, timed_out=True, error=error)
    reset = {"kind": "raised", "step": second, "error": "RuntimeError: Connection closed by peer", "seconds": 6.0}
    waits = said(device(), *steps(first, until=second), reset, code=1)
    assert rows(waits, stopped)["gloo all_reduce"].why == (
        f"rank 1 on node-1 stopped: {second}: {error}; so did rank 0"
    )
