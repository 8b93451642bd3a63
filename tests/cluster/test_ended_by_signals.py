"""A signal while a cluster is asked: what has come is told, the rest is cancelled, and the signal ends the command."""

import contextlib
import json

import pytest
from fake_grid import FakeGrid, ended, node

from fi_doctor.cli import fleet, ray_nodes
from fi_doctor.cli.fleet import AskedFleet
from fi_doctor.cluster import collectives, warming
from fi_doctor.cluster.grid import Node
from fi_doctor.errors import UsageError
from fi_doctor.fleet.reading import NodeReport
from fi_doctor.knowledge import examples


class Interrupted(FakeGrid):
    """A cluster of which nobody more answers when this many have: then a signal comes."""

    def __init__(self, *nodes, after, **options):
        super().__init__(*nodes, **options)
        self.after = after

    def wait(self, timeout_s):
        if not self.after:
            raise KeyboardInterrupt
        self.after -= 1
        return super().wait(timeout_s)

    def reserve(self, bundles, strategy, wait_s):
        return "group"

    def release(self, group):
        self.cancelled.append(group)

    def bundle_nodes(self, group):
        return ("id-a", "id-b")


@pytest.fixture
def cluster(monkeypatch):
    """Of three nodes two answer, and then a signal comes; the driver's own check is not over."""
    report = examples.data("h200")
    found = Interrupted(*map(node, "abc"), after=2, results=dict.fromkeys("ab", ended(report)))
    monkeypatch.setattr(ray_nodes, "grid", lambda asked, environments=None: contextlib.nullcontext(found))
    monkeypatch.setattr(ray_nodes, "_driver", lambda: NodeReport("driver", report))
    return found


def test_a_driver_that_no_node_is_is_refused_before_anything_is_asked(cluster):
    with pytest.raises(UsageError, match="there is no node 'nobody'"):
        fleet.check(AskedFleet(driver="nobody", no_config=True))
    assert cluster.orders == []


def test_who_has_answered_is_told_and_who_has_not(cluster, tmp_path, capsys):
    out = tmp_path / "fleet.json"
    with pytest.raises(KeyboardInterrupt):
        fleet.check(AskedFleet(formats=(f"json:{out}",), no_config=True))
    told = json.loads(out.read_text())
    assert [one["name"] for one in told["nodes"]] == ["a", "b"]
    assert [(one["name"], one["what"]) for one in told["unread"]] == [("c", "it had not answered yet")]
    assert told["gate"]["code"] == 3
    assert told["notes"][0].startswith("Ended by a signal")
    assert cluster.cancelled == ["c"]
    assert "(exit" not in capsys.readouterr().err  # the code is that of the signal


def test_where_nobody_has_answered_nothing_is_written(cluster, tmp_path):
    cluster.after = 0
    with pytest.raises(KeyboardInterrupt):
        fleet.check(AskedFleet(formats=(f"json:{tmp_path / 'fleet.json'}",), no_config=True))
    assert not list(tmp_path.iterdir())
    assert cluster.cancelled == ["a", "b", "c"]


def test_a_signal_after_the_last_answer_loses_none(cluster, tmp_path, monkeypatch):
    cluster.after, cluster.all = 2, cluster.all[:2]
    merging, calls = ray_nodes.RayNodes.reports, []

    def reports(self):
        yield from merging(self)
        calls.append(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(ray_nodes.RayNodes, "reports", reports)
    out = tmp_path / "fleet.json"
    with pytest.raises(KeyboardInterrupt):
        fleet.check(AskedFleet(formats=(f"json:{out}",), no_config=True))
    assert calls
    told = json.loads(out.read_text())
    assert ([one["name"] for one in told["nodes"]], told["unread"]) == (["a", "b"], [])


def test_ranks_are_cancelled_and_their_gpus_given_back():
    port = ended(b'\n@fi-doctor-rank {"kind": "port", "port": 4242}\n')
    grid = Interrupted(node("a"), node("b"), after=1, results={"a": port})
    with pytest.raises(KeyboardInterrupt):
        collectives.run(grid, collectives.Asked(tp=1, pp=2), [].append)
    assert grid.cancelled == ["a", "b", "group"]


def test_what_fills_caches_is_cancelled():
    grid = Interrupted(node("a"), node("b"), after=1, never=("b",))
    kind = warming.Kind("13.0", "0.7.2", ("9.0a",), "/site", "/cache")
    nodes: list[Node] = list(grid.nodes())
    with pytest.raises(KeyboardInterrupt):
        warming.warm(grid, {kind: nodes}, warming.Asked((), "", 60.0), [].append)
    assert grid.cancelled == ["b"]
