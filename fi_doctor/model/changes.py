"""What differs between two reports: verdicts, the facts that they rest on, findings."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing
from fi_doctor.model.words import Evidence, Verdict

DIFFERENCE_SCHEMA = "fi-doctor.difference/1.0"


class RowChange(Data, frozen=True):
    """A row whose verdict, evidence or reason differs; a row that only one report has is None on the other side."""

    feature: str
    sm: int | Missing
    verdicts: tuple[Verdict | None, Verdict | None]
    evidence: tuple[Evidence | None, Evidence | None]
    why: tuple[str, str]  # "" where there is no row


class FactChange(Data, frozen=True):
    """A fact that differs, as words."""

    name: str  # dotted: "toolkit.jit.cuda_home", "packages.vllm.version"
    before: str
    after: str


class Difference(Data, frozen=True):
    """From one report to another."""

    schema: str
    rows: tuple[RowChange, ...]
    facts: tuple[FactChange, ...]
    findings_gone: tuple[str, ...]  # ids
    findings_new: tuple[str, ...]
    rows_compared: int  # rows of either report
