"""What is said of a change of versions that mends what no setting helps: a line each, in one order for all formats."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.model import Report
from fi_doctor.model.upgrade import Change, Move, Upgrade
from fi_doctor.reports.answer import sms_of
from fi_doctor.reports.text import clean, names

TITLE = "What other versions would mend (known of them, not measured)"
_CUT = 300  # characters of a reason


def told(report: Report) -> tuple[str, list[str]]:
    """The command, and what is to be said of it; nothing where no upgrade was found."""
    if report.upgrade is None:
        return "", []
    return clean(report.upgrade.line, 2000), [clean(line, 2000) for line in _lines(report.upgrade, report)]


def in_brief(report: Report) -> list[str]:
    """The same in two lines, for where settings alone are printed; nothing where it is one of the recommendations."""
    upgrade = report.upgrade
    if upgrade is None or upgrade.is_needed:
        return []
    rows = names(clean(one.row, 100) for one in upgrade.mends)
    return [
        f"nothing that {_vllm(report)} calls here asks for it; other versions would mend {rows}:",
        clean(upgrade.line, 2000),
    ]


def _lines(upgrade: Upgrade, report: Report) -> Iterator[str]:
    for one in upgrade.mends:
        idle = f", which {_vllm(report)} does not call here" if upgrade.is_needed and not one.is_called else ""
        yield f"{one.row}{idle}: at the latest from {one.since} on [{names(one.rules)}]"
    if not upgrade.is_needed:
        yield f"Nothing that {_vllm(report)} calls as this environment stands asks for it."
    yield f"{upgrade.package} {upgrade.version} is {upgrade.why}."
    yield f"Together move: {', '.join(_move(one) for one in upgrade.moves)}."
    yield from _changes(upgrade.changes, is_one_gpu=len(sms_of(report.features)) < 2)
    yield from (f"Not known: {note}." for note in upgrade.notes)


def _move(one: Move) -> str:
    _, _, remark = one.why.partition("; ")
    moved = f"{one.package} {one.installed or '(not installed)'} -> {one.wanted.removeprefix('==')}"
    return f"{moved} ({remark})" if remark else moved


def _changes(changes: tuple[Change, ...], *, is_one_gpu: bool) -> Iterator[str]:
    """Rows that change in the same way in one line; each setting and problem in its own, with the reason."""
    together: dict[str, list[str]] = {}
    for one in changes:
        way = f"{one.before} -> {one.after} ({one.evidence})"
        if "." in one.subject and not one.subject.startswith("-"):
            together.setdefault(way, []).append(one.subject.partition(" on SM")[0] if is_one_gpu else one.subject)
        else:
            together[f"{one.subject}: {way}, {clean(one.why, _CUT)}"] = []
    for way, rows in together.items():
        yield f"Would change: {way}{f': {names(rows, 40)}' if rows else ''}."


def _vllm(report: Report) -> str:
    return f"vLLM {report.facts.vllm_version}".rstrip()
