"""What the ranks of a check of collectives said becomes rows: who was right, who was not, and who stopped. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fi_doctor.cluster import nccl
from fi_doctor.cluster.grid import Ended, Result
from fi_doctor.cluster.places import groups
from fi_doctor.model import secrets
from fi_doctor.model.collectives import CollectiveRow
from fi_doctor.model.words import Evidence, Verdict

MARK = "@fi-doctor-rank "  # as fi_doctor/inside/rank.py
_ITSELF = "it did not go on and ended itself"
MEET = "gloo: all ranks meet"
OPERATIONS = {"tp": ("all_reduce", "all_gather"), "pp": ("all_reduce", "hand_over")}


class Rank(NamedTuple):
    """What one rank said."""

    number: int
    node: str
    begun: tuple[str, ...]  # steps, in their order
    done: Mapping[str, float]  # step -> seconds
    wrong: Mapping[str, str]  # step -> what is wrong with its numbers
    raised: Mapping[str, str]  # step -> the error, after which it ended
    devices: int | None  # GPUs that torch sees; None: it did not say
    gpu: str
    ended: str  # why it did not come to its end; "" where it did
    log: str  # all else that was written


class Group(NamedTuple):
    """An operation in a group of ranks over a backend."""

    backend: str
    kind: str
    ranks: tuple[int, ...]
    operation: str

    def steps(self, elements: Sequence[int]) -> list[str]:
        """The names that rank.py gives to its steps."""
        name = f"{self.backend}: {self.kind} {'-'.join(map(str, self.ranks))}"
        return [f"{name}: {self.operation} of {count} elements" for count in elements]


def read(number: int, node: str, result: Result) -> Rank:
    """The steps in what a child wrote."""
    said = result.stdout.decode("utf-8", "replace").splitlines() if isinstance(result, Ended) else []
    told: list[dict[str, Any]] = [
        json.loads(line[len(MARK) :]) for line in said if line.startswith(MARK) and line.endswith("}")
    ]
    device: dict[str, Any] = next((one for one in told if one["kind"] == "device"), {})
    errors = result.stderr.decode("utf-8", "replace") if isinstance(result, Ended) else ""
    return Rank(
        number=number,
        node=node,
        begun=tuple(one["step"] for one in told if one["kind"] == "begun"),
        done={one["step"]: one["seconds"] for one in told if one["kind"] == "done"},
        wrong={one["step"]: one["wrong"] for one in told if one["kind"] == "done" and one["wrong"]},
        raised={one["step"]: one["error"] for one in told if one["kind"] == "raised"},
        devices=device.get("devices"),
        gpu=device.get("name", ""),
        ended="" if told and told[-1]["kind"] == "end" else _ending(result),
        log="\n".join([*(line for line in said if not line.startswith(MARK)), errors]),
    )


def rows(ranks: Sequence[Rank], tp: int, pp: int, elements: Sequence[int]) -> tuple[CollectiveRow, ...]:
    """That all met, then one for each operation in each group, over gloo and over NCCL."""
    stages, chains = groups(tp, pp)
    kinds = [*(("tp", one) for one in stages), *(("pp", one) for one in chains)]
    operations = [
        Group(backend, kind, tuple(members), operation)
        for backend in ("gloo", "nccl")
        for kind, members in kinds
        if len(members) > 1
        for operation in OPERATIONS[kind]
    ]
    return (_met(ranks), *(_row(group, ranks, elements) for group in operations))


def _met(ranks: Sequence[Rank]) -> CollectiveRow:
    if all(MEET in one.done for one in ranks):
        verdict, evidence, why = Verdict.WORKS, Evidence.VERIFIED, "every rank reached rank 0"
    elif any(MEET in one.begun for one in ranks):
        verdict, evidence, why = Verdict.BROKEN, Evidence.RAN, stopped(ranks)
    else:
        verdict, evidence, why = Verdict.UNKNOWN, Evidence.NONE, f"not reached: {stopped(ranks)}"
    return CollectiveRow(
        backend="gloo",
        kind="all",
        ranks=tuple(one.number for one in ranks),
        operation="meet",
        elements=(),
        verdict=verdict,
        evidence=evidence,
        why=why,
        seconds=round(max(one.done.get(MEET, 0.0) for one in ranks), 4),
    )


def _row(group: Group, ranks: Sequence[Rank], elements: Sequence[int]) -> CollectiveRow:
    members = [ranks[number] for number in group.ranks]
    steps = group.steps(elements)
    verdict, evidence, why = _judged(group, steps, members, ranks)
    ways: tuple[str, ...] = ()
    if group.backend == "nccl":
        ways = tuple(sorted({way for one in members for way in nccl.parse(one.log, "").links}))
    if verdict is Verdict.WORKS and nccl.is_over_infiniband(ways):
        evidence = Evidence.PREDICTED
        why = "the numbers agree; fi-doctor itself was never tried over InfiniBand"
    return CollectiveRow(
        backend=group.backend,
        kind=group.kind,
        ranks=group.ranks,
        operation=group.operation,
        elements=tuple(elements),
        verdict=verdict,
        evidence=evidence,
        why=why,
        seconds=round(max(sum(one.done.get(step, 0.0) for step in steps) for one in members), 4),
        transports=ways,
    )


def _judged(
    group: Group, steps: list[str], members: Sequence[Rank], ranks: Sequence[Rank]
) -> tuple[Verdict, Evidence, str]:
    for one in members:
        for step in steps:
            if step in one.wrong:
                return Verdict.WRONG_RESULT, Evidence.VERIFIED, f"{_at(one)}, {_size(step)}: {one.wrong[step]}"
    if all(step in one.done for one in members for step in steps):
        return Verdict.WORKS, Evidence.VERIFIED, "all numbers of all ranks agree"
    blind = [one for one in ranks if one.devices == 0]
    if group.backend == "nccl" and blind:
        where = ", ".join(sorted({one.node for one in blind}))
        return Verdict.UNKNOWN, Evidence.NONE, f"not run: torch sees no GPU on {where}"
    if not any(step in one.begun for one in members for step in steps):
        return Verdict.UNKNOWN, Evidence.NONE, f"not reached: {stopped(ranks)}"
    return Verdict.BROKEN, Evidence.RAN, stopped(ranks)


def stopped(ranks: Sequence[Rank]) -> str:
    """Who came least far, where, and how it ended; then who waits, and in which step."""
    far = {one.number: len(one.done) for one in ranks if one.ended}
    last = [one for one in ranks if far.get(one.number, -1) == min(far.values(), default=0)]
    if not last:
        return "no rank stopped"
    last.sort(key=_guilt)
    first = last[0]
    step = first.begun[-1] if first.begun else "before its first step"
    how = first.raised.get(step, first.ended)
    if len(last) == len(ranks) and len(set(map(_guilt, last))) == 1:
        return f"all {len(ranks)} ranks stopped in the same step: {step}: {how}"
    others = [one for one in ranks if one.ended and one not in last and one.begun]
    words = f"{_at(first)} stopped: {step}: {how}"
    if len(last) > 1:
        words += f"; so did {_listed(last[1:])}"
    if others:
        words += f"; {_listed(others)} came further: {others[0].begun[-1]}"
    return words


def _guilt(one: Rank) -> int:
    """Of ranks that came equally far one that is gone or had to be killed comes first: the others waited for it."""
    return 2 if one.raised else 1 if one.ended in (_ITSELF, "") else 0


def _ending(result: Result) -> str:
    if not isinstance(result, Ended):
        return f"{result.what} ({result.why})" if result.why else result.what
    if result.timed_out:
        return result.error or "it did not go on and was killed"
    if result.error:
        return f"it could not be started: {result.error}"
    if b"Timeout (" in result.stderr:  # faulthandler
        return _ITSELF
    how = f"signal {result.signal}" if result.signal else f"code {result.code}"
    errors = secrets.hidden(result.stderr.decode("utf-8", "replace"))  # before it is cut
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"it ended with {how}{': ' + lines[-1][:300] if lines else ''}"


def _at(one: Rank) -> str:
    return f"rank {one.number} on {one.node}"


def _size(step: str) -> str:
    return step.rpartition(" of ")[2]


def _listed(some: Sequence[Rank]) -> str:
    numbers = ", ".join(str(one.number) for one in some)
    return f"rank {numbers}" if len(some) == 1 else f"ranks {numbers}"
