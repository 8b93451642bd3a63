"""The answer of `fi-doctor explain LOG`; its fields are the wire format."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data
from fi_doctor.model.logs import LogFact

EXPLAIN_SCHEMA = "fi-doctor.explain/1"


class Confidence(Closed):
    """How sure a diagnosis is, weakest first."""

    LOW = "low"  # signs that fit other causes too
    MEDIUM = "medium"  # a deciding sign whose conditions are not all known, or several that support it
    HIGH = "high"  # a deciding sign, and everything that could change the cause is known


class Matched(Data, frozen=True):
    """A line that speaks for a diagnosis."""

    line: int  # counted from 1
    text: str  # as it stands in the log, prefixes of loggers away
    file: str = ""
    strength: str = ""  # of the sign: decides, supports, follows-on
    source: str = ""  # where the message comes from
    times: int = 1  # how often it stands there, from all ranks
    ranks: tuple[str, ...] = ()


class Diagnosis(Data, frozen=True):
    """A cause that the log tells of."""

    rule: str  # id of the fault; `fi-doctor explain ID`
    cause: str
    family: str
    confidence: Confidence
    flashinfer_at_fault: bool  # False: a bystander; it lies with something else
    title: str
    why: str
    remedies: tuple[str, ...]  # commands or sentences, the best first, for the versions that are known
    matched: tuple[Matched, ...]  # in the order of the log
    reason: str  # why these lines decide, or what keeps them from it
    unknown: tuple[str, ...] = ()  # what would have to be known to be surer
    confirm: tuple[str, ...] = ()  # commands that settle it on the machine
    fixed_in: dict[str, str] = {}  # distribution -> first release without it
    source: str = ""


class Read(Data, frozen=True):
    """One input."""

    file: str
    lines: int
    bytes: int


class Explanation(Data, frozen=True):
    """The whole answer."""

    schema: str
    knowledge: str  # calendar version
    answer: str  # one sentence
    diagnoses: tuple[Diagnosis, ...]  # the best first; empty: not known
    follow_ons: tuple[Matched, ...] = ()  # errors that others bring about
    helps: tuple[str, ...] = ()  # what would help to tell
    facts: tuple[LogFact, ...] = ()
    read: tuple[Read, ...] = ()
