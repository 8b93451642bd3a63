"""What depends on a difference: a verdict, a finding, or nothing that is known; as `fi-doctor diff` tells it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from fi_doctor.diagnosis import causes, changes
from fi_doctor.diagnosis.rests import Rests
from fi_doctor.fleet import following, judging
from fi_doctor.fleet.reading import Reading
from fi_doctor.model import Cause, CauseKind, KnowledgeBase, ProbeSpec, Report
from fi_doctor.model.fleet import Weight

# Comparisons of two whole reports, of some tenths of a second each; beyond them what can rest on a fact is told.
MOST_COMPARED = 100


# Facts that conditions of rules ask for, beside those that a row can rest on; fi_doctor/conditions reads them.
READ_BY_RULES = (
    *("gpus.mig", "gpus.nvlinks", "gpus.acs_bridges", "gpus.iommu", "gpus.compute_mode", "gpus.peers"),
    *("gpus.cuda_sees", "gpus.visible_devices", "system.shm_mib", "system.container", "system.own_ipc_namespace"),
    *("system.cpus", "machine.folders", "machine.network", "machine.driver_files", "machine.user", "host_limits"),
    *("triton_ptxas", "ray_copies", "binaries", "site", "server.", "interpreter.version", "vllm.altered"),
    *("flashinfer.", "toolkit."),
)


class Weighed(NamedTuple):
    """What depends on a subject."""

    weight: Weight
    rows: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


class Scales:
    """Weighs the differences of groups; what was weighed once is remembered."""

    def __init__(self, judge: judging.Judge, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> None:
        self._judge, self._kb, self._specs = judge, kb, specs
        self._may: dict[str, bool] = {}
        self.compared = 0

    def weigh(self, subjects: dict[str, list[str]], node: Reading, usual: Reading) -> dict[str, Weighed]:
        """Subject -> what depends on it. subjects: each with its facts and those that follow from it.

        node, usual: one of the nodes that differ, and one that is as most are.
        """
        here, there = (self._judge.reports[self._judge.judge(one)] for one in (node, usual))
        rows, found = self._changed(subjects, node, usual) if _is_apart(here, there) else ({}, {})
        return {subject: self._of(subject, facts, rows, found, there) for subject, facts in subjects.items()}

    def may(self, facts: list[str], report: Report) -> bool:
        """Whether a rule reads one of the facts, or a row of the report can rest on it."""
        return any(fact.startswith(READ_BY_RULES) or self._can_rest(fact, report) for fact in facts)

    def _of(
        self,
        subject: str,
        facts: list[str],
        rows: dict[str, set[str]],
        found: dict[str, set[str]],
        usual: Report,
    ) -> Weighed:
        if subject in rows:
            return Weighed(Weight.VERDICT, tuple(sorted(rows[subject])), tuple(sorted(found.get(subject, ()))))
        if subject in found:
            return Weighed(Weight.FINDING, (), tuple(sorted(found[subject])))
        return Weighed(Weight.MAY if self.may(facts, usual) else Weight.NOTHING)

    def _changed(
        self, subjects: dict[str, list[str]], node: Reading, usual: Reading
    ) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """Subject -> names of rows whose verdict differs and can rest on it, and the same of findings."""
        rows: dict[str, set[str]] = defaultdict(set)
        found: dict[str, set[str]] = defaultdict(set)
        if self.compared >= MOST_COMPARED:
            return rows, found
        self.compared += 1
        before, after = self._judge.whole(usual), self._judge.whole(node)
        owner = {fact: subject for subject, facts in subjects.items() for fact in facts}
        changed = causes.between(before, after, self._kb)
        for finding, cause in changed.findings:
            for subject in _owners(cause, owner):
                found[subject].add(finding.id)
        difference = changes.difference(before, after, kb=self._kb, specs=self._specs)
        for row in difference.rows:
            if row.verdicts[0] is not row.verdicts[1]:
                for subject in _to_blame(row.causes, owner):
                    rows[subject].add(row.feature)
        return rows, found

    def _can_rest(self, fact: str, report: Report) -> bool:
        if fact not in self._may:
            features = {one.id: one for one in self._kb.features}
            self._may[fact] = any(
                Rests(
                    row,
                    features.get(row.feature),
                    tuple(spec for spec in self._specs if spec.feature == row.feature),
                    self._kb,
                ).on(fact)
                for row in report.features
            )
        return self._may[fact]


def _is_apart(one: Report, other: Report) -> bool:
    return judging.standing(one) != judging.standing(other)


def _to_blame(found: tuple[Cause, ...], owner: dict[str, str]) -> set[str]:
    """The subjects that a row's change is laid to: those of findings where there are some, else all it can rest on."""
    by_finding = [cause for cause in found if cause.kind is CauseKind.FINDING and cause.facts]
    return {subject for cause in by_finding or found for subject in _owners(cause, owner)}


def _owners(cause: Cause, owner: dict[str, str]) -> set[str]:
    """The subjects that have a fact of the cause, by its name or by what it is a part of."""
    found = set()
    for fact in cause.facts:
        subject = owner.get(fact.name)
        if subject is None:
            part = following.subject_of(fact.name)
            subject = next((one for name, one in owner.items() if following.subject_of(name) == part), None)
        if subject is not None:
            found.add(subject)
    return found
