"""What differs between two reports: verdicts, the facts that they rest on, findings."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.words import Evidence, Scope, Verdict

DIFFERENCE_SCHEMA = "fi-doctor.difference/1.0"


class FactChange(Data, frozen=True, omit_defaults=True):
    """A fact that differs, as words."""

    name: str  # dotted: "toolkit.jit.cuda_home", "packages.vllm.version"
    before: str  # of a list how long it is, where what is gone and what is new says the rest
    after: str
    gone: tuple[str, ...] = ()  # of a list: what only the first has
    new: tuple[str, ...] = ()  # of a list: what only the second has


class CauseKind(Closed):
    """What kind of thing a verdict can rest on, the closest to a row last."""

    OTHER = "other"
    CACHE = "cache"
    LIBRARY = "library"
    BUDGET = "budget"  # time, jobs and memory
    BUILD_TOOL = "build tool"
    VARIABLE = "variable"
    DRIVER = "driver"
    PACKAGE = "package"
    GPU = "gpu"
    NVCC = "nvcc"
    FLASHINFER = "flashinfer"
    REQUEST = "request"  # how deep, which rows, by what knowledge
    FINDING = "finding"


class Cause(Data, frozen=True):
    """One thing that differs and that a row can rest on; whether it does nobody has tried."""

    kind: CauseKind
    name: str  # id of the finding, name of the package, the variable or the library; else the kind's word
    said: str  # what became of it, or how a row rests on it, in words
    facts: tuple[FactChange, ...]  # the most telling first; none: a finding that rests on what was measured


class RowChange(Data, frozen=True):
    """A row whose verdict, evidence or scope differs; a row that only one report has is None on the other side."""

    feature: str
    sms: tuple[int | Missing | None, int | Missing | None]
    verdicts: tuple[Verdict | None, Verdict | None]
    evidence: tuple[Evidence | None, Evidence | None]
    scope: tuple[Scope | None, Scope | None]
    why: tuple[str, str]  # "" where there is no row
    causes: tuple[Cause, ...] = ()  # the smallest and closest first


class Difference(Data, frozen=True):
    """From one report to another."""

    schema: str
    rows: tuple[RowChange, ...]
    facts: tuple[FactChange, ...]
    findings_gone: tuple[str, ...]  # ids
    findings_new: tuple[str, ...]
    rows_compared: int  # rows of either report, those of one feature on both counted once
    request: tuple[FactChange, ...] = ()  # what was asked or known otherwise: depth, rows, budget
