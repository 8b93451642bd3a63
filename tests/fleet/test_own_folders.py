"""Nodes that differ only in folders that carry their names are judged once, and no verdict is another by it."""

import json

import pytest
import simulated

from fi_doctor.fleet import identity, judging
from fi_doctor.fleet.reading import NodeReport

SESSION = "/tmp/ray/session_2026-11-30_02-22-{:02}_850613_1235{}/runtime_resources"


def with_own_folders(reports):
    """The same reports of nodes each of which has a cache, a home and a session of Ray's of its own."""
    for number, one in enumerate(reports):
        report = json.loads(one.found)
        place = f"/scratch/{one.name}"
        report["facts"]["environment"] |= {
            "HF_HOME": f"{place}/hf",
            "PYTHONPATH": f"{SESSION.format(number, number)}:{place}/site",
            "XDG_CACHE_HOME": place,
        }
        report["facts"]["machine"]["folders"][0]["path"] = f"{place}/tmp"
        yield NodeReport(one.name, json.dumps(report).encode())


@pytest.fixture
def never_alike(monkeypatch):
    def turn():
        monkeypatch.setattr(judging.Judge, "_new", lambda self, one: self._add(self._reader.sample(one), one))

    return turn


def verdicts(fleet):
    """By node: all that is decided of it."""
    return {
        node.name: (judging.verdicts(fleet.judged[node.judged]), node.code, node.row, node.verdict, node.evidence)
        for node in fleet.document.nodes
    }


@pytest.mark.parametrize("recorded", [False, True], ids=["judged anew", "as recorded"])
def test_a_node_is_judged_as_it_would_be_by_itself(merged, never_alike, recorded):
    reports = [*with_own_folders(simulated.fleet(11, nodes=12).reports)]
    together = merged(reports, as_recorded=recorded)
    never_alike()
    alone = merged(reports, as_recorded=recorded)
    assert verdicts(together) == verdicts(alone)
    assert [group.nodes for group in together.document.groups] == [group.nodes for group in alone.document.groups]
    assert len(together.judged) < len(alone.judged) == len(reports)


def test_any_number_of_such_nodes_are_two_judgements(merged):
    fleet = merged(with_own_folders(simulated.fleet(3, nodes=12, drifts=0).reports), as_recorded=False)
    assert [node.judged for node in fleet.document.nodes] == [0, *[1] * 11]


def test_where_verdicts_rest_on_such_a_folder_each_node_is_judged(merged, monkeypatch):
    judge = judging.Judge._judged

    def by_folder(self, report, *, as_recorded):
        """A rule to which a folder without a name is something else."""
        found = judge(self, report, as_recorded=as_recorded)
        if "<host>" in report.facts.environment["HF_HOME"]:
            return judging.replace(found, features=found.features[1:])
        return found

    monkeypatch.setattr(judging.Judge, "_judged", by_folder)
    fleet = merged(with_own_folders(simulated.fleet(3, nodes=5, drifts=0).reports), as_recorded=True)
    assert [node.judged for node in fleet.document.nodes] == [0, 1, 2, 3, 4]
    assert len({len(judged.features) for judged in fleet.judged}) == 1


def test_only_a_whole_folder_of_a_path_is_one_of_its_own():
    own = identity.folders("gpu17.rack4", "rack/node-7")
    assert own.without("/home/node-7/x:/a/gpu17:/b/gpu17.rack4/c") == "/home/<host>/x:/a/<host>:/b/<host>/c"
    for text in ("/usr/local/cuda-12.8", "node-7", "/home/node-70/x", "/home/my-node-7/x", "/gpu17x", "session_1"):
        assert own.without(text) == text
        assert not own.are_in(text)
    session = SESSION.format(7, 7)
    assert own.are_in(session)
    assert own.without(session) == "/tmp/ray/<host>/runtime_resources"
    assert identity.folders("", "head").without("/home/head/x") == "/home/head/x"  # any folder may be called so
