"""The answer of `fi-doctor explain LOG`; its fields are the wire format."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data
from fi_doctor.model.logs import LogFact

EXPLAIN_SCHEMA = "fi-doctor.explain/1.0"


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
    at: int = 0  # where in the text the sign begins


class Diagnosis(Data, frozen=True):
    """A cause that the log tells of."""

    rule: str  # id of the fault; `fi-doctor explain ID`
    cause: str
    family: str
    confidence: Confidence
    flashinfer_at_fault: bool  # False: a bystander, which lies with something else, or what nothing ties to it
    title: str
    why: str
    remedies: tuple[str, ...]  # commands or sentences, the best first, for the versions that are known
    matched: tuple[Matched, ...]  # in the order of the log
    reason: str  # why these lines decide, or what keeps them from it
    unknown: tuple[str, ...] = ()  # what would have to be known to be surer
    confirm: tuple[str, ...] = ()  # commands that settle it on the machine
    fixed_in: dict[str, str] = {}  # distribution -> first release without it
    source: str = ""
    is_tied: bool = True  # False: the cause would be FlashInfer's, and no line says that this one is


class Read(Data, frozen=True):
    """One input."""

    file: str
    lines: int
    bytes: int


class Part(Closed):
    """A part of a server that has several kernels to choose from."""

    OTHER = "other"
    ATTENTION = "attention"
    MOE = "moe"
    LINEAR = "linear"
    SAMPLER = "sampler"
    ALL_REDUCE = "all-reduce"
    KV_CACHE = "kv-cache"
    PRECISION = "precision"
    AUTOTUNE = "autotune"


class Used(Data, frozen=True):
    """What the server says that it uses for a part."""

    part: Part
    choice: str  # in its words: "TRITON_ATTN", "MARLIN"
    line: int
    file: str = ""
    among: str = ""  # the candidates that it names
    instead: str = (
        ""  # what of FlashInfer works here, by the report or the machine that was given; "": none, or not known
    )


class Event(Data, frozen=True):
    """An error in the log, whatever is known of it."""

    # exception, compiler, linker, build, cuda, signal, memory, hang, ended, logger, request, overcome, stopped
    kind: str
    line: int
    text: str
    file: str = ""
    follows: bool = False  # it is brought about by something before it
    times: int = 1
    ranks: tuple[str, ...] = ()


class Explanation(Data, frozen=True):
    """The whole answer."""

    schema: str
    answer: str  # one sentence
    diagnoses: tuple[Diagnosis, ...]  # the best first; empty: not known
    errors: tuple[Event, ...] = ()  # in the order of the log, each text once
    used: tuple[Used, ...] = ()
    helps: tuple[str, ...] = ()  # what would help to tell
    facts: tuple[LogFact, ...] = ()
    read: tuple[Read, ...] = ()
    knowledge: str = ""  # version, name and digest of the knowledge, where it is not that which ships
