"""The nodes of a Ray cluster: orders become tasks, each pinned to its node, and their ends are waited for."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fi_doctor.cluster.grid import Ended, Lost, Node, Order, Result, Ticket, named
from fi_doctor.cluster.shipping import NAME

_POLL_S = 0.2
_LOOK_S = 10.0  # for an idle worker; where it takes longer, shipping takes no longer


class RayGrid:
    """A cluster that this process is a driver of."""

    def __init__(self, ray: Any, *, is_shipped: bool, environments: Mapping[str, Mapping[str, Any]] = {}) -> None:
        """is_shipped: fi-doctor came with the job; else each node has its own. environments: Ray's, by our names."""
        self._ray = ray
        self._shipped = platform.machine() if is_shipped else ""
        self._environments = environments
        self._numbers = itertools.count()
        self._open: dict[int, tuple[Ticket, Any]] = {}
        self._board: Any = None
        self._work = ray.remote(_work())

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

    def has_ours(self) -> bool:
        """Whether every node alive has this very fi-doctor installed, by names and sizes of its files."""
        look = _look()
        task = self._ray.remote(look)
        nodes = [node for node in self.nodes() if node.is_alive]
        try:
            asked = [
                task.options(num_cpus=0, max_retries=0, scheduling_strategy=_strategy(node, Order((), 0))).remote()
                for node in nodes
            ]
            return set(self._ray.get(asked, timeout=_LOOK_S)) == {look()}
        except (ValueError, self._ray.exceptions.RayError):  # a node that is gone: others may have it, or be given it
            return False

    def start(self, node: Node, order: Order) -> Ticket:
        """Give an order to a node, at once; it begins when the node has what it asks for."""
        ticket = Ticket(next(self._numbers), node, order)
        options: dict[str, Any] = {"num_cpus": order.cpus, "num_gpus": order.gpus, "max_retries": 0}
        if environment := self._environments.get(order.environment):
            options["runtime_env"] = self._with_ours(environment)
        try:
            options["scheduling_strategy"] = _strategy(node, order)
            board = self._told_board() if order.gpus else None
            asked = (order.words, order.script, order.limit_s, order.gpus, order.variables)
            reference = self._work.options(**options).remote(self._shipped, ticket.number, board, asked)
        except ValueError as error:  # Ray no longer knows the node
            reference = error
        self._open[ticket.number] = (ticket, reference)
        return ticket

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
        return [(self._open.pop(numbers[one])[0], self._result(one)) for one in ready]

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

    def _result(self, reference: Any) -> Result:
        errors = self._ray.exceptions
        try:
            return Ended(*self._ray.get(reference))
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
            self._board = self._ray.remote(_board()).options(num_cpus=0).remote()
        return self._board

    def _with_ours(self, environment: Mapping[str, Any]) -> dict[str, Any]:
        """Ray replaces the modules of the job by those of the task."""
        ours = self._ray.get_runtime_context().runtime_env.get("py_modules") or []
        return {**environment, "py_modules": [*environment.get("py_modules", []), *ours]}


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


def _work() -> Callable[..., tuple[Any, ...]]:
    """What a worker runs. Defined in here, so that it is sent as it is: nothing of ours can be imported there yet."""
    name = NAME

    def work(shipped: str, number: int, board: Any, asked: tuple[Any, ...]) -> Any:
        import importlib.util as finding  # noqa: PLC0415 - it runs elsewhere
        import platform as machine  # noqa: PLC0415
        import sys  # noqa: PLC0415

        if board is not None:
            board.begin.remote(number)
        if shipped:
            if machine.machine() != shipped:
                raise RuntimeError(
                    f"what was shipped is for {shipped}, and this node is {machine.machine()}; install fi-doctor on "
                    "all nodes, then fi-doctor fleet --installed"
                )
            spec = finding.find_spec(name)
            if spec is None:
                raise RuntimeError(f"Ray's runtime environment has no {name}")
            folder = next(iter(spec.submodule_search_locations or ()))
            if folder not in sys.path:
                sys.path.insert(0, folder)
        try:
            from fi_doctor.cluster import worker  # noqa: PLC0415
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] == "fi_doctor":
                raise RuntimeError(f"fi-doctor is not installed in {sys.executable}") from None
            raise
        words, script, limit_s, gpus, variables = asked
        return worker.run(words, script=script, limit_s=limit_s, gpus=gpus, variables=variables)

    return work


def _look() -> Callable[[], str]:
    """One word for the fi-doctor that an interpreter has, "" for none; sent as `_work`."""

    def look() -> str:
        import hashlib  # noqa: PLC0415 - it runs elsewhere
        import importlib.util as finding  # noqa: PLC0415
        import pathlib  # noqa: PLC0415

        found = hashlib.sha256()
        for package in ("fi_doctor", "fi_doctor_probes"):
            spec = finding.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                return ""
            root = pathlib.Path(next(iter(spec.submodule_search_locations)))
            for path in sorted(root.rglob("*")):
                if path.suffix != ".pyc" and path.is_file():
                    found.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
        return found.hexdigest()

    return look


def _board() -> type:
    """The class of that actor, as `_work`."""

    class Board:
        def __init__(self) -> None:
            self.numbers: set[int] = set()

        def begin(self, number: int) -> None:
            self.numbers.add(number)

        def begun(self) -> set[int]:
            return self.numbers

    return Board
