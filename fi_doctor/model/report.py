"""The report: verdicts and what they rest on; its fields are the wire format."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.deployed import Deployed
from fi_doctor.model.facts import Facts
from fi_doctor.model.policy import Gate, Policy
from fi_doctor.model.probes import Depth, Outcome
from fi_doctor.model.proofs import Proof
from fi_doctor.model.targets import Target
from fi_doctor.model.upgrade import Upgrade
from fi_doctor.model.words import Evidence, Scope, Severity, Verdict

SCHEMA = "fi-doctor.report/1.7"


class Cell(Data, frozen=True):
    """One variant of a row."""

    variant: str
    verdict: Verdict
    evidence: Evidence
    scope: Scope
    probe: str  # id of the probe whose outcome it is
    why: str


class FeatureRow(Data, frozen=True):
    """One (feature, SM)."""

    feature: str
    sm: int | Missing
    verdict: Verdict
    evidence: Evidence
    scope: Scope
    why: str  # one sentence; for a failure the deciding line
    needs_gpu: bool
    vllm: str  # what vLLM does with it, in words, for the installed vLLM where there is one
    cells: tuple[Cell, ...]
    vllm_calls: bool = True  # False: the installed vLLM, or without one the newest known, never calls it
    locked: str = ""  # not measured in this check: the day of the measurement that a lock file holds, 2026-11-28

    @property
    def name(self) -> str:
        """The row as sentences name it: "norm.rmsnorm on SM90"."""
        if isinstance(self.sm, Missing) or not self.needs_gpu:
            return self.feature
        return f"{self.feature} on SM{self.sm}"

    def as_locked(self, day: str) -> FeatureRow:
        """The same, of which nothing was measured now: in a field, and in words wherever a reason is given."""
        cells = tuple(replace(cell, why=_locked(day, cell.why)) for cell in self.cells)
        return replace(self, locked=day, why=_locked(day, self.why), cells=cells)

    def without_lock(self) -> FeatureRow:
        """The row as it was when it was measured."""
        if not self.locked:
            return self
        prefix = _locked(self.locked, "")
        cells = tuple(replace(cell, why=cell.why.removeprefix(prefix)) for cell in self.cells)
        return replace(self, locked="", why=self.why.removeprefix(prefix), cells=cells)


def _locked(day: str, why: str) -> str:
    return f"locked {day}: {why}"


class Finding(Data, frozen=True):
    """A rule that holds here, or a contradiction between expectation and measurement."""

    id: str  # the rule's id; `fi-doctor explain ID`
    cause: str
    severity: Severity
    title: str
    why: str
    fix: tuple[str, ...]  # sentences or commands, the best first
    features: tuple[str, ...]  # rows it concerns, as ids
    source: str  # URL or file:line where it is known from


class ActionKind(Closed):
    """What a recommendation asks for."""

    NOTE = "note"
    SET = "set"  # an environment variable: `line` is shell
    FLAG = "flag"  # a flag of the command line of vllm serve, or of SGLang
    RUN = "run"  # `line` is a command
    INSTALL = "install"  # `line` is a command that changes what is installed
    REPORT = "report-upstream"


class Recommendation(Data, frozen=True):
    """An action, with the findings that ask for it."""

    kind: ActionKind
    line: str  # ready to paste: export NAME=value, pip install ...
    why: str
    findings: tuple[str, ...]
    features: tuple[str, ...] = ()  # rows whose verdict asks for it
    optional: bool = False  # it turns on what works here and is off; nothing is wrong without it
    holds: str = ""  # in which versions: "vllm >=0.17.1,<0.34"; "": as this environment stands
    proof: Proof | None = None  # what came of trying it here, where that was asked for


class Request(Data, frozen=True):
    """What was asked for."""

    depth: Depth
    features: tuple[str, ...] = ()  # globs; empty selects all
    required: tuple[str, ...] = ()  # globs or ids that must work
    budget_s: float = 600.0
    jobs: int = 0  # 0: as many as the machine has CPUs
    memory_mib: int = 0  # for all compilers together; 0: what is available, less a reserve
    fresh_cache: bool = False
    gentle: bool = False  # beside a live server: less of everything
    # Option -> its value in the user's words, for commands that are printed back: "--memory" -> "64g".
    typed: dict[str, str] = {}
    policy: Policy = Policy()


def as_predicted(rows: Sequence[FeatureRow]) -> str:
    """What is to be added to a number of rows that fail: how many of them a rule foretells and nothing measured."""
    number = sum(row.evidence is Evidence.PREDICTED for row in rows)
    if not number:
        return ""
    return " (predicted)" if number == len(rows) else f" ({number} of them predicted)"


def selects(globs: tuple[str, ...], feature: str) -> bool:
    """Whether a feature is among those that the globs name; no glob names all of them."""
    return not globs or any(fnmatch.fnmatchcase(feature, glob) for glob in globs)


class Doctor(Data, frozen=True, omit_defaults=True):
    """Who judged."""

    version: str
    knowledge: str  # calendar version of the knowledge base
    knowledge_from: str = ""  # name and digest of the folder or bundle, where it is not that which ships


class BuildCost(Data, frozen=True):
    """What building one JIT module cost here."""

    seconds: float = 0.0  # from the beginning of its first command to the end of its last
    cpu_seconds: float = 0.0
    objects: int = 0  # that were compiled
    least_seconds: float = 0.0  # its slowest object and its link: what it takes with jobs for everybody
    peak_job_mib: int = 0  # the most that one compile command held


class FirstStart(Data, frozen=True):
    """What a server's first start would compile of the rows that were asked for, with what vLLM calls by default."""

    modules: tuple[str, ...] = ()  # as wholes; empty: none that is known of, or it was not looked at
    objects: int = 0
    jobs: int = 0  # that the estimate is for
    estimated_seconds: float = 0.0
    command: str = ""  # that compiles them beforehand, and no others
    caller: str = ""  # which vLLM it is that calls them, in words


