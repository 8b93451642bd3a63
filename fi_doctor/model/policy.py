"""The gate: what a policy asks, as people write it and as it is judged, and what became of it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec

from fi_doctor.model.base import Closed, Data, Strict
from fi_doctor.model.words import Evidence, Scope, Verdict

# What may be written for a time and for an amount of memory, in any case; that they are some is checked beside it.
DURATION = r"(?:\d+(?:\.\d+)?[smh]?)(?:\d+(?:\.\d+)?[smh])*"
SIZE = r"(\d{1,9}(?:\.\d{1,6})?)([mgtMGT])(?:[iI]?[bB])?"
MOST_JOBS = 999_999
DRIFT = "drift"  # of fail-on: nodes of a fleet that differ fail it; of one machine it says nothing
# What a report can be written as, and a policy can ask for.
FORMATS = (
    "console",
    "json",
    "yaml",
    "markdown",
    "junit",
    "github",
    "sarif",
    "html",
    "prometheus",
    "nfd",
    "termination-log",
)


class RequireTable(Strict, frozen=True):
    """What a required row must give; an empty word asks for what goes with the others."""

    verdict: str = ""  # works or unsupported; empty: works, and none where the evidence is built
    evidence: str = ""  # the least; empty: ran for works, declared for unsupported; built: it compiled and loaded
    scope: str = ""  # full or subset; empty: full with verified, else subset


class AllowTable(Strict, frozen=True):
    """What may fail for a while: a finding, or rows."""

    reason: str
    expires: dt.date  # the last day on which it allows
    finding: str = ""  # id
    feature: str = ""  # glob
    verdict: tuple[str, ...] = ()  # of the rows that it excuses; none: any


class PolicyFile(Strict, frozen=True, rename="kebab"):
    """fi-doctor.toml, or [tool.fi-doctor] in pyproject.toml; None: the file does not say."""

    require: dict[str, RequireTable] = {}  # by a glob of features
    versions: dict[str, str] = {}  # package, driver, nvcc, cuda or python -> range
    fail_on: tuple[str, ...] | None = None
    rows: str | None = None  # that fail-on looks at: all or called
    budget: str | None = None
    jobs: Annotated[int, msgspec.Meta(ge=0, le=MOST_JOBS)] | None = None
    memory: str | None = None
    depth: str | None = None
    feature: tuple[str, ...] | None = None
    format: tuple[str, ...] | None = None
    allow: tuple[AllowTable, ...] = ()


class Requirement(Data, frozen=True):
    """What the rows that a glob names must give at least."""

    feature: str  # glob
    verdict: Verdict  # unknown: none is asked for, only that the row compiled and loaded
    evidence: Evidence
    scope: Scope
    source: str  # who asks: "--require", "fi-doctor.toml: require"

    @property
    def asks_build(self) -> bool:
        """Whether all that is asked is that the rows compiled and loaded here, or are known better, and do not fail."""
        return self.verdict is Verdict.UNKNOWN

    @property
    def words(self) -> str:
        """In words: "moe.fp8_block: works, verified, full", "norm.*: built"."""
        if self.asks_build:
            return f"{self.feature}: {self.evidence}{', full' if self.scope is Scope.FULL else ''}"
        return f"{self.feature}: {self.verdict}, {self.evidence}, {self.scope}"


class Allowance(Data, frozen=True):
    """What may fail until a day."""

    finding: str  # id, or "" where rows are allowed
    feature: str  # glob, or "" where a finding is allowed
    reason: str
    expires: str  # ISO date, the last day on which it allows
    source: str
    verdicts: tuple[str, ...] = ()  # of the rows that it excuses; none: any

    @property
    def what(self) -> str:
        """In words: "finding nvcc-too-old", "feature moe.* (works)"."""
        verdicts = f" ({', '.join(self.verdicts)})" if self.verdicts else ""
        return f"finding {self.finding}" if self.finding else f"feature {self.feature}{verdicts}"


class Policy(Data, frozen=True):
    """What is asked beside the rows that were selected, by the policy and the options that go before it."""

    file: str = ""  # that it was read from; "" for none
    requirements: tuple[Requirement, ...] = ()
    versions: dict[str, str] = {}
    # Verdicts of selected rows, and severities: a finding of one of them or of a graver one fails too.
    fail_on: tuple[str, ...] = (Verdict.BROKEN.value, Verdict.WRONG_RESULT.value)
    # That fail-on looks at, of those selected; called: what vLLM can call, and what is required. "": that, or all where
    # rows are selected by name.
    rows: str = ""
    names_verdict: bool = True  # False: fail-on was written and names none, so that those that fail by default stay
    allowed: tuple[Allowance, ...] = ()
    day: str = ""  # ISO date by which `allowed` is judged; "" where nothing is allowed
    # Key -> who gave its value: "--budget", "FI_DOCTOR_FAIL_ON", "fi-doctor.toml: format"; of what nobody gave nothing.
    sources: dict[str, str] = {}


class Holds(Closed):
    """Whether a requirement holds."""

    CANNOT_TELL = "cannot tell"
    NO = "no"
    ALLOWED = "allowed"  # it would not hold, and what it does not hold for is allowed to fail
    YES = "yes"


class Ruling(Data, frozen=True):
    """One requirement, and whether it holds."""

    requirement: str  # in words: "moe.fp8_block: works, verified, full"
    source: str  # who asks: "default", "--require", "fi-doctor.toml: require"
    holds: Holds
    why: str = ""  # what decided that
    rows: tuple[str, ...] = ()  # names of the rows because of which it does not hold
    findings: tuple[str, ...] = ()  # ids of the findings because of which it does not hold
    decides: bool = False  # whether the exit code is its


class Excuse(Data, frozen=True):
    """What became of something that was allowed to fail."""

    what: str  # "finding nvcc-too-old", "feature moe.*"
    state: str  # "used", "unused", "expired", "not selected"
    reason: str
    expires: str
    rows: tuple[str, ...] = ()  # names of the rows that failed and were excused
    findings: tuple[str, ...] = ()  # ids of the findings that were excused


class Gate(Data, frozen=True):
    """Whether what was asked for holds."""

    code: int  # exit code: 0 holds, 1 measured and does not hold, 3 could not tell
    reason: str  # the deciding line
    counts: dict[str, int]  # rows by verdict
    measured: int  # rows measured on what they need
    failed_required: tuple[str, ...] = ()
    requirements: tuple[Ruling, ...] = ()
    allowed: tuple[Excuse, ...] = ()
    warnings: tuple[str, ...] = ()  # of what is allowed and should be looked at
