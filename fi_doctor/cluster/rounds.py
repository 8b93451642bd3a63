"""One check for each node: given to all at once, waited for within limits, told as they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fi_doctor.cluster.grid import Ended, Grid, Lost, Node, Order, Result, Ticket
from fi_doctor.errors import CannotTellError, DoctorError, UsageError
from fi_doctor.model import secrets

GRACE_S = 20.0  # beside its own limit: a worker has to start, and what was shipped is unpacked
_POLL_S = 0.5
_MOST_WORDS = 600
_MOST_NAMES = 20
_TELL_S = 15.0  # between two words about who waits
_AGAIN = "fi-doctor fleet, or fi-doctor check on that node"


class Ask(NamedTuple):
    """What each node is asked for."""

    words: tuple[str, ...]  # of `fi-doctor report`, without a depth
    depth: str = "static"
    limit_s: float = 120.0  # from the beginning of the check on a node
    wait_s: float = 600.0  # from the asking until a GPU is free
    takes_all: bool = False  # nodes without a GPU, too
    environments: tuple[str, ...] = ("",)  # names of runtime environments; "" is that of a job without one
    address: str = "auto"

    @property
    def gpus(self) -> int:
        """How many one check takes: one that only reads takes none."""
        return 0 if self.depth == "static" else 1


class Answer(NamedTuple):
    """What one node gave, in one runtime environment."""

    node: Node
    environment: str
    found: bytes | DoctorError  # the report, JSON
    seconds: float  # that the check itself took; 0 where it is not known
    note: str = ""  # what it is less than was asked for

    @property
    def name(self) -> str:
        """What it is called in every output."""
        return called(self.node, self.environment)


class Given(NamedTuple):
    """An order, and when it was given."""

    ticket: Ticket
    since: float
    note: str = ""


class Rounds:
    """The checks of one cluster: `answers` gives them as they come, `notes` what is to be said beside them."""

    def __init__(self, grid: Grid, ask: Ask, tell: Callable[[str], None]) -> None:
        """tell: is given a line for whoever waits."""
        self._grid, self._ask, self._tell = grid, ask, tell
        self._known: dict[str, Node] = {}  # alive when it was seen first
        self._given: dict[int, Given] = {}
        self._began: dict[int, float] = {}
        self._count = [0, 0]  # answered, asked
        self._told = time.monotonic()
        self.notes: list[str] = []

    def answers(self) -> Iterator[Answer]:
        """One for each node and runtime environment. Raises CannotTellError where there is no node to ask."""
        self._ask_all(self._first())
        while self._given:
            for ticket, result in self._grid.wait(_POLL_S):
                given = self._given.pop(ticket.number, None)
                if given is not None:
                    yield self._answer(given, result)
            yield from self._late()
            if self._given:
                self._ask_all(self._joined())

    def end(self) -> list[Answer]:
        """Cancel what is still open, and say so of each."""
        left = [given.ticket for given in self._given.values()]
        self._given.clear()
        for ticket in left:
            self._grid.cancel(ticket)
        found = CannotTellError("it had not answered yet", why="fi-doctor was ended meanwhile", todo=_AGAIN)
        return [Answer(ticket.node, ticket.order.environment, found, 0.0) for ticket in left]

    def _first(self) -> list[Node]:
        nodes = self._grid.nodes()
        dead = [node for node in nodes if not node.is_alive]
        if dead:
            self.notes.append(f"{_nodes(len(dead))} of the cluster, and not checked, dead: {_listed(dead)}")
        alive = [node for node in nodes if node.is_alive]
        self._known = {node.id: node for node in nodes}
        taken = [node for node in alive if self._ask.takes_all or node.gpus > 0]
        passed = [node for node in alive if node not in taken]
        if not taken:
            raise CannotTellError(
                f"no node of the cluster at {self._ask.address} has a GPU",
                why=f"{_nodes(len(alive))}: {_listed(alive)}",
                todo="fi-doctor fleet --all-nodes looks at nodes without a GPU, too",
            )
        if passed:
            self.notes.append(f"passed over, without a GPU: {_listed(passed)} (--all-nodes checks them, too)")
        return taken

    def _joined(self) -> list[Node]:
        """Who came since the last look."""
        fresh = [node for node in self._grid.nodes() if node.is_alive and node.id not in self._known]
        self._known.update({node.id: node for node in fresh})
        taken = [node for node in fresh if self._ask.takes_all or node.gpus > 0]
        if taken:
            self.notes.append(f"joined meanwhile: {_listed(taken)}")
        return taken

    def _ask_all(self, nodes: list[Node]) -> None:
        for node in nodes:
            for environment in self._ask.environments:
                self._give(node, environment, self._ask.depth)
                self._count[1] += 1

    def _give(self, node: Node, environment: str, depth: str, note: str = "") -> None:
        gpus = self._ask.gpus if depth == self._ask.depth else 0
        words = ("report", "--json", "--quiet", *self._ask.words, "--depth", depth)
        order = Order(words=words, limit_s=self._ask.limit_s, gpus=gpus, environment=environment)
        ticket = self._grid.start(node, order)
        self._given[ticket.number] = Given(ticket, time.monotonic(), note)

    def _answer(self, given: Given, result: Result) -> Answer:
        ticket = given.ticket
        self._began.pop(ticket.number, None)
        found = read(result, ticket)
        seconds = result.seconds if isinstance(result, Ended) else 0.0
        self._count[0] += 1
        answer = Answer(ticket.node, ticket.order.environment, found, round(seconds, 1), given.note)
        how = f"answered after {seconds:.1f} s" if isinstance(found, bytes) else found.what
        self._tell(f"{answer.name}: {how} ({self._count[0]} of {self._count[1]})")
        if given.note:
            self.notes.append(f"{answer.name}: {given.note}")
        return answer

    def _late(self) -> Iterator[Answer]:
        """Those that nothing came from in time. One that still waits for a GPU is only read."""
        now = time.monotonic()
        waits = self._waiting(now)
        for number, given in list(self._given.items()):
            node, order = given.ticket.node, given.ticket.order
            if number in waits and now - given.since > self._ask.wait_s:
                self._drop(given)
                note = f"depth {self._ask.depth} was not reached: no GPU came free within {self._ask.wait_s:g} s"
                self._give(node, order.environment, "static", note)
            elif number not in waits and now - self._began.get(number, given.since) > order.limit_s + GRACE_S:
                self._drop(given)
                why = f"nor in {GRACE_S:g} s more, for a worker of Ray's to start; the node is still up"
                yield self._answer(given, Lost(f"it did not answer within {order.limit_s:g} s", why))
        still = [self._given[number].ticket for number in waits if number in self._given]
        if still and now - self._told > _TELL_S:
            self._told = now
            self._tell(waiting(still, self._grid.free_gpus()))

    def _waiting(self, now: float) -> list[int]:
        """Of those that take a GPU, who has not begun."""
        open_ones = [number for number, given in self._given.items() if given.ticket.order.gpus]
        if any(number not in self._began for number in open_ones):
            for number in self._grid.begun():
                self._began.setdefault(number, now)
        return [number for number in open_ones if number in self._given and number not in self._began]

    def _drop(self, given: Given) -> None:
        self._given.pop(given.ticket.number)
        self._grid.cancel(given.ticket)


def called(node: Node, environment: str) -> str:
    """The name of a node in a runtime environment."""
    return f"{node.name} ({environment})" if environment else node.name


def check_name(name: str, nodes: Sequence[Node], ask: Ask) -> None:
    """UsageError, before anything is asked of a node, where none of those that are asked has the name."""
    asked = [node for node in nodes if node.is_alive and (ask.takes_all or node.gpus > 0)]
    names = [called(node, environment) for node in asked for environment in ask.environments]
    if name in names:
        return
    what, todo = f"--driver: there is no node {name!r}", "fi-doctor fleet --driver NODE"
    passed = next((node for node in nodes if node.is_alive and node.name == name and node not in asked), None)
    if passed is not None:
        what, todo = f"--driver: {name} has no GPU and is passed over", f"{todo} --all-nodes"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    raise UsageError(what, why=f"nodes that are asked: {', '.join(names[:_MOST_NAMES])}{more}", todo=todo)


def read(result: Result, ticket: Ticket) -> bytes | DoctorError:
    """The report that a child wrote, or why it wrote none."""
    if isinstance(result, Lost):
        return CannotTellError(result.what, why=result.why, todo=_AGAIN)
    if result.timed_out and not result.error:
        limit = f"{ticket.order.limit_s:g} s"
        return CannotTellError(
            f"the check did not end within {limit}",
            why=last_words(result.stderr) or "it said nothing",
            todo=f"fi-doctor fleet --node-timeout {2 * ticket.order.limit_s:g}s",
        )
    if result.error or result.code != 0 or not result.stdout.strip():
        how = f"signal {result.signal}" if result.signal else f"code {result.code}"
        is_begun = result.timed_out or not result.error
        what = f"the check ended with {how} and no report" if is_begun else "the check could not be started"
        return CannotTellError(what, why=result.error or last_words(result.stderr), todo=_AGAIN)
    return result.stdout


def waiting(tickets: list[Ticket], free: Mapping[str, float]) -> str:
    """Who waits for a GPU, and how many are free there."""
    rows = []
    for ticket in sorted(tickets, key=lambda one: one.node.name):
        count = free.get(ticket.node.id)
        known = "" if count is None else f" ({count:g} of {ticket.node.gpus:g} free)"
        rows.append(f"{ticket.node.name}{known}")
    return f"waiting for one GPU each: {', '.join(rows)}"


def last_words(stderr: bytes) -> str:
    """What a child said at its end, secrets hidden: from its "error: " on, if it is one of ours; else the last."""
    words = " ".join(secrets.hidden(stderr.decode("utf-8", "replace")).split())  # before it is cut
    before, ours, error = words.rpartition("error: ")
    if ours and not before.endswith(("Error", "Exception")):
        return f"{ours}{error[:_MOST_WORDS]}"
    return words if len(words) < _MOST_WORDS else f"...{words[-_MOST_WORDS:]}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _listed(nodes: list[Node]) -> str:
    return ", ".join(f"{node.name} ({node.why})" if node.why else node.name for node in nodes)
