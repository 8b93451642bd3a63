"""Ranks are placed as a deployment would have them, run all collectives, and what they say is brought together."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fi_doctor.cluster import nccl, ranks
from fi_doctor.cluster.grid import Ended, Grid, Lost, Node, Order, Result, Ticket
from fi_doctor.cluster.places import Placement, groups, place
from fi_doctor.cluster.rounds import GRACE_S
from fi_doctor.errors import CannotTellError
from fi_doctor.model import secrets
from fi_doctor.model.collectives import COLLECTIVES_SCHEMA, Collectives, NcclLog, RankPlace
from fi_doctor.model.words import Verdict

ELEMENTS = (1, 1021, 1 << 20)  # one, less than a period of the numbers, 4 MiB; none is a multiple of all that is tiled
_TELL_S = 15.0  # between two words about who has not ended
_START_S = 120.0  # for torch to be imported on a node that is busy
_SCRIPT = "rank.py"
# CUDA multicast objects can put the GPUs of a host out of service: nothing of ours makes one. "" takes a variable away.
VARIABLES = (
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_FILE", ""),
    ("NCCL_DEBUG_SUBSYS", ""),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
)


class Asked(NamedTuple):
    """Which ranks, and how long anything may take."""

    tp: int
    pp: int
    step_s: float = 60.0  # for one collective
    wait_s: float = 600.0  # for the GPUs


def run(grid: Grid, asked: Asked, tell: Callable[[str], None]) -> Collectives:
    """All collectives of a deployment of tp * pp ranks. Raises CannotTellError where the GPUs are not free in time."""
    nodes = grid.nodes()
    placement = place(nodes, asked.tp, asked.pp)
    if isinstance(placement, str):
        return _told(asked, placement, (), f"--tp {asked.tp} --pp {asked.pp} cannot be placed: {placement}")
    tell(f"asking for {placement.words} ({placement.strategy})")
    group = grid.reserve(placement.bundles, placement.strategy, asked.wait_s)
    if group is None:
        raise CannotTellError(
            f"{placement.words} were not free at once within {asked.wait_s:g} s",
            why=_free(nodes, grid),
            todo="wait for what runs there, or fi-doctor fleet --collectives with a smaller --tp or --pp",
        )
    try:
        found = _ranks(grid, asked, placement, group, tell)
    finally:
        grid.release(group)
    return _told(asked, placement.words, found, "")


def of_logs(texts: list[tuple[str, str]], tp: int, pp: int) -> Collectives:
    """What logs of NCCL alone tell, (source, text) each: which ways were taken, and nothing of the numbers."""
    logs = tuple(nccl.parse(text, source) for source, text in texts)
    done = Collectives(
        schema=COLLECTIVES_SCHEMA,
        tp=tp,
        pp=pp,
        placement="not run here: read from logs of NCCL, evidence predicted at most",
        logs=logs,
        code=0 if any(log.links for log in logs) else 3,
        reason="logs tell which way was taken, not whether the numbers are right"
        if any(log.links for log in logs)
        else "no log tells which way NCCL took: they have to be written with NCCL_DEBUG=INFO",
    )
    return _shown(done)


def _ranks(
    grid: Grid, asked: Asked, placement: Placement, group: object, tell: Callable[[str], None]
) -> tuple[ranks.Rank, ...]:
    by_id = {node.id: node for node in grid.nodes()}
    where = [by_id[identity] for identity in grid.bundle_nodes(group)]
    nodes = [where[bundle] for bundle in placement.of_rank]
    found = _port(grid, where[0], group)
    stages, chains = groups(asked.tp, asked.pp)
    common = {
        "world": len(nodes),
        "host": where[0].address,
        "port": found,
        "limit_s": asked.step_s,
        "elements": ELEMENTS,
        "tp": stages,
        "pp": chains,
    }
    limit = _START_S + 2 * asked.step_s
    tickets = {}
    for rank, node in enumerate(nodes):
        plan = json.dumps({"rank": rank, **common})
        tickets[rank] = grid.start(node, _order((plan,), limit, group, placement.of_rank[rank], gpus=1))
    on = ", ".join(dict.fromkeys(node.name for node in nodes))
    tell(f"{len(nodes)} ranks on {on}; one that does not go on is waited for {asked.step_s:g} s in each step")
    ended = _ended(grid, tickets, limit + GRACE_S, tell)
    late = Lost("it did not answer", "Ray gave nothing back in time")
    return tuple(ranks.read(rank, node.name, ended.get(rank, late)) for rank, node in enumerate(nodes))


def _ended(grid: Grid, tickets: dict[int, Ticket], limit_s: float, tell: Callable[[str], None]) -> dict[int, Result]:
    """By rank; those that have not ended by then are cancelled."""
    numbers = {ticket.number: rank for rank, ticket in tickets.items()}
    told = time.monotonic()
    deadline = told + limit_s
    ended: dict[int, Result] = {}
    try:
        while len(ended) < len(numbers) and time.monotonic() < deadline:
            for ticket, result in grid.wait(0.5):
                if ticket.number in numbers:
                    ended[numbers[ticket.number]] = result
                    tell(f"{len(ended)} of {len(numbers)} ranks have ended")
            if len(ended) < len(numbers) and (now := time.monotonic()) - told > _TELL_S:
                told = now
                tell(waiting([rank for rank in tickets if rank not in ended], deadline - now))
    finally:  # a signal ends it, too
        for rank, ticket in tickets.items():
            if rank not in ended:
                grid.cancel(ticket)
    return ended


def waiting(ranks: Sequence[int], left_s: float) -> str:
    """Who is waited for, and how long at most."""
    return f"waiting for {'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}: {left_s:.0f} s at most"


def _port(grid: Grid, node: Node, group: object) -> int:
    """A free one where rank 0 will be."""
    ticket = grid.start(node, _order(("port",), _START_S, group, 0, gpus=0))
    deadline = time.monotonic() + _START_S + GRACE_S
    while time.monotonic() < deadline:
        for one, result in grid.wait(0.5):
            if one.number != ticket.number:
                continue
            words = result.stdout.decode("utf-8", "replace") if isinstance(result, Ended) else ""
            line = next((line for line in words.splitlines() if line.startswith(ranks.MARK)), None)
            if line is not None:
                return int(json.loads(line[len(ranks.MARK) :])["port"])
            why = ranks.read(0, node.name, result).ended
            raise CannotTellError(f"{node.name}: no rank can be started there", why=why, todo="fi-doctor fleet")
    raise CannotTellError(f"{node.name}: no rank was started there", why="Ray gave nothing back", todo="ray status")


def _order(words: tuple[str, ...], limit_s: float, group: object, bundle: int, *, gpus: int) -> Order:
    return Order(words, limit_s, gpus=gpus, script=_SCRIPT, variables=VARIABLES, bundle=(group, bundle))


def _told(asked: Asked, placement: str, found: tuple[ranks.Rank, ...], reason: str) -> Collectives:
    rows = ranks.rows(found, asked.tp, asked.pp, ELEMENTS) if found else ()
    failed = [row for row in rows if row.verdict.is_failure]
    works = [row for row in rows if row.verdict is Verdict.WORKS]
    if not reason:
        unknown = len(rows) - len(failed) - len(works)
        reason = f"{len(works)} collectives work, {len(failed)} do not, {unknown} are unknown"
    done = Collectives(
        schema=COLLECTIVES_SCHEMA,
        tp=asked.tp,
        pp=asked.pp,
        placement=placement,
        places=tuple(RankPlace(rank=one.number, node=one.node, gpu=one.gpu, ended=one.ended) for one in found),
        rows=rows,
        logs=_logs(found),
        code=1 if failed else 0 if works else 3,
        reason=reason,
    )
    return _shown(done)


def _shown(done: Collectives) -> Collectives:
    """The same without secrets, which NCCL and torch write with addresses and variables."""
    return secrets.without(done, secrets.held(os.environ))


def _logs(found: tuple[ranks.Rank, ...]) -> tuple[NcclLog, ...]:
    logs = [nccl.parse(one.log, f"rank {one.number} on {one.node}") for one in found]
    return tuple(log for log in logs if log.version or log.links or log.warnings)


def _free(nodes: tuple[Node, ...], grid: Grid) -> str:
    free = grid.free_gpus()
    rows = [f"{node.name}: {free[node.id]:g} of {node.gpus:g} GPUs free" for node in nodes if node.id in free]
    return "; ".join(rows) or "Ray does not say what is free"
