"""Who is odd: a fact that most nodes have otherwise makes a node so, and half against half makes nobody so."""

import copy
import json
import random

import pytest
import simulated

from fi_doctor.errors import UsageError
from fi_doctor.fleet.reading import NodeReport

BASE = simulated.light(simulated.base(gpus=2))


def nodes(*changes, names=None, base=BASE):
    """A report for each change of facts; None: none."""
    chance, reports = random.Random(3), []
    for number, change in enumerate(changes):
        mine, name = copy.deepcopy(base), names[number] if names else f"node-{number}"
        simulated.vary(mine, chance, name)
        mine["facts"]["environment"].pop("VLLM_HOST_IP")
        if change is not None:
            change(mine["facts"])
        reports.append(NodeReport(name, json.dumps(mine).encode(), f"{name}.json"))
    return reports


def test_half_against_half_names_both_and_nobody_is_odd(merged):
    found = merged(nodes(*[None] * 3, *[simulated.driver] * 3)).document
    assert [group.is_odd for group in found.groups] == [False, False]
    assert [split.fact for split in found.splits] == ["gpus.driver.version"]
    assert found.splits[0].said == ("driver 580.159.04 on node-0, node-1, node-2, 570.86.10 on node-3, node-4, node-5")
    assert "no fact decides who is odd" in found.gate.reason


def test_two_nodes_that_differ_are_told_against_each_other(merged):
    found = merged(nodes(None, simulated.nvcc)).document
    assert [split.fact for split in found.splits] == ["toolkit.jit.nvcc.version"]
    assert not any(group.is_odd for group in found.groups)


def test_within_a_half_a_node_can_still_be_odd(merged):
    def both(facts):
        simulated.driver(facts)
        simulated.shared_memory(facts)

    found = merged(nodes(*[None] * 3, *[simulated.driver] * 2, both)).document
    odd = [(group.nodes, [drift.fact for drift in group.drifts]) for group in found.groups if group.is_odd]
    assert odd == [(("node-5",), ["system.shm_mib"])]
    assert [split.fact for split in found.splits] == ["gpus.driver.version"]


def test_groups_are_told_by_their_size(merged):
    found = merged(nodes(*[None] * 7, simulated.driver, simulated.driver, simulated.kernel)).document
    assert [len(group.nodes) for group in found.groups] == [7, 2, 1]


def test_one_report_alone_is_no_drift(merged):
    found = merged(nodes(None)).document
    assert [(group.nodes, group.is_odd) for group in found.groups] == [(("node-0",), False)]
    assert found.gate.reason.startswith("1 node: 1 holds")


def test_a_node_that_only_its_verdicts_set_apart_is_odd_without_a_fact(merged):
    def break_a_row(report):
        row = next(one for one in report["features"] if one["verdict"] == "works")
        row.update(verdict="broken", evidence="ran", why="it crashed")

    reports = nodes(*[None] * 5)
    told = json.loads(reports[4].found)
    break_a_row(told)
    found = merged([*reports[:4], reports[4]._replace(found=json.dumps(told).encode())]).document
    odd = next(group for group in found.groups if group.is_odd)
    assert odd.nodes == ("node-4",)
    assert odd.drifts == ()
    assert odd.said[0].startswith("node-4: nothing that configures it differs; ")
    assert " broken, the others works" in " ".join(" ".join(odd.said).split())
    assert found.gate.code == 1
    assert {node.name: node.code for node in found.nodes}["node-4"] == 1


def with_verdicts(*verdicts):
    """Nodes of equal facts, each with a verdict of one row."""
    reports = nodes(*[None] * len(verdicts))
    for number, verdict in enumerate(verdicts):
        told = json.loads(reports[number].found)
        row = next(one for one in told["features"] if one["feature"] == "comm.all2all")
        row.update(verdict=verdict)
        reports[number] = reports[number]._replace(found=json.dumps(told).encode())
    return reports


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (
            ("broken", "works", "unsupported", "wrong-result"),
            "comm.all2all on SM90: broken on node-0, works on node-1, unsupported on node-2, wrong-result on node-3",
        ),
        (
            ("works", "broken", "works", "broken", "unsupported"),
            "comm.all2all on SM90: works on node-0, node-2, broken on node-1, node-3, unsupported on node-4",
        ),
        (("broken", "works"), "comm.all2all on SM90: broken on node-0, works on node-1"),
    ],
)
def test_verdicts_without_a_majority_name_all_sides_and_nobody_is_odd(merged, verdicts, said):
    found = merged(with_verdicts(*verdicts)).document
    assert not any(group.is_odd or group.said or group.rows for group in found.groups)
    assert [(one.fact, one.said, one.rows) for one in found.splits] == [
        ("features[comm.all2all on SM90].verdict", said, ("comm.all2all on SM90",))
    ]
    assert "no verdict decides who is odd" in found.gate.reason


def test_who_has_a_verdict_otherwise_than_two_thirds_is_odd_and_most_are_not_all(merged):
    found = merged(with_verdicts("works", "works", "works", "works", "broken", "unsupported")).document
    assert found.splits == ()
    odd = [" ".join(" ".join(group.said).split()) for group in found.groups if group.is_odd]
    assert odd == [
        "node-4: nothing that configures it differs; comm.all2all on SM90 broken, most works",
        "node-5: nothing that configures it differs; comm.all2all on SM90 unsupported, most works",
    ]


