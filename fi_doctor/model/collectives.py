"""Collectives between the ranks that a deployment would have: what each gave, over which way, and who stopped."""

from __future__ import annotations

from fi_doctor.model.base import Data
from fi_doctor.model.words import Evidence, Verdict

COLLECTIVES_SCHEMA = "fi-doctor.collectives/1.0"


class RankPlace(Data, frozen=True):
    """Where one rank ran, or would run."""

    rank: int
    node: str
    gpu: str = ""  # as torch names it; "" where torch sees none
    ended: str = ""  # how it ended, where it did not come to its end


class CollectiveRow(Data, frozen=True):
    """One operation in one group of ranks, over one backend, with messages of several sizes."""

    backend: str  # "gloo", "nccl"
    kind: str  # "all", "tp": within a pipeline stage, "pp": from stage to stage
    ranks: tuple[int, ...]
    operation: str  # "meet", "all_reduce", "all_gather", "hand_over" (send and receive down a pipeline)
    elements: tuple[int, ...]  # of float32, one call each
    verdict: Verdict
    evidence: Evidence
    why: str = ""
    seconds: float = 0.0  # of the slowest rank, all sizes together; the first call sets connections up
    transports: tuple[str, ...] = ()  # of NCCL, by its log: "P2P/CUMEM", "NET/IB/GDRDMA"


class NcclLog(Data, frozen=True):
    """What one log of NCCL tells. Source: lines of NCCL_DEBUG=INFO."""

    source: str  # a file, "rank 0"
    version: str = ""  # "2.28.9+cuda13.0"
    network: str = ""  # "IB", "Socket", as in "Using network Socket"
    devices: tuple[str, ...] = ()  # of the network: "mlx5_0:1/IB", "eth0:10.0.0.1<0>"
    links: dict[str, int] = {}  # way -> channels that take it: "P2P/CUMEM" -> 48
    nodes: int = 0  # that the largest group spans; 0: it is not told
    warnings: tuple[str, ...] = ()  # NCCL WARN, each once


class Collectives(Data, frozen=True):
    """What `fi-doctor fleet --collectives` did, or of logs alone what they tell."""

    schema: str
    tp: int
    pp: int
    placement: str  # in words; why there is none, where there is none
    places: tuple[RankPlace, ...] = ()  # by rank
    rows: tuple[CollectiveRow, ...] = ()
    logs: tuple[NcclLog, ...] = ()
    code: int = 3  # 0 all rows work; 1 one is broken or gives wrong numbers; 3 it could not be told
    reason: str = ""
