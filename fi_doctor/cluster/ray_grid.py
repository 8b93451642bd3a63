"""The nodes of a Ray cluster: orders become tasks, each pinned to its node, and their ends are waited for."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fi_doctor.cluster import sent, shipping
from fi_doctor.cluster.grid import Ended, Lost, Node, Order, Result, Ticket, named

_POLL_S = 0.2


class RayGrid:
    """A cluster that this process is a driver of."""

    def __init__(
        self, ray: Any, *, is_installed: bool = False, environments: Mapping[str, Mapping[str, Any]] = {}
    ) -> None:
        """is_installed: whichever fi-doctor a node has is used, and none is sent. environments: Ray's, by our names."""
        self.wanted = "" if is_installed else sent.look()()  # the word for it; "": whichever there is
        self._ray = ray
        self._shipped: Any = None  # a reference to what is shipped, once a node lacks it
        self._environments = environments
        self._numbers = itertools.count()
        self._open: dict[int, tuple[Ticket, Any]] = {}
        self._board: Any = None
        self._work = ray.remote(sent.work())

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, dead ones too, by name."""
        rows = self._ray.nodes()
        names = named([(row["NodeID"], _name(row), row["NodeManagerAddress"]) for row in rows])
        found = [
            Node(
                id=row["NodeID"],
                name=names[row["NodeID"]],
                address=row["NodeManagerAddress"],
                gpus=float(row.get("Resources", {}).get("GPU", 0)),
                is_alive=bool(row["Alive"]),
                why=" ".join(str(row.get("DeathReasonMessage") or "").split()),
            )
            for row in rows
        ]
        return tuple(sorted(found, key=lambda node: node.name))

    def start(self, node: Node, order: Order) -> Ticket:
        """Give an order to a node, at once; it begins when the node has what it asks for."""
        ticket = Ticket(next(self._numbers), node, order)
        self._give(ticket)
        return ticket

    def _give(self, ticket: Ticket) -> None:
        number, node, order = ticket
        options: dict[str, Any] = {"num_cpus": order.cpus, "num_gpus": order.gpus, "max_retries": 0}
        if environment := self._environments.get(order.environment):
            options["runtime_env"] = dict(environment)
        try:
            options["scheduling_strategy"] = _strategy(node, order)
            board = self._told_board() if order.gpus else None
            asked = {field: getattr(order, field) for field in ("words", "script", "limit_s", "gpus", "variables")}
            shipped = self._shipped and [self._shipped]
            work = self._work.options(**options)
            reference = work.remote(self.wanted, platform.machine(), shipped, board, number, asked)
        except ValueError as error:  # Ray no longer knows the node
            reference = error
        self._open[number] = (ticket, reference)

    def wait(self, timeout_s: float) -> Sequence[tuple[Ticket, Result]]:
        """What has ended since the last call, each once; waits for one that long."""
        refused = [number for number, (_, reference) in self._open.items() if isinstance(reference, ValueError)]
        if refused:
            ended = [self._open.pop(number) for number in refused]
            return [(ticket, Lost("its node is gone", str(reason))) for ticket, reason in ended]
        if not self._open:
            time.sleep(min(timeout_s, _POLL_S))
            return []
        numbers = {reference: number for number, (_, reference) in self._open.items()}
        ready, _ = self._ray.wait(list(numbers), num_returns=1, timeout=timeout_s)
        ended = [(self._open.pop(numbers[one])[0], self._result(one)) for one in ready]
        for ticket, result in ended:
            if result is None:
                self._ship(ticket)
        return [(ticket, result) for ticket, result in ended if result is not None]

    def begun(self) -> frozenset[int]:
        """The numbers of the orders with a GPU that have begun; empty where nobody can tell."""
        if self._board is None:
            return frozenset()
        with contextlib.suppress(self._ray.exceptions.RayError):
            return frozenset(self._ray.get(self._board.begun.remote(), timeout=2 * _POLL_S))
        return frozenset()

    def cancel(self, ticket: Ticket) -> None:
        """End it, and tell nothing of it any more."""
        _, reference = self._open.pop(ticket.number, (None, None))
        if reference is not None and not isinstance(reference, ValueError):
            self._ray.cancel(reference, force=True)

    def free_gpus(self) -> Mapping[str, float]:
        """How many GPUs nobody has, by the id of the node; empty where this Ray does not tell."""
        try:
            state = importlib.import_module("ray._private.state")
            found = state.available_resources_per_node()
        except Exception:  # noqa: BLE001 - not a public call: it may be gone, or fail in a way of its own
            return {}
        return {str(node): float(row.get("GPU", 0)) for node, row in found.items()}

    def reserve(self, bundles: Sequence[int], strategy: str, wait_s: float) -> object | None:
        """A placement group with that many GPUs in each bundle; None where they do not come free in time."""
        groups = importlib.import_module("ray.util.placement_group")
        group = groups.placement_group([{"GPU": count} for count in bundles], strategy=strategy)
        if group.wait(wait_s):
            return group  # type: ignore[no-any-return] # Ray is not imported where types are looked at
        groups.remove_placement_group(group)
        return None

    def release(self, group: object) -> None:
        """Give it back, with all that runs in it."""
        importlib.import_module("ray.util.placement_group").remove_placement_group(group)

    def bundle_nodes(self, group: object) -> tuple[str, ...]:
        """The id of each bundle's node."""
        table = importlib.import_module("ray.util.placement_group").placement_group_table(group)
        return tuple(node for _, node in sorted(table["bundles_to_node_id"].items()))

    def _ship(self, ticket: Ticket) -> None:
        """The same order again, with what its node lacks; that is packed once, and fetched by nodes that lack it."""
        if self._shipped is None:
            self._shipped = self._ray.put(shipping.packed())
        self._give(ticket)

    def _result(self, reference: Any) -> Result | None:
        """How it ended; None where the node lacks what it takes."""
        errors = self._ray.exceptions
        try:
            found = self._ray.get(reference)
            return None if found == sent.LACKING else Ended(*found)
        except errors.NodeDiedError as error:
            return Lost("its node died", _words(error))
        except errors.TaskUnschedulableError as error:
            return Lost("its node is gone", _words(error))
        except errors.RuntimeEnvSetupError as error:
            return Lost("Ray could not set up the runtime environment there", _words(error))
        except (errors.WorkerCrashedError, errors.OutOfMemoryError) as error:
            return Lost("the Ray worker that ran it died", _words(error))
        except errors.RayTaskError as error:
            return Lost("fi-doctor could not begin there", _words(error.cause or error))
        except errors.RayError as error:
            return Lost("Ray lost it", _words(error))

    def _told_board(self) -> Any:
        """An actor that is told what has begun; it takes no CPU."""
        if self._board is None:
            self._board = self._ray.remote(sent.board()).options(num_cpus=0).remote()
        return self._board


def _strategy(node: Node, order: Order) -> Any:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    if order.bundle is not None:
        group, index = order.bundle
        return strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    return strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)


def _name(row: Mapping[str, Any]) -> str:
    """Where nobody named a node, Ray gives its address as name."""
    given = str(row.get("NodeName") or "")
    return given if given != row["NodeManagerAddress"] and given else str(row.get("NodeManagerHostname") or "")


def _words(error: BaseException) -> str:
    """The first sentences: Ray goes on with lines of logs."""
    words = " ".join(str(error).split())
    return words if len(words) < 300 else f"{words[:300]}..."
