from pathlib import Path

import pytest

from fi_doctor.cluster import nccl

LOGS = Path(__file__).parent / "logs"  # NCCL 2.28.9 on two H200 of one host, torch 2.11.0, rank 0


def recorded(name):
    return nccl.parse((LOGS / f"nccl-2.28.9-h200-{name}.txt").read_text(), name)


@pytest.mark.parametrize(
    ("name", "links", "nodes"),
    [
        ("default", {"P2P/CUMEM": 56}, 1),
        ("shm", {"SHM/direct/direct": 6}, 1),  # NCCL_P2P_DISABLE=1
        ("socket", {"NET/Socket": 6}, 2),  # and NCCL_SHM_DISABLE=1: each rank is a node then
    ],
)
def test_the_way_that_was_taken_is_what_the_log_says(name, links, nodes):
    found = recorded(name)
    assert (found.links, found.nodes) == (links, nodes)
    assert (found.version, found.network) == ("2.28.9+cuda13.0", "Socket")
    assert found.devices == ("eth0:10.0.0.5<0>",)
    assert found.warnings == ()
    assert not nccl.is_over_infiniband(tuple(found.links))


# As src/transport/net.cc and net_ib.cc of 2.18 to 2.28 print them.
INFINIBAND = """
node-1:10:20 [0] NCCL INFO NCCL version 2.27.5+cuda12.9
node-1:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node-1:10:20 [0] NCCL INFO Using network IB
node-1:10:20 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/0/GDRDMA
node-1:10:20 [0] NCCL INFO Channel 01/0 : 8[0] -> 7[7] [send] via NET/IB/0(1)/GDRDMA/Shared
node-1:10:21 [0] NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/IPC/read
node-1:10:21 [0] misc/ibvwrap.cc:200 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out
"""


def test_infiniband_is_told_with_its_cards():
    found = nccl.parse(INFINIBAND, "node-1.log")
    assert found.links == {"NET/IB/GDRDMA": 2, "P2P/IPC/read": 1}
    assert (found.network, found.devices) == ("IB", ("mlx5_0:1/IB/SHARP", "mlx5_1:1/RoCE"))
    assert found.warnings == ("Call to ibv_modify_qp failed with 110 Connection timed out",)
    assert nccl.is_over_infiniband(tuple(found.links))


def test_what_is_no_log_of_nccl_tells_nothing():
    assert nccl.parse("INFO 11-29 engine.py:1 via NET/IB/0\n", "a") == nccl.parse("", "a")
