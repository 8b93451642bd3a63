"""`fi-doctor diff`: two reports, or one and this machine now, are judged alike, and what differs is written."""

from __future__ import annotations

import sys

import msgspec

from fi_doctor import pipeline
from fi_doctor.cli import commands, emit, installed, outputs, watching
from fi_doctor.cli.asked import Asked
from fi_doctor.diagnosis import changes
from fi_doctor.errors import CannotTellError, UsageError
from fi_doctor.facts import Gathering
from fi_doctor.model import Depth, Difference, KnowledgeBase, ProbeSpec, Report, Request
from fi_doctor.reports import changes as written
from fi_doctor.reports import changes_markdown


class AskedDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `diff` as they were typed."""

    before: str
    after: str | None = None  # None: this machine, now
    is_static: bool = False
    as_recorded: bool = False
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    has_exit_code: bool = False
    python: str | None = None
    quiet: bool = False


def diff(asked: AskedDiff) -> int:
    """Write what differs; with --exit-code 1 where a row does. CannotTellError where there is no row to compare."""
    _check(asked)
    targets = outputs.targets(asked.formats, "--format", asked.output, forms=written.FORMATS)
    outputs.check(targets)
    reports = [commands.document_of(name) for name in (asked.before, asked.after) if name is not None]
    gathering = Gathering(sys.executable if asked.python is None else asked.python) if asked.after is None else None
    kb, specs = installed.known()
    judged = [_judged(one, asked, kb, specs) for one in reports]
    if gathering is not None:
        judged.append(_now(reports[0], asked, gathering, kb, specs))
    found = changes.difference(*judged, kb=kb, specs=specs)
    outputs.put(targets, lambda one: _text(found, one.form))
    if not asked.has_exit_code:
        return 0
    if not found.rows_compared:
        raise CannotTellError("there is no row to compare", why="neither report has one", todo="fi-doctor check")
    return 1 if found.rows else 0


def _check(asked: AskedDiff) -> None:
    if asked.before == asked.after == "-":
        raise UsageError("diff: stdin can be only one of the two", todo="fi-doctor diff before.yaml after.yaml")
    if asked.is_static and asked.as_recorded:
        raise UsageError(
            "--static and --as-recorded: recorded verdicts rest on what was run", todo="leave one of the two out"
        )
    if asked.python is not None and asked.after is not None:
        raise UsageError("--python: nothing is examined where two reports are given", todo="leave AFTER out")
    if asked.python == "":
        raise UsageError("--python: '' names no interpreter", todo='fi-doctor diff --python "$(command -v python3)"')


def _judged(report: Report, asked: AskedDiff, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> Report:
    """A recorded report by today's knowledge, unless it is to stay as it was; static: as if nothing had been run."""
    if asked.as_recorded:
        return report
    request = report.request
    if asked.is_static:
        request = msgspec.structs.replace(request, depth=Depth.STATIC)
        report = msgspec.structs.replace(report, outcomes=())
    return pipeline.rejudge(report, request, kb=kb, specs=specs)


def _now(
    report: Report, asked: AskedDiff, gathering: Gathering, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]
) -> Report:
    """This machine, asked what the report was asked; as deep as that was, where it can be."""
    depth = Depth.STATIC if asked.is_static else report.request.depth
    request = Request(
        depth=depth,
        features=report.request.features,
        budget_s=report.request.budget_s,
        fresh_cache=report.request.fresh_cache,
    )
    with watching.progress(Asked(depth=depth.value, quiet=asked.quiet)) as watch:
        return pipeline.diagnose(
            None if depth is Depth.RUN else request,
            request,
            kb=kb,
            specs=specs,
            gathering=gathering,
            watch=watch,
        )


def _text(found: Difference, form: str) -> str:
    if form == "json":
        return written.to_json(found)
    if form == "markdown":
        return changes_markdown.render(found)
    width, _ = emit.style()
    return written.render(found, width=width)
