import json
from pathlib import Path

import pytest
from fake_grid import FakeGrid, ended, node

from fi_doctor.cluster import collectives, ranks
from fi_doctor.errors import CannotTellError
from fi_doctor.reports.collectives import render

LOG = Path(__file__).parent / "logs" / "nccl-2.28.9-h200-socket.txt"


def line(**told):
    return f"{ranks.MARK}{json.dumps(told)}\n".encode()


class Ranks(FakeGrid):
    """Rank 0's port is 2000; each rank says that it did every step but those named in `leaves`."""

    def __init__(self, *nodes, leaves=(), is_free=True):
        super().__init__(*nodes)
        self.leaves, self.is_free, self.released = set(leaves), is_free, []

    def reserve(self, bundles, strategy, wait_s):
        self.reserved = (bundles, strategy)
        return "group" if self.is_free else None

    def release(self, group):
        self.released.append(group)

    def bundle_nodes(self, group):
        return tuple(one.id for one in self.all[: len(self.reserved[0])])

    def wait(self, timeout_s):
        number, ticket = next(iter(self.open.items()))
        del self.open[number]
        words = ticket.order.words[0]
        if words == "port":
            return [(ticket, ended(line(kind="port", port=2000)))]
        plan = json.loads(words)
        steps = [ranks.MEET]
        for kind, operations in ranks.OPERATIONS.items():
            for members in plan[kind]:
                for operation in operations:
                    steps += ranks.Group("gloo", kind, tuple(members), operation).steps(plan["elements"])
        text = line(kind="device", devices=0, name="")
        for step in steps:
            if (plan["rank"], step) in self.leaves:
                return [(ticket, ended(text + line(kind="begun", step=step), code=None, timed_out=True))]
            text += line(kind="begun", step=step) + line(kind="done", step=step, seconds=0.1, wrong="")
        return [(ticket, ended(text + line(kind="end")))]


def run(grid, tp=1, pp=2):
    return collectives.run(grid, collectives.Asked(tp, pp), [].append)


def test_ranks_run_where_they_are_placed_and_the_gpus_are_given_back():
    grid = Ranks(node("a"), node("b"))
    done = run(grid)
    assert (done.code, done.reason) == (0, "3 collectives work, 0 do not, 2 are unknown")
    assert [(place.rank, place.node) for place in done.places] == [(0, "a"), (1, "b")]
    assert grid.reserved == ((1, 1), "STRICT_SPREAD")
    assert grid.released == ["group"]
    first, *others = grid.orders
    assert (first.words, first.gpus, [order.gpus for order in others]) == (("port",), 0, [1, 1])
    assert {json.loads(order.words[0])["port"] for order in others} == {2000}


def test_multicast_is_off_in_every_rank():
    grid = Ranks(node("a"), node("b"))
    run(grid)
    for order in grid.orders:
        variables = dict(order.variables)
        assert variables["NCCL_NVLS_ENABLE"] == "0"
        assert variables["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == variables["NVSHMEM_DISABLE_NVLS"] == "1"


def test_a_rank_that_stops_fails_the_whole_and_is_named_in_the_text():
    step = ranks.Group("gloo", "pp", (0, 1), "hand_over").steps(collectives.ELEMENTS)[0]
    done = run(Ranks(node("a"), node("b"), leaves=[(1, step)]))
    assert done.code == 1
    text = " ".join(render(done, "console").split())
    assert f"rank 1 on b stopped: {step}: it did not go on and was killed" in text
    assert json.loads(render(done, "json"))["code"] == 1


def test_who_is_waited_for_is_told_and_how_long():
    assert collectives.waiting([1], 88.4) == "waiting for rank 1: 88 s at most"
    assert collectives.waiting([0, 3], 5) == "waiting for ranks 0, 3: 5 s at most"


def test_what_does_not_fit_is_planned_and_not_run():
    grid = Ranks(node("a"))
    done = run(grid, tp=4)
    assert (done.code, done.rows, grid.orders) == (3, (), [])
    assert "2 nodes with 4 GPUs each" in done.reason


def test_gpus_that_do_not_come_free_are_told():
    with pytest.raises(CannotTellError, match="were not free at once within 600 s") as error:
        run(Ranks(node("a"), node("b"), is_free=False))
    assert error.value.why == "a: 0 of 1 GPUs free; b: 0 of 1 GPUs free"


def test_logs_tell_the_way_and_no_verdict():
    done = collectives.of_logs([("node-1.log", LOG.read_text())], 1, 2)
    assert (done.code, done.rows) == (0, ())
    assert "NET/Socket on 6 channels" in render(done, "console")
    assert "predicted" in done.placement
    assert collectives.of_logs([("node-1.log", "")], 1, 2).code == 3
