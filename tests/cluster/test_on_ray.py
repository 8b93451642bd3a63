"""Two raylets on this machine, each with a GPU that is only said to be there. Slow (20 s): where Ray is installed."""

import json
import shutil

import pytest

from fi_doctor.cluster.grid import Order
from fi_doctor.cluster.rounds import Ask, Rounds

pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[client]'")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.skipif(shutil.disk_usage("/dev/shm").free < 1 << 28, reason="Ray keeps its objects in /dev/shm"),
]


@pytest.fixture(scope="module")
def grid():
    from ray.cluster_utils import Cluster

    from fi_doctor.cluster import connecting
    from fi_doctor.cluster.ray_grid import RayGrid

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1, num_gpus=1, node_name="other")
        with connecting.connected(cluster.address) as ray:
            yield RayGrid(ray)
    finally:
        cluster.shutdown()


def test_every_node_of_a_cluster_whose_gpus_are_taken_writes_its_report(grid):
    held = grid.reserve((1, 1), "STRICT_SPREAD", 30)
    try:
        made = Rounds(grid, Ask(words=()), lambda line: None)
        answers = {answer.name: answer.found for answer in made.answers()}
        waits = Rounds(grid, Ask(words=(), depth="build", wait_s=1), lambda line: None)
        assert all(isinstance(answer.found, bytes) for answer in waits.answers())
    finally:
        grid.release(held)
    assert len(answers) == 2
    assert {json.loads(found)["schema"].partition("/")[0] for found in answers.values()} == {"fi-doctor.report"}
    assert [note for note in waits.notes if "other: depth build was not reached: no GPU came free" in note]


def test_an_order_that_cannot_be_taken_is_told_and_nothing_else_is_lost(grid):
    node = grid.nodes()[0]
    grid.start(node._replace(id="f" * 56), Order(words=("--version",), limit_s=30))
    grid.start(node, Order(words=("--version",), limit_s=30))
    results = []
    while len(results) < 2:
        results += grid.wait(1)
    lost, ended = sorted((result for _, result in results), key=lambda result: hasattr(result, "code"))
    assert lost.what == "its node is gone"
    assert ended.stdout.startswith(b"fi-doctor ")
