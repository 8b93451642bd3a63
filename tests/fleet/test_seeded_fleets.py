"""Drifts of real kinds are told by the one fact that a person would name, and nothing that differs by nature is."""

import copy
import json
import random

import pytest
import simulated

from fi_doctor.fleet.reading import NodeReport
from fi_doctor.model.fleet import Weight


def test_each_kind_of_drift_is_told_by_its_fact(merged):
    """Each on a node of its own, so that of every fact most nodes have the same."""
    chance, base, truth, reports = random.Random(7), simulated.light(simulated.base(gpus=4)), {}, []
    for number, drift in enumerate((*simulated.DRIFTS, *[None] * 3)):
        mine = copy.deepcopy(base)
        if drift:
            truth[f"node-{number}"] = drift(mine["facts"])
        simulated.vary(mine, chance, f"node-{number}")
        reports.append(NodeReport(f"node-{number}", json.dumps(mine).encode()))
    found = merged(reports).document
    odd = {group.nodes: [drift.fact for drift in group.drifts] for group in found.groups if group.is_odd}
    assert odd == {(node,): [fact] for node, fact in truth.items()}
    assert not found.splits
    assert all(1 <= len(group.said) <= 2 for group in found.groups if group.is_odd)
    assert {line for group in found.groups for line in group.said if "cached" in line} >= {
        "node-1: cached sampling.so links libcudart.so.12, most .13"
    }


@pytest.mark.parametrize("seed", [6, 104])
def test_several_drifts_on_several_nodes_are_told_exactly(merged, seed):
    fleet = simulated.fleet(seed, nodes=16)
    told = {}
    for group in merged(fleet.reports).document.groups:
        for drift in group.drifts:
            told[drift.fact] = told.get(drift.fact, frozenset()) | frozenset(group.nodes)
    assert told == fleet.truth


@pytest.mark.parametrize("seed", [0, 2])
def test_of_nodes_that_differ_by_nature_none_is_odd(merged, seed):
    found = merged(simulated.fleet(seed, nodes=8, drifts=0).reports).document
    assert [(len(group.nodes), group.is_odd, group.said) for group in found.groups] == [(8, False, ())]
    assert found.splits == ()
    assert "none is odd" in found.gate.reason


def test_the_difference_on_which_a_verdict_depends_comes_first(merged):
    """A variable that nothing reads, and the GPUs: by today's knowledge rows stand otherwise on those."""
    base, chance, reports = simulated.base(gpus=2), random.Random(1), []
    for number in range(4):
        mine = copy.deepcopy(base)
        if number == 3:
            simulated.kernel(mine["facts"])
            simulated.other_gpu(mine["facts"])
        simulated.vary(mine, chance, f"node-{number}")
        reports.append(NodeReport(f"node-{number}", json.dumps(mine).encode()))
    group = merged(reports, as_recorded=False).document.groups[1]
    assert [(drift.fact, drift.weight) for drift in group.drifts] == [
        ("gpus.sm", Weight.VERDICT),
        ("system.kernel", Weight.NOTHING),
    ]
    assert group.drifts[0].rows
    assert {one.fact for one in group.drifts[0].follows} >= {"gpus.name", "flashinfer.cache_dir"}
    assert group.said[0].startswith("node-3: SM 80, the others 90")
