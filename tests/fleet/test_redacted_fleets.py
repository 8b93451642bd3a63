"""`--redact`: a fleet for strangers says all but who and where the nodes are."""

import json

import pytest
import simulated
from test_grouping import nodes

from fi_doctor.fleet import rendering
from fi_doctor.fleet.reading import NodeReport

NAMES = ("gpu17", "gpu18", "gpu19", "gpu20")
OF_SOMEBODY = (*NAMES, "rack4", "alice", "GPU-", "10.1.2.3", "oldfile")


def owned(change=None):
    def own(facts):
        name = facts["system"]["hostname"]
        facts["system"]["hostname"] = f"{name}.rack4.corp"
        facts["environment"].update(
            HF_HOME=f"/home/alice/{name}/hf", NCCL_NOTE="from 10.1.2.3", VLLM_HOST_IP="10.1.2.3"
        )
        facts["toolkit"]["ninja"] = {"kind": "missing", "reason": f"{name}.rack4.corp has no ninja"}
        if change is not None:
            change(facts)

    return own


def other(facts):
    simulated.libc(facts)
    facts["environment"].update(HF_HOME="/home/alice/other", NCCL_NOTE="gpu17 was reinstalled")


def fleet(merged, **options):
    reports = nodes(*[owned()] * 3, owned(other), names=NAMES)
    old = json.loads(reports[0].found) | {"created": "2020-01-01T00:00:00+00:00"}
    reports = [one._replace(source=f"/home/alice/rack4/{one.name}.json") for one in reports]
    reports.append(NodeReport("oldfile", json.dumps(old).encode(), "/home/alice/oldfile.json"))
    reports.append(NodeReport("gpu21", reports[0].found[:900], "/home/alice/gpu21.json"))
    return merged(reports, driver="gpu18", **options)


@pytest.mark.parametrize("form", rendering.FORMATS)
@pytest.mark.parametrize("as_recorded", [True, False], ids=["as-recorded", "judged-today"])
def test_no_format_tells_whose_nodes_they_are(merged, form, as_recorded):
    plain = rendering.render(fleet(merged, as_recorded=as_recorded), form)
    text = rendering.render(fleet(merged, as_recorded=as_recorded, strangers={"USER": "alice"}), form)
    assert [name for name in (*OF_SOMEBODY, "gpu21") if name in text] == []
    assert "gpu17" in plain


def test_all_else_stays(merged):
    plain, hidden = fleet(merged).document, fleet(merged, strangers={}).document
    assert hidden.gate.code == plain.gate.code
    assert [node.code for node in hidden.nodes] == [node.code for node in plain.nodes]
    assert [node.name for node in hidden.nodes] == [f"<node {number}>" for number in range(1, 5)]
    assert [one.name for one in hidden.unread] == ["<node 5>"]
    assert hidden.driver == "<node 2>"
    assert hidden.notes == ("1 of the reports are older than another of their node: left out",)
    (odd,) = (group for group in hidden.groups if group.is_odd)
    assert odd.nodes == ("<node 4>",)
    facts = [[drift.fact for drift in group.drifts] for group in plain.groups if group.is_odd]
    assert [[drift.fact for drift in odd.drifts]] == facts
    assert "system.libc" in facts[0]
