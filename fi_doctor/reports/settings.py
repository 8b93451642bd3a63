"""What the console says there is to set: lines to paste, each under a comment that says why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from fi_doctor.model import ActionKind, Missing, Recommendation, Report
from fi_doctor.reports import proofs
from fi_doctor.reports.answer import not_installed
from fi_doctor.reports.text import add_to, clean, command, names, wrap

_COMMENTS = (ActionKind.NOTE, ActionKind.REPORT, ActionKind.FLAG)  # kinds whose line is no command


def settings(report: Report, width: int) -> Iterator[Text]:
    """What is needed, the worst first, then what works here and is off; each block can be copied whole."""
    needed = [one for one in report.recommendations if not one.optional]
    optional = [one for one in report.recommendations if one.optional]
    yield from _title(_needed_title(report, needed))
    yield from _without_vllm(report, width, "  # " if needed else "  ")
    yield from _block(_worst_first(report, needed), report, width)
    if optional:
        yield from _title("Works here and is off by default:")
        yield from _block(optional, report, width)
    if report.disproved:
        yield from _title(proofs.DISPROVED)
        for one in report.disproved:
            yield Text(f"  # {command(one.line)}")
            yield from _proof(one, width)


def _needed_title(report: Report, needed: list[Recommendation]) -> str:
    if not needed:
        fails = any(row.verdict.is_failure for row in report.features)
        return "Nothing to set: no known setting mends this." if fails else "Nothing to set."
    can_paste = any(one.kind not in _COMMENTS for one in needed)
    return "What to do (the lines can be pasted):" if can_paste else "What to do:"


def _without_vllm(report: Report, width: int, first: str) -> Iterator[Text]:
    """That no setting of vLLM can be named, since there is none that would read it."""
    if isinstance(report.facts.packages.get("vllm"), Missing) and not not_installed(report):
        python = clean(report.facts.interpreter.executable)
        of = "FlashInfer's and SGLang's" if report.facts.version_of("sglang") else "FlashInfer's own"
        said = f"vLLM is not installed in {python}: only {of} settings are named."
        yield from (Text(line) for line in wrap(said, width, first))


def _worst_first(report: Report, needed: list[Recommendation]) -> list[Recommendation]:
    """By the gravest finding that asks; among equals the order given stays, which is by kind."""
    severities = {finding.id: finding.severity.rank for finding in report.findings}
    return sorted(needed, key=lambda one: -max((severities.get(name, -1) for name in one.findings), default=-1))


def _block(recommendations: Iterable[Recommendation], report: Report, width: int) -> Iterator[Text]:
    titles = {finding.title for finding in report.findings}
    for recommendation in recommendations:
        yield from _action(recommendation, width, is_told=recommendation.why in titles)
        yield from _proof(recommendation, width)


def _proof(recommendation: Recommendation, width: int) -> Iterator[Text]:
    """What trying it showed, below it, as comments."""
    for line in proofs.told(recommendation.proof):
        yield from (Text(text, style="dim") for text in wrap(line, width, "  #   ", "  #     "))


def _action(recommendation: Recommendation, width: int, *, is_told: bool) -> Iterator[Text]:
    """One of them; is_told: whether its reason is the title of a finding, which stands further down."""
    line = command(recommendation.line)
    asked_by = _asked_by(recommendation)
    if not (is_told and recommendation.kind in (ActionKind.NOTE, ActionKind.REPORT)):
        for text in wrap(f"{clean(recommendation.why)}{asked_by}", width, "  # "):
            yield Text(text, style="dim")
        asked_by = ""
    match recommendation.kind:
        case ActionKind.SET | ActionKind.RUN | ActionKind.INSTALL:
            yield Text(f"  {line}", style="bold")
        case ActionKind.FLAG:  # a comment: pasted by itself, a flag is no command
            yield Text(f"  # {add_to(recommendation)}{line}", style="bold")
        case ActionKind.NOTE | ActionKind.REPORT:
            label = "report upstream: " if recommendation.kind is ActionKind.REPORT else ""
            for text in wrap(f"{label}{line}{asked_by}", width, "  # "):
                yield Text(text, style="bold")


def _asked_by(recommendation: Recommendation) -> str:
    """The findings that ask for it, and the rows that its reason does not name."""
    rows = (feature for feature in recommendation.features if feature not in recommendation.why)
    asked_by = names(clean(name, 100) for name in (*recommendation.findings, *rows))
    return f" [{asked_by}]" if asked_by else ""


def _title(text: str) -> Iterator[Text]:
    yield Text()
    yield Text(text, style="bold")
