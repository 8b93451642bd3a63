"""The JIT caches of a cluster: each distinct one is built on one node, and where there is a place for it, shared."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from fi_doctor.cluster.grid import Ended, Grid, Node, Order, Result, Ticket
from fi_doctor.cluster.rounds import GRACE_S, Answer, last_words
from fi_doctor.model import FlashInfer, JitToolkit, Missing, Nvcc, Report, Warming

_SHARE_S = 1800.0
_SCRIPT = "share.py"


class Kind(NamedTuple):
    """What a cache is built for: nodes that agree in all of it can have each other's."""

    nvcc: str
    flashinfer: str
    architectures: tuple[str, ...]
    root: str  # the package's folder and the cache's: both stand in the files that ninja keeps
    cache: str

    @property
    def words(self) -> str:
        """For people."""
        return f"nvcc {self.nvcc}, {', '.join(self.architectures)}, FlashInfer {self.flashinfer}"

    @property
    def file(self) -> str:
        """A name for it that says what it is, and is another for another cache."""
        digest = hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:12]
        return f"flashinfer-{self.flashinfer}-{'-'.join(self.architectures)}-nvcc-{self.nvcc}-{digest}.tar"


class Warmed(NamedTuple):
    """How one node's cache stands."""

    node: str
    kind: str  # in words; "" where it is not known
    did: str  # "built", "shared", "looked at", "" where nothing could be
    code: int  # as `fi-doctor warm`
    said: str


class Asked(NamedTuple):
    """words: of `fi-doctor warm`. share: a folder that all nodes have, or a URL; "": each node builds its own."""

    words: tuple[str, ...]
    share: str
    limit_s: float
    is_dry: bool = False


def kind_of(found: bytes) -> Kind | str:
    """By a node's report; in words why it has none. Errors: msgspec.MsgspecError where it is no report."""
    facts = msgspec.json.decode(found, type=Report).facts
    flashinfer, toolkit = facts.flashinfer, facts.toolkit.jit
    if not isinstance(flashinfer, FlashInfer):
        return flashinfer.reason
    if not isinstance(toolkit, JitToolkit):
        return toolkit.reason
    compiler = toolkit.compiler
    version = compiler.version if isinstance(compiler, Nvcc) else compiler
    for one in (version, flashinfer.version, flashinfer.cache_dir):
        if isinstance(one, Missing):
            return one.reason
    if isinstance(flashinfer.architectures, Missing):
        return flashinfer.architectures.reason
    return Kind(
        nvcc=str(version),
        flashinfer=str(flashinfer.version),
        architectures=flashinfer.architectures,
        root=flashinfer.root,
        cache=str(flashinfer.cache_dir),
    )


def kinds(answers: Iterable[Answer]) -> tuple[dict[Kind, list[Node]], list[Warmed]]:
    """Nodes by what their caches are built for, by name; and those of which that is not known."""
    found: dict[Kind, list[Node]] = {}
    left: list[Warmed] = []
    for answer in sorted(answers, key=lambda one: one.name):
        told = kind_of(answer.found) if isinstance(answer.found, bytes) else answer.found.what
        if isinstance(told, str):
            left.append(Warmed(answer.name, "", "", 3, told))
        else:
            found.setdefault(told, []).append(answer.node)
    return found, left


def warm(grid: Grid, found: dict[Kind, list[Node]], asked: Asked, tell: Callable[[str], None]) -> list[Warmed]:
    """Build one of each kind, all kinds at once; share each that is whole; then ask every other node what it lacks."""
    builders = {kind: nodes if not asked.share or asked.is_dry else nodes[:1] for kind, nodes in found.items()}
    built = _warmed(
        grid, builders, asked.words, did="looked at" if asked.is_dry else "built", limit_s=asked.limit_s, tell=tell
    )
    if not asked.share or asked.is_dry:
        return built
    done = [*built]
    for kind, nodes in found.items():
        builder = next(one for one in built if one.node == nodes[0].name)
        if builder.code != 0:
            done += [Warmed(one.name, kind.words, "", 3, f"{builder.node} built not all of it") for one in nodes[1:]]
        elif nodes[1:]:
            done += _shared(grid, kind, nodes, asked, tell)
    return done