def test_a_verdict_that_goes_with_a_fact_without_majority_is_told_by_the_fact(merged):
    reports = with_verdicts(*["works"] * 3, *["broken"] * 3)
    for number in (3, 4, 5):
        told = json.loads(reports[number].found)
        simulated.driver(told["facts"])
        reports[number] = reports[number]._replace(found=json.dumps(told).encode())
    found = merged(reports).document
    assert [one.fact for one in found.splits] == ["gpus.driver.version"]
    assert not any(group.is_odd for group in found.groups)


def test_on_a_side_of_a_split_most_are_those_of_that_side_and_else_those_of_all(merged):
    def told(*verdicts):
        reports = with_verdicts(*verdicts)
        for number in (0, 1, 2):
            changed = json.loads(reports[number].found)
            simulated.driver(changed["facts"])
            reports[number] = reports[number]._replace(found=json.dumps(changed).encode())
        found = merged(reports).document
        return [" ".join(" ".join(group.said).split()) for group in found.groups if group.is_odd]

    start, row = "nothing that configures it differs; comm.all2all on SM90", "unsupported, most that are configured so"
    assert told(*["broken"] * 3, "works", "works", "unsupported") == [f"node-5: {start} {row} works"]
    assert told(*["works"] * 3, "works", "broken") == [f"node-4: {start} broken, the others works"]


def test_a_node_whose_gpus_are_taken_is_judged_by_itself(merged):
    """Free memory is no drift, and a rule asks for it: what today's knowledge says of one node holds for no other."""
    reports = nodes(None, None, None, None)
    told = json.loads(reports[2].found)
    for gpu in told["facts"]["gpus"]["gpus"]:
        gpu["memory_free_mib"] = 900
    found = merged([*reports[:2], reports[2]._replace(found=json.dumps(told).encode()), reports[3]], as_recorded=False)
    odd = [group for group in found.document.groups if group.is_odd]
    assert [(group.nodes, group.drifts) for group in odd] == [(("node-2",), ())]
    assert "the finding gpu-memory-taken" in " ".join(" ".join(odd[0].said).split())


def test_variables_that_workers_lack_are_told_against_the_driver(merged):
    def set_there(facts):
        facts["environment"]["VLLM_ATTENTION_BACKEND"] = "FLASHINFER"
        facts["environment"]["GLOO_SOCKET_IFNAME"] = "eth9"

    found = merged(nodes(set_there, None, None), driver="node-0").document
    told = {one.name: one.is_copied for one in found.variables}
    assert found.driver == "node-0"
    assert told == {"GLOO_SOCKET_IFNAME": False, "VLLM_ATTENTION_BACKEND": True}
    assert "not set on node-1, node-2; vLLM does not hand it to Ray workers" in found.variables[0].said


def test_a_driver_that_tells_nothing_is_named_and_the_fleet_is_told(merged):
    found = merged(nodes(None, None), driver=NodeReport("head", b"{")).document
    assert (found.driver, found.variables) == ("", ())
    assert found.notes == ('The driver\'s variables are not known: "head" is not a fi-doctor report',)


def test_a_driver_among_the_nodes_that_is_not_read_costs_its_variables_only(merged):
    one, two = nodes(None, None)
    found = merged([one, two, NodeReport("head", b"{")], driver="head").document
    assert [node.name for node in found.nodes] == ["node-0", "node-1"]
    assert found.notes == ('The driver\'s variables are not known: "head" is not a fi-doctor report',)


def test_reports_of_other_depths_say_so(merged):
    reports = nodes(None, None, None)
    told = json.loads(reports[2].found)
    told["request"]["depth"] = "static"
    found = merged([*reports[:2], reports[2]._replace(found=json.dumps(told).encode())]).document
    odd = [(group.nodes, group.said) for group in found.groups if group.is_odd]
    assert odd == [(("node-2",), ("node-2: checked at depth static, the others run",))]


def test_a_driver_that_is_no_node_is_a_mistake(merged):
    with pytest.raises(UsageError, match="there is no node 'node-x'"):
        merged(nodes(None, None), driver="node-x")


def test_the_deciding_line_gives_no_node_the_reason_of_another(merged):
    found = merged(with_verdicts("broken", "broken", "wrong-result")).document
    assert found.gate.reason == (
        "3 nodes: 0 hold, 3 fail, 1 odd; node-0, node-1: 1 row works, 1 broken, 2 unknown: comm.all2all on SM90: "
        "numbers agree with the reference; 1 otherwise"
    )
    alike = merged(with_verdicts("broken", "broken")).document.gate.reason
    assert "otherwise" not in alike
    assert "node-0, node-1: 1 row works, 1 broken" in alike


def test_of_equal_weights_another_gpu_is_told_before_a_variable(merged):
    def both(facts):
        facts["environment"]["CUDA_VISIBLE_DEVICES"] = "0,1"
        facts["environment"]["NVIDIA_VISIBLE_DEVICES"] = "all"
        for gpu in facts["gpus"]["gpus"]:
            gpu["name"] = "NVIDIA H100 80GB HBM3"

    found = merged(nodes(*[None] * 3, both)).document
    [odd] = [group for group in found.groups if group.is_odd]
    assert odd.drifts[0].fact.startswith("gpus.")
    assert "H100" in odd.said[0]
