"""Reports of many nodes, merged: who is like whom, what sets the odd ones apart, what the gate makes of it all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fi_doctor import __version__
from fi_doctor.errors import DoctorError
from fi_doctor.fleet import ages, gating, judging, nodes, redacting, variables
from fi_doctor.fleet.comparing import Compared, compare
from fi_doctor.fleet.explaining import Explainer, Kind
from fi_doctor.fleet.judging import Judge
from fi_doctor.fleet.reading import NodeReport, Reader, Reading
from fi_doctor.fleet.weighing import Scales
from fi_doctor.model import Doctor, Evidence, KnowledgeBase, ProbeSpec, Report, Request, Verdict, secrets
from fi_doctor.model.fleet import FLEET_SCHEMA, FleetReport, Judgement, Node, Unread

__all__ = ["Fleet", "NodeReport", "merge"]


class Fleet(NamedTuple):
    """What is told of a fleet, and a report of each judgement for what is told of nodes one by one."""

    document: FleetReport
    judged: tuple[Report, ...]  # by Node.judged; their facts without the large tables


def merge(  # noqa: PLR0913 - what is merged, what is asked, what is known
    reports: Iterable[NodeReport],
    request: Request,
    *,
    kb: KnowledgeBase,
    specs: tuple[ProbeSpec, ...],
    driver: NodeReport | str | None = None,
    notes: Sequence[str] = (),
    as_recorded: bool = False,
    strangers: Mapping[str, str] | None = None,
) -> Fleet:
    """The fleet that these reports tell of, taken one at a time; what cannot be read is named and left out.

    request: what is asked of every node. driver: where vLLM is started, whose variables the
    workers should have: a report of its own, or a node's name. notes: looked at once all reports are taken.
    as_recorded: verdicts as they were written; else those of another knowledge are judged again.
    strangers: the variables of this process, where the fleet is told without names of people and hosts.
    """

    def stands(doctor: Doctor) -> bool:
        """Whether its verdicts are taken as they were written: it knew what is known here."""
        return as_recorded or (doctor.version, doctor.knowledge) == (__version__, kb.version)

    reader, found, unread = Reader(stands), list[Reading](), list[Unread]()
    for one in reports:
        read = _read(one, reader)
        if isinstance(read, Unread):
            unread.append(read)
        else:
            found.append(read)
    readings, told = nodes.distinct(found)
    launching = _launching(driver, readings, unread, reader)
    redaction = None
    if strangers is not None:
        redaction = redacting.of(found, unread, strangers)
        called = redacting.numbered(readings)
        launching = _called(launching, readings, called)
        unread, readings = redacting.unread_numbered(unread, len(readings) + 1), called
        left = len(found) - len(called)
        told = (f"{left} of the reports are older than another of their node: left out",) if left else ()
    judge = Judge(reader, request, kb, specs)
    numbers = [judge.judge(one) for one in readings]
    compared = compare(readings, reader)
    kinds = _kinds(readings, numbers, compared, judge)
    explainer = Explainer(kinds, compared, readings, judge, Scales(judge, kb, specs))
    groups, splits = explainer.groups(), explainer.splits()
    place = {number: at for at, kind in enumerate(kinds) for number in kind.members}
    every = tuple(_node(one, numbers[at], place[at], judge) for at, one in enumerate(readings))
    if isinstance(launching, Unread):
        told = (*told, f"The driver's variables are not known: {launching.what}")
        launching = None
    judged = tuple(judge.reports if redaction is None else map(redaction.report, judge.reports))
    document = FleetReport(
        schema=FLEET_SCHEMA,
        doctor=Doctor(version=__version__, knowledge=kb.version, knowledge_from=kb.origin),
        request=request,
        created=max((one.created for one in readings), key=ages.instant, default=""),
        nodes=every,
        groups=groups,
        splits=splits,
        judgements=tuple(map(_judgement, judged, judge.recorded)),
        unread=tuple(sorted(unread, key=lambda one: (nodes.natural(one.name), one.source))),
        notes=(*notes, *told, *explainer.notes()),
        variables=variables.of_driver(launching, readings, reader) if launching else (),
        gate=gating.of_fleet(every, judge.reports, unread, groups, splits, request.policy),
        driver=launching.name if launching else "",
    )
    document = secrets.without(document)
    return Fleet(document if redaction is None else redaction.document(document), judged)


def _read(one: NodeReport, reader: Reader) -> Reading | Unread:
    try:
        return reader.read(one)
    except DoctorError as error:
        return _unread(one, error)


def _unread(one: NodeReport, error: DoctorError) -> Unread:
    what, why, todo, name = map(secrets.hidden, (error.what, error.why, error.todo, one.name))
    return Unread(name=name, what=what, why=why, todo=todo, source=secrets.hidden(one.source))


def _launching(
    driver: NodeReport | str | None, readings: Sequence[Reading], unread: Sequence[Unread], reader: Reader
) -> Reading | Unread | None:
    """Where vLLM is started, as it was read; None where nobody says."""
    if driver is None:
        return None
    if not isinstance(driver, str):
        return _read(driver, reader)
    lost = next((one for one in unread if one.name == driver), None)
    is_read = any(one.name == driver for one in readings)
    return lost if lost and not is_read else variables.named(driver, readings)


def _called(
    launching: Reading | Unread | None, readings: Sequence[Reading], called: Sequence[Reading]
) -> Reading | Unread | None:
    """Where vLLM is started, by its number where it is one of the nodes."""
    if not isinstance(launching, Reading):
        return launching
    at = next((at for at, one in enumerate(readings) if one is launching), None)
    return launching._replace(name="<driver>", source="") if at is None else called[at]


def _kinds(readings: Sequence[Reading], numbers: Sequence[int], compared: Compared, judge: Judge) -> list[Kind]:
    """Nodes that differ in nothing, the most first: by what they have otherwise, their side of a split, their rows."""
    standing = [judging.standing(one) for one in judge.reports]
    by_content: dict[object, list[int]] = defaultdict(list)
    shape: dict[tuple[int, ...], object] = {}
    for at, one in enumerate(readings):
        if one.sections not in shape:
            shape[one.sections] = (
                frozenset(apart for number in one.sections for apart in compared.drifts.get(number, ())),
                frozenset(side for number in one.sections for side in compared.sides.get(number, ())),
            )
        by_content[shape[one.sections], standing[numbers[at]]].append(at)
    members = sorted(by_content.values(), key=lambda of: (-len(of), of[0]))
    return [Kind(tuple(of), readings[of[0]], numbers[of[0]]) for of in members]


def _node(one: Reading, number: int, group: int, judge: Judge) -> Node:
    report = judge.reports[number]
    row = judging.worst(report)
    return Node(
        name=one.name,
        group=group,
        judged=number,
        code=report.gate.code,
        row=row.name if row else "",
        verdict=row.verdict if row else Verdict.UNKNOWN,
        evidence=row.evidence if row else Evidence.NONE,
        created=one.created,
        source=one.source,
        hostname=one.hostname,
        gpus=one.serials,
        schema=f"fi-doctor.report/1.{one.minor}",
        doctor=one.doctor,
    )


def _judgement(report: Report, is_recorded: bool) -> Judgement:  # noqa: FBT001 - of two lists side by side
    return Judgement(
        request=report.request,
        features=report.features,
        findings=report.findings,
        gate=report.gate,
        is_recorded=is_recorded,
    )
