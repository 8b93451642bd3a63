"""The report as metrics for node_exporter's textfile collector, in Prometheus' text format 0.0.4.

Every metric is a gauge of the last check, without a timestamp: the collector adds one, and two checks of the same
answer give the same text but for the seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.model import Missing, Package, Report, Severity, Verdict
from fi_doctor.reports.document import in_order
from fi_doctor.reports.text import clean

_LIMIT = 200  # characters of a label
_PACKAGES = {"flashinfer": "flashinfer-python", "torch": "torch", "vllm": "vllm", "sglang": "sglang"}


class Gauge(NamedTuple):
    """A metric and its samples."""

    name: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float]  # labels -> value; what has the same labels is one sample


def render(report: Report) -> str:
    """The whole report; the same metrics in the same order whatever it holds."""
    return "".join(line + "\n" for one in gauges(report) for line in lines(one))


def gauges(report: Report) -> Iterator[Gauge]:
    """All metrics of a report, the same in the same order whatever it holds."""
    report = in_order(report)
    gate = report.gate
    yield gauge("info", "Who judged, and what was judged; always 1.", [(_about(report), 1)])
    said = "Exit code of the gate: 0 what was asked for holds, 1 measured and does not hold, 3 could not tell."
    yield gauge("gate_exit_code", said, [({}, gate.code)])
    yield gauge("gate_requirements", "Requirements by whether they hold.", _requirements(report))
    yield gauge("feature", "Verdict on a feature on an SM, and how it is known; always 1.", _features(report))
    counts = Counter(row.verdict for row in report.features)
    yield gauge("features", "Rows by verdict.", [({"verdict": one}, counts[one]) for one in Verdict])
    yield gauge("measured_features", "Rows that were measured on what they need.", [({}, gate.measured)])
    grave = Counter(one.severity for one in report.findings)
    yield gauge("findings", "Findings by severity.", [({"severity": one}, grave[one]) for one in Severity])
    found = Counter((one.id, one.severity) for one in report.findings)
    told = [({"id": name, "severity": severity}, count) for (name, severity), count in sorted(found.items())]
    yield gauge("finding", "Findings by id.", told)
    yield gauge("check_duration_seconds", "Wall time of reading, building and running.", [({}, report.seconds)])
    yield gauge("build_duration_seconds", "Wall time of compiling.", [({}, report.builds.build_seconds)])
    yield gauge("probe_duration_seconds", "Time of a probe by the stage that it went into.", _probes(report))


def _about(report: Report) -> dict[str, str]:
    """Labels of the check as a whole; "" for what is not there or not known."""
    facts = report.facts
    found = {name: facts.packages.get(package) for name, package in _PACKAGES.items()}
    versions = {
        name: one.version if isinstance(one, Package) and isinstance(one.version, str) else ""
        for name, one in found.items()
    }
    driver = facts.gpus.driver
    return {
        "version": report.doctor.version,
        "knowledge": report.doctor.knowledge,
        "depth": report.request.depth,
        **({"target": report.target.words} if report.target is not None else {}),
        "driver": "" if isinstance(driver, Missing) else driver.version,
        **versions,
    }


def _requirements(report: Report) -> list[tuple[dict[str, str], float]]:
    counts = Counter(ruling.holds.value for ruling in report.gate.requirements)
    return [({"holds": holds}, counts[holds]) for holds in ("yes", "no", "cannot tell", "allowed")]


def _features(report: Report) -> Iterator[tuple[dict[str, str], float]]:
    for row in report.features:
        yield (
            {
                "feature": row.feature,
                "sm": _sm(row.sm),
                "verdict": row.verdict,
                "evidence": row.evidence,
                "scope": row.scope,
                "called": "true" if row.vllm_calls else "false",
                "locked": row.locked,
            },
            1,
        )


def _probes(report: Report) -> Iterator[tuple[dict[str, str], float]]:
    for outcome in report.outcomes:
        for stage, seconds in sorted(outcome.seconds.items()):
            yield {"probe": outcome.probe, "sm": _sm(outcome.sm), "stage": stage}, seconds


def _sm(sm: int | Missing) -> str:
    return "" if isinstance(sm, Missing) else str(sm)


def gauge(name: str, said: str, samples: Iterable[tuple[dict[str, str], float]]) -> Gauge:
    """A metric of ours, its labels cleaned."""
    return Gauge(
        f"fi_doctor_{name}",
        said,
        {tuple((key, clean(text, _LIMIT)) for key, text in labels.items()): value for labels, value in samples},
    )


def lines(one: Gauge) -> Iterator[str]:
    """A metric as it is scraped."""
    yield f"# HELP {one.name} {one.help}"
    yield f"# TYPE {one.name} gauge"
    for labels, value in one.samples.items():
        words = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        yield f"{one.name}{f'{{{words}}}' if words else ''} {_number(value)}"


def _escaped(text: str) -> str:
    """A label's value; `clean` leaves no line break in it."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isfinite(value):
        return f"{value:g}" if value == int(value) and abs(value) < 1e6 else repr(float(value))
    return "NaN" if math.isnan(value) else f"{'+' if value > 0 else '-'}Inf"
