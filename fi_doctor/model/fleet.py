"""Many machines as one: groups of equal nodes, what sets the odd ones apart, and whether what was asked for holds."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data
from fi_doctor.model.policy import Gate
from fi_doctor.model.report import Doctor, FeatureRow, Finding, Request
from fi_doctor.model.words import Evidence, Verdict

FLEET_SCHEMA = "fi-doctor.fleet/1.0"


class Weight(Closed):
    """What depends on a difference, the least first."""

    NOTHING = "nothing that is known"  # no rule, and no row that was looked at, rests on such a fact
    MAY = "rules or rows can"  # rest on such a fact; it makes no difference here
    FINDING = "a finding"  # a finding came or went, and its rule reads the fact
    VERDICT = "a verdict"  # a verdict differs, and its row can rest on the fact


class Value(Data, frozen=True):
    """A value of a fact, and the nodes that have it."""

    value: str  # in words
    nodes: tuple[str, ...]


class Following(Data, frozen=True):
    """A fact that differs because another does."""

    fact: str
    here: str
    others: str


class Drift(Data, frozen=True):
    """One independent difference: the fact that tells most of it, and those that follow from it."""

    fact: str  # dotted: "gpus.driver.version"
    here: str
    others: str  # of most nodes
    said: str  # "driver 570.86.10, the others 580.159.04"
    weight: Weight
    rows: tuple[str, ...] = ()  # whose verdict differs and that can rest on it
    findings: tuple[str, ...] = ()  # ids that came or went with it
    follows: tuple[Following, ...] = ()


class Split(Data, frozen=True):
    """A fact, or a verdict, of which no value is that of most nodes: nobody is odd by it."""

    fact: str
    said: str
    weight: Weight
    values: tuple[Value, ...]  # the most frequent first
    rows: tuple[str, ...] = ()  # of verdicts: the rows, or findings, that these nodes have so; empty for a fact


class NodeGroup(Data, frozen=True):
    """Nodes whose facts are equal, but for those that differ by nature, and whose verdicts are."""

    nodes: tuple[str, ...]
    judged: int  # its place in `judgements`
    is_odd: bool  # whether it stands apart from most nodes
    said: tuple[str, ...] = ()  # at most two lines that tell why
    drifts: tuple[Drift, ...] = ()  # what sets it apart, that on which most depends first
    rows: tuple[str, ...] = ()  # names of the rows whose verdict is another than that of most nodes


class Judgement(Data, frozen=True):
    """Verdicts that one or more nodes share, and what the gate makes of them."""

    request: Request
    features: tuple[FeatureRow, ...]
    findings: tuple[Finding, ...]
    gate: Gate
    is_recorded: bool  # whether they are as they were written; False: judged again by today's knowledge


class Node(Data, frozen=True):
    """A machine of the fleet, as its newest report has it."""

    name: str
    group: int  # its place in `groups`
    judged: int  # its place in `judgements`
    code: int  # exit code of its gate
    row: str = ""  # the worst of its rows, of the required ones where some are; "" for none
    verdict: Verdict = Verdict.UNKNOWN  # of that row
    evidence: Evidence = Evidence.NONE
    created: str = ""
    source: str = ""  # the file
    hostname: str = ""  # as it calls itself
    gpus: tuple[str, ...] = ()  # UUIDs
    schema: str = ""
    doctor: Doctor | None = None


class Unread(Data, frozen=True):
    """A node of which there is no report."""

    name: str
    what: str
    why: str = ""
    todo: str = ""
    source: str = ""


class VariableDrift(Data, frozen=True):
    """A variable of the driver's that workers have otherwise."""

    name: str
    driver: str  # its value there; "" where it is not set
    workers: tuple[Value, ...]  # the values of those that differ; "": not set
    said: str
    is_copied: bool | None  # whether the installed vLLM hands it to Ray workers; None: not known


class FleetReport(Data, frozen=True):
    """The whole answer."""

    schema: str
    doctor: Doctor
    request: Request
    created: str  # of the newest report
    nodes: tuple[Node, ...]  # by name
    groups: tuple[NodeGroup, ...]  # the largest first
    splits: tuple[Split, ...]
    judgements: tuple[Judgement, ...]
    unread: tuple[Unread, ...]
    notes: tuple[str, ...]  # what was left out or taken for something, in sentences
    variables: tuple[VariableDrift, ...]  # of the driver against its workers; empty where no driver is known
    gate: Gate
    driver: str = ""  # the node on which vLLM is started; "" for none that is known
