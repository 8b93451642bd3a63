"""The report as labels of a node: a feature file for the local source of Kubernetes' node-feature-discovery.

The file goes to /etc/kubernetes/node-feature-discovery/features.d/ under a name that does not begin with a dot. Names
and values are those that Kubernetes takes for labels: at most 63 characters of letters, digits, "-", "_" and ".", a
letter or a digit at either end. The namespace is ours, which nfd-master allows unless it is told not to
(-deny-label-ns).
Source: docs/usage/customization-guide.md and source/local/local.go of node-feature-discovery.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections import Counter
from collections.abc import Iterator

from fi_doctor.model import FeatureRow, Missing, Package, Report, Severity, Verdict
from fi_doctor.reports.answer import sms_of
from fi_doctor.reports.document import in_order

NAMESPACE = "fi-doctor.io"
MOST = 63  # characters of a name and of a value
MAX_BYTES = 65_536  # of a file; a larger one is ignored
_FIT_FOR_DAYS = 7  # a node that is not checked any more loses its labels
_GATE = {0: "holds", 1: "fails", 3: "cannot-tell"}
_WORST = (Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.UNSUPPORTED, Verdict.WORKS)


def render(report: Report) -> str:
    """The labels, sorted; a feature that several kinds of GPU have has one label for each, NAME.sm90.

    They expire a week after the check, where the report says when that was.
    """
    report = in_order(report)
    labels = {**dict(_rows(report)), **dict(_summary(report))}
    lines = [f"# fi-doctor {_value(report.doctor.version)}; verdicts by feature, and what the gate says"]
    lines += _expiry(report.created)
    size = sum(len(line) + 1 for line in lines)
    for name, value in sorted(labels.items()):
        line = f"{NAMESPACE}/{name}={value}"
        size += len(line) + 1
        if size > MAX_BYTES - 100:
            lines.append("# the rest is left out: a larger file would be ignored as a whole")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _summary(report: Report) -> Iterator[tuple[str, str]]:
    """What is said of the node as a whole; of a report for another machine also for which it foretells."""
    if report.target is not None:
        yield "target", _value(report.target.words)
    yield "gate", _GATE.get(report.gate.code, "cannot-tell")
    counts = Counter(row.verdict for row in report.features)
    yield from ((f"rows.{verdict}", str(counts[verdict])) for verdict in Verdict)
    grave = sum(one.severity is Severity.ERROR for one in report.findings)
    yield "findings.error", str(grave)
    for name, package in (("flashinfer", "flashinfer-python"), ("torch", "torch"), ("vllm", "vllm")):
        found = report.facts.packages.get(package)
        if isinstance(found, Package) and isinstance(found.version, str):
            yield f"version.{name}", _value(found.version)
    yield "version.fi-doctor", _value(report.doctor.version)


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    """A label for each row, of rows that come to one name that of the worst; of one that works also its evidence."""
    several = len(sms_of(report.features)) > 1
    found: dict[str, FeatureRow] = {}
    for row in report.features:
        has_sm = several and not isinstance(row.sm, Missing) and row.needs_gpu
        name = _name(f"{row.feature}.sm{row.sm}" if has_sm else row.feature)
        before = found.get(name)
        if name and (before is None or _WORST.index(row.verdict) < _WORST.index(before.verdict)):
            found[name] = row
    for name, row in found.items():
        yield name, str(row.verdict)
        evidence = _name(f"{name}.evidence")
        if row.verdict is Verdict.WORKS and evidence not in found:
            yield evidence, str(row.evidence)


def _expiry(created: str) -> list[str]:
    """Until when the labels stand, as time.RFC3339 of Go reads it; nothing where it is not known when they are from."""
    try:
        day = dt.datetime.fromisoformat(created.replace("Z", "+00:00"))
        until = (day + dt.timedelta(days=_FIT_FOR_DAYS)).astimezone(dt.timezone.utc)
    except (ValueError, OverflowError):
        return []
    return [f"# +expiry-time={until:%Y-%m-%dT%H:%M:%SZ}"] if until.year >= 1000 else []


def _name(text: str) -> str:
    """The text as a name; of one that is too long the beginning and a digest, which tells names apart; "" for none."""
    word = _allowed(text)
    if len(word) <= MOST:
        return word
    return f"{word[: MOST - 9]}-{hashlib.sha256(word.encode()).hexdigest()[:8]}"


def _value(text: str) -> str:
    return _allowed(text)[:MOST].rstrip("-_.")


def _allowed(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-_.")