class Builds(Data, frozen=True):
    """What was compiled for the probes: all modules in one go, so that every compile job has work."""

    seconds: float = 0.0
    jobs: int = 0
    # JIT module -> "jit-cache" (that package has it), "cache" (it was up to date in the JIT cache), "built",
    # "failed: ...", "not begun: ...", "cut off: ..."; reports of schema 1.1 say "already built" for the first two.
    modules: dict[str, str] = {}
    build_seconds: float = 0.0  # of `seconds`, those in which compilers ran
    cpu_seconds: float = 0.0  # of all compilers
    longest: str = ""  # the module that takes the longest however many jobs there are
    longest_seconds: float = 0.0  # its slowest object and its link
    peak_mib: int = 0  # the most that all compilers together held
    memory_mib: int = 0  # what they were allowed; 0: any amount
    costs: dict[str, BuildCost] = {}  # by JIT module, of those for which compilers ran
    first_start: FirstStart = FirstStart()  # once this check was over; not looked at where caches were fresh

    @property
    def least_seconds(self) -> float:
        """What nobody can do better: the longest module by itself, or all the work spread over all jobs."""
        return max(self.longest_seconds, self.cpu_seconds / max(1, self.jobs))


class Report(Data, frozen=True):
    """The whole answer. `created` and every field named seconds are the only ones that differ between equal runs."""

    schema: str
    doctor: Doctor
    request: Request
    created: str  # ISO 8601, UTC
    facts: Facts
    features: tuple[FeatureRow, ...]
    findings: tuple[Finding, ...]
    recommendations: tuple[Recommendation, ...]
    outcomes: tuple[Outcome, ...]
    gate: Gate
    seconds: float = 0.0  # wall time of reading, building and running
    builds: Builds = Builds()
    deployed: Deployed | None = None  # what becomes of the model that is to be served, where one was named
    upgrade: Upgrade | None = None  # where something fails that a known version mends and no setting helps
    target: Target | None = None  # the machine that it is for, which is not that where it was made
    bounds: tuple[str, ...] = ()  # what the probes were held to beside others, and what nothing bounds, in sentences
    disproved: tuple[Recommendation, ...] = ()  # what would be recommended, was tried here and did not help
