"""Which ranks go where: the placement group that --tp and --pp come to on the nodes that are there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fi_doctor.cluster.grid import Node


class Placement(NamedTuple):
    """A placement group and the ranks in it. Ranks are numbered as vLLM does: stage by stage."""

    strategy: str  # of Ray: "STRICT_PACK", "STRICT_SPREAD"
    bundles: tuple[int, ...]  # GPUs of each
    of_rank: tuple[int, ...]  # the bundle of each rank
    words: str


def place(nodes: Sequence[Node], tp: int, pp: int) -> Placement | str:
    """Stages on nodes of their own where there are enough, else all on one; in words what is missing, else.

    By the GPUs that nodes have: that some are taken is known when Ray is asked.
    """
    alive = [node for node in nodes if node.is_alive and node.gpus >= 1]
    world = tp * pp
    wide = [node for node in alive if node.gpus >= tp]
    if pp > 1 and len(wide) >= pp:
        ranks = tuple(stage for stage in range(pp) for _ in range(tp))
        return Placement("STRICT_SPREAD", (tp,) * pp, ranks, f"{pp} stages of {_gpus(tp)} each, on a node of their own")
    if any(node.gpus >= world for node in alive):
        return Placement("STRICT_PACK", (1,) * world, tuple(range(world)), f"{_gpus(world)} of one node")
    need = f"{pp} nodes with {_gpus(tp)} each, or one with {_gpus(world)}" if pp > 1 else f"one node with {_gpus(tp)}"
    have = ", ".join(f"{node.name} ({node.gpus:g})" for node in alive) or "none has a GPU"
    return f"it takes {need}; the nodes and their GPUs: {have}"


def groups(tp: int, pp: int) -> tuple[list[list[int]], list[list[int]]]:
    """The ranks of each stage, and those that hand over to each other, as vLLM's initialize_model_parallel has them."""
    stages = [[stage * tp + place for place in range(tp)] for stage in range(pp)]
    return stages, [list(chain) for chain in zip(*stages, strict=True)]


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