def _shared(grid: Grid, kind: Kind, nodes: list[Node], asked: Asked, tell: Callable[[str], None]) -> list[Warmed]:
    place = f"{asked.share.rstrip('/')}/{kind.file}"
    tell(f"{nodes[0].name}: packs {kind.cache} into {place}")
    packed = _done(_all(grid, {nodes[0]: _script("pack", kind.cache, place)})[nodes[0]])
    if isinstance(packed, str):
        return [Warmed(one.name, kind.words, "", 3, f"not shared: {nodes[0].name}: {packed}") for one in nodes[1:]]
    tell(f"{packed['bytes']} bytes, sha256 {packed['digest']}")
    unpacked = _all(grid, {node: _script("unpack", kind.cache, place, str(packed["digest"])) for node in nodes[1:]})
    whole = [node for node in nodes[1:] if not isinstance(_done(unpacked[node]), str)]
    failed = {node: _done(unpacked[node]) for node in nodes[1:] if node not in whole}
    words = (*(word for word in asked.words if word != "--dry-run"), "--dry-run")
    looked = _warmed(grid, {kind: whole}, words, did="shared", limit_s=asked.limit_s, tell=tell)
    return [*looked, *(Warmed(node.name, kind.words, "", 3, f"not shared: {why}") for node, why in failed.items())]


def _warmed(  # noqa: PLR0913 - who, what, how long, and who hears of it
    grid: Grid,
    who: dict[Kind, list[Node]],
    words: tuple[str, ...],
    *,
    did: str,
    limit_s: float,
    tell: Callable[[str], None],
) -> list[Warmed]:
    kind_by_node = {node: kind for kind, nodes in who.items() for node in nodes}
    order = Order(words=("warm", "--json", "--quiet", *words), limit_s=limit_s)
    for node, kind in kind_by_node.items():
        tell(f"{node.name}: fi-doctor {' '.join(order.words)} ({kind.words})")
    results = _all(grid, dict.fromkeys(kind_by_node, order))
    return [_read(node, kind_by_node[node], result, did) for node, result in results.items()]


def _read(node: Node, kind: Kind, result: Result, did: str) -> Warmed:
    """What `warm --json` said."""
    if not isinstance(result, Ended):
        return Warmed(node.name, kind.words, "", 3, f"{result.what}: {result.why}")
    try:
        done = msgspec.json.decode(result.stdout, type=Warming)
    except msgspec.MsgspecError:
        limit = "it did not end in time" if result.timed_out else ""
        words = result.error or limit or last_words(result.stderr)
        return Warmed(node.name, kind.words, "", result.code or 3, words)
    there = sum(module.place.is_there for module in done.modules)
    lacks = [
        f"{module.name}: {module.place}{': ' if module.why else ''}{module.why}"
        for module in done.modules
        if not module.place.is_there
    ]
    said = f"{there} of {len(done.modules)} modules are there" + (f"; {', '.join(lacks[:5])}" if lacks else "")
    # A dry run gives 0 where it would compile; what was shared and is not taken has not come to its end.
    code = done.code or (1 if lacks and did == "shared" else 0)
    return Warmed(node.name, kind.words, did, code, said)


def _script(*words: str) -> Order:
    return Order(words=words, limit_s=_SHARE_S, script=_SCRIPT)


def _all(grid: Grid, orders: dict[Node, Order]) -> dict[Node, Result]:
    """The result of each, waited for within its limit."""
    open_ones: dict[int, Ticket] = {}
    for node, order in orders.items():
        ticket = grid.start(node, order)
        open_ones[ticket.number] = ticket
    deadline = time.monotonic() + max((order.limit_s for order in orders.values()), default=0.0) + GRACE_S
    results: dict[Node, Result] = {}
    try:
        while open_ones and time.monotonic() < deadline:
            for ticket, result in grid.wait(0.5):
                if open_ones.pop(ticket.number, None):
                    results[ticket.node] = result
    finally:  # a signal ends it, too
        for ticket in open_ones.values():
            grid.cancel(ticket)
    for ticket in open_ones.values():
        results[ticket.node] = Ended(None, None, timed_out=True, stdout=b"", stderr=b"", seconds=0.0, error="")
    return results


def _done(result: Result) -> dict[str, object] | str:
    """What the script printed, or why it did nothing."""
    if not isinstance(result, Ended):
        return f"{result.what}: {result.why}"
    if result.code != 0:
        return result.error or last_words(result.stderr) or "it did not end"
    found: dict[str, object] = json.loads(result.stdout)
    return found
