"""What is asked of the nodes of a cluster and what they give: plain values, and the few calls that are made of Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """A node as the cluster knows it. Source: ray.nodes()."""

    id: str  # Ray's own, hexadecimal
    name: str  # that of `ray start --node-name`, else of the host; told apart where several have one
    address: str
    gpus: float  # that it offers, not those that are free
    is_alive: bool
    why: str = ""  # of a dead one: Ray's words


class Order(NamedTuple):
    """A command for one node, which is run there as a child process."""

    words: tuple[str, ...]  # of fi-doctor; with `script` the arguments of that script
    limit_s: float  # after which the child is killed
    gpus: int = 0  # that Ray is asked for
    cpus: float = 0  # 0: it runs on a cluster that is full, too
    environment: str = ""  # which of the runtime environments
    script: str = ""  # a file below fi_doctor/inside, instead of fi-doctor
    variables: tuple[tuple[str, str], ...] = ()  # for the child, beside those of the worker; "": without that one
    bundle: tuple[object, int] | None = None  # a placement group and which part of it, instead of the node


class Ended(NamedTuple):
    """How the child ended. Source: fi_doctor.sandbox.Result, on the node."""

    code: int | None  # None: it was killed, or did not start
    signal: int | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    seconds: float
    error: str  # why it did not start; with timed_out: why it was killed before its limit


class Lost(NamedTuple):
    """Why no child told anything."""

    what: str  # "its node died", "Ray could not start a worker there"
    why: str  # Ray's words


Result = Ended | Lost


class Ticket(NamedTuple):
    """An order that was given. Equal to itself alone: number is counted up."""

    number: int
    node: Node
    order: Order


class Grid(Protocol):
    """A cluster."""

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, dead ones too, by name."""

    def start(self, node: Node, order: Order) -> Ticket:
        """Give an order to a node, at once; it begins when the node has what it asks for."""

    def wait(self, timeout_s: float) -> Sequence[tuple[Ticket, Result]]:
        """What has ended since the last call, each once; waits for one that long."""

    def begun(self) -> frozenset[int]:
        """The numbers of the orders with a GPU that have begun, as far as it is known."""

    def cancel(self, ticket: Ticket) -> None:
        """End it, and tell nothing of it any more."""

    def free_gpus(self) -> Mapping[str, float]:
        """How many GPUs nobody has, by the id of the node; empty where that is not known."""

    def reserve(self, bundles: Sequence[int], strategy: str, wait_s: float) -> object | None:
        """A placement group with that many GPUs in each bundle; None where they do not come free in time."""

    def release(self, group: object) -> None:
        """Give it back, with all that runs in it."""

    def bundle_nodes(self, group: object) -> tuple[str, ...]:
        """The id of each bundle's node."""


def named(rows: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Names by id, from (id, name, address); of several with one name each has the begin of its id behind it."""
    plain = {identity: name or address for identity, name, address in rows}
    several = {name for name in plain.values() if list(plain.values()).count(name) > 1}
    return {identity: f"{name}-{identity[:6]}" if name in several else name for identity, name in plain.items()}
