"""`fi-doctor features`: what a complete backend needs, what of it is there, and how vLLM calls FlashInfer."""

from __future__ import annotations

import sys

import msgspec

from fi_doctor import pipeline
from fi_doctor.cli import commands, emit, installed, parse
from fi_doctor.cli.asked import Asked
from fi_doctor.diagnosis import coverage
from fi_doctor.errors import CannotTellError, UsageError
from fi_doctor.facts import Gathering
from fi_doctor.facts.calls import read_calls_whole
from fi_doctor.model import Coverage, Depth, Missing, Silent
from fi_doctor.reports import coverage as written

_OTHER = "fi-doctor features --python /path/to/venv/bin/python"


class AskedFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `features` as they were typed."""

    only_missing: bool = False
    is_calls: bool = False
    is_rows: bool = False
    python: str | None = None
    from_file: str | None = None
    example: str | None = None
    form: str = "console"
    output: str | None = None
    knowledge: str | None = None


def features(asked: AskedFeatures) -> int:
    """Write what is asked for; 0 once it is written.

    CannotTellError where it is asked what is missing, or how it is called, and there is nothing to look at.
    """
    form = parse.choice(asked.form, written.FORMATS, "--format")
    _check(asked)
    if asked.is_rows:
        return commands.features(asked.knowledge)
    if asked.output is not None:
        emit.check_writable(asked.output)
    found = _cover(asked)
    width, _ = emit.style()
    if asked.is_calls:
        if isinstance(found.calls, Missing):
            raise CannotTellError("it cannot be told how vLLM calls FlashInfer", why=found.calls.reason, todo=_OTHER)
        emit.write(written.calls(found, form, width=width), asked.output)
        return 0
    if asked.only_missing and all("flashinfer" in one.unknown for one in found.operators):
        raise CannotTellError("it cannot be told what is missing", why=found.flashinfer, todo=_OTHER)
    emit.write(written.render(found, form, only_missing=asked.only_missing, width=width), asked.output)
    return 0


def _check(asked: AskedFeatures) -> None:
    given = {"--missing": asked.only_missing, "--calls": asked.is_calls, "--rows": asked.is_rows}
    several = [name for name, is_given in given.items() if is_given]
    if len(several) > 1:
        raise UsageError(f"{several[0]} and {several[1]}: one list at a time", todo=f"fi-doctor features {several[0]}")
    sources = {"--from": asked.from_file, "--example": asked.example, "--python": asked.python}
    named = [name for name, value in sources.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]}: one of them", todo="leave one of the two out")
    if asked.python == "":
        raise UsageError(
            "--python: '' names no interpreter", todo='fi-doctor features --python "$(command -v python3)"'
        )


def _cover(asked: AskedFeatures) -> Coverage:
    known, specs = installed.known(asked.knowledge)
    kb = msgspec.structs.replace(known, features=commands.listed_features(known, specs))
    recorded = Asked(from_file=asked.from_file, example=asked.example)
    if recorded.is_recorded:
        report = commands.recorded(recorded)
        judged = pipeline.rejudge(report, report.request, kb=kb, specs=specs)
        return coverage.cover(kb, judged)
    request = commands.request_of(Asked(depth=Depth.STATIC.value), tuple(one.id for one in kb.features), kb)
    gathering = Gathering(sys.executable if asked.python is None else asked.python, calls=read_calls_whole)
    static = pipeline.diagnose(request, request, kb=kb, specs=specs, gathering=gathering, watch=Silent())
    return coverage.cover(kb, static)
