"""Where a report goes: any number of formats, each to a file of its own, one of them to stdout."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fi_doctor.cli import emit, parse
from fi_doctor.errors import UsageError
from fi_doctor.model import Report
from fi_doctor.model.policy import FORMATS
from fi_doctor.reports import render
from fi_doctor.reports.beside import NOTHING, Beside

SUMMARY = "GITHUB_STEP_SUMMARY"  # the file to which a step of GitHub Actions adds Markdown
_ENDINGS = {
    "json": "json",
    "yaml": "yaml",
    "yml": "yaml",
    "md": "markdown",
    "xml": "junit",
    "html": "html",
    "sarif": "sarif",
    "prom": "prometheus",
}


class Target(NamedTuple):
    """One format and its file."""

    form: str
    path: str | None  # None: stdout
    option: str  # what messages call it


def targets(
    words: Iterable[str], option: str, output: str | None = None, *, forms: tuple[str, ...] = FORMATS
) -> tuple[Target, ...]:
    """The formats that are named as FORMAT or FORMAT:PATH; console where none is.

    output: the file of -o, for the one format without a path; where there is none, one more format by its ending.
    """
    found = [_target(word, option, forms) for word in words]
    if output is not None:
        form = next((one.form for one in found if one.path is None), _by_ending(output, forms))
        bare = [one for one in found if one.path is None]
        if len(bare) < 2:
            found = [*(one for one in found if one.path is not None), Target(form, output, "-o")]
    elif not found:
        found = [Target("console", None, option)]
    return tuple(found)


def report_format(*, yaml: bool, json: bool, for_issue: str | None) -> str:
    """The one format that the options of `report` ask for."""
    given = {"--yaml": yaml, "--json": json, "--for-issue": for_issue is not None}
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)}: a report has one format", todo=f"fi-doctor report {named[0]}")
    if for_issue is not None:
        from fi_doctor.reports.issue import FORMS

        parse.choice(for_issue, tuple(FORMS), "--for-issue")
        return "markdown"
    return "json" if json else "yaml"


def check(wanted: tuple[Target, ...]) -> None:
    """UsageError now, before minutes of work, when one of them cannot be written or two go to one place."""
    for one in wanted:
        emit.check_writable(one.path, _named(one))
    seen: dict[object, Target] = {}
    for one in (*wanted, *_summaries(wanted)):
        for place in _places(one):
            if place in seen and not _are_streams_to(place, seen[place], one):
                raise _same(seen[place], one)
        seen |= dict.fromkeys(_places(one), one)
    for one in _summaries(wanted):
        emit.check_writable(one.path or "", SUMMARY)


def write(report: Report, wanted: tuple[Target, ...], beside: Beside = NOTHING) -> None:
    """Every format of a report, as `put` does."""
    width, color = emit.style()
    put(wanted, lambda one: render(report, one.form, width=width, color=color and one.path is None, beside=beside))


def put(wanted: tuple[Target, ...], text_of: Callable[[Target], str]) -> None:
    """Every format; where some cannot be written the others are, and the first error is raised afterwards."""
    # Files first: what reads stdout may go away or block.
    every = [*sorted(wanted, key=lambda one: one.path is None), *_summaries(wanted)]
    failed = [error for error in (_write(text_of(one), one) for one in every) if error is not None]
    if failed:
        raise failed[0]


def _write(text: str, one: Target) -> UsageError | None:
    """One format; why that failed, if it did."""
    try:
        if one.option == SUMMARY:
            emit.append(text, one.path or "", SUMMARY)
        else:
            emit.write(text, one.path, _named(one))
    except UsageError as error:
        return error
    return None


def _target(word: str, option: str, forms: tuple[str, ...]) -> Target:
    form, colon, path = word.partition(":")
    parse.choice(form, forms, option)
    if colon and not path:
        todo = parse.written(option, f"{form}:FILE")
        raise UsageError(f"{option}: {word!r} names no file", why="its path comes after the colon", todo=todo)
    return Target(form, path if colon else None, option)


def _by_ending(path: str, forms: tuple[str, ...]) -> str:
    """The format that the name of a file asks for: report.yaml, junit.xml, report.html; else console."""
    form = _ENDINGS.get(path.rpartition(".")[2].lower(), "console")
    return form if form in forms else "console"


def _named(one: Target) -> str:
    return one.option if one.option == "-o" else f"{one.option} {one.form}"


def _summaries(wanted: tuple[Target, ...]) -> list[Target]:
    """The step summary, where GitHub is written for and asks for one."""
    path = os.environ.get(SUMMARY)
    return [Target("markdown", path, SUMMARY)] if path and any(one.form == "github" for one in wanted) else []


def _places(one: Target) -> set[object]:
    """What tells whether two formats go to one place: the stream, and the file behind it or behind the name."""
    number = emit.stream_number(one.path)
    places: set[object] = set() if number is None else {number}
    try:
        found = os.fstat(number) if number is not None else Path(one.path or "").stat()
    except OSError:
        return places or {os.path.realpath(one.path or "")}
    if stat.S_ISREG(found.st_mode):
        places.add((found.st_dev, found.st_ino))
    return places


def _are_streams_to(place: object, first: Target, second: Target) -> bool:
    """Whether the place is a file behind two streams, as after 2>&1: each adds to it, as to a pipe."""
    numbers = emit.stream_number(first.path), emit.stream_number(second.path)
    return None not in numbers and place not in numbers


def _same(first: Target, second: Target) -> UsageError:
    where = "stdout" if first.path is None else repr(first.path)
    return UsageError(
        f"{second.option}: {first.form} and {second.form} both go to {where}",
        why="each needs a place of its own",
        todo=parse.written("--format" if second.option in ("-o", SUMMARY) else second.option, f"{second.form}:FILE"),
    )
