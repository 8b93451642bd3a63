"""`fi-doctor explain`: the text behind an id, or what a log tells."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from contextlib import ExitStack
from pathlib import Path

import msgspec

from fi_doctor.cli import consulting, emit, outputs, streams
from fi_doctor.diagnosis import aging
from fi_doctor.errors import DataError, DoctorError, UsageError
from fi_doctor.explaining import embedded, harmless, inputs, machine, waiting
from fi_doctor.explaining.diagnose import Source, diagnose
from fi_doctor.model import Explanation, LogFact, Report, secrets
from fi_doctor.reports import explained as written

# No id ends so; a file that does is never taken for one.
_ENDINGS = (".log", ".txt", ".out", ".err", ".gz", ".zst", ".json", ".yaml", ".yml", ".md", ".stderr", ".stdout")
_HEAD = 16 << 20  # bytes of a file in which a report is looked for
_REFUSED, _UNKNOWN = 2, 3


class AskedExplain(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `explain` as they were typed."""

    names: tuple[str, ...] = ()
    is_list: bool = False  # all ids
    env_files: tuple[str, ...] = ()
    is_here: bool = False
    python: str | None = None
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    knowledge: str | None = None


def explain(asked: AskedExplain) -> int:
    """Write the text behind an id, or the answer to logs.

    0 where a cause is named or no error is told, 3 where there is an error and no cause, nothing to read, or no cause
    in what could be read of a damaged file; 2 where one of several files cannot be read: the answer is of the others.
    """
    _check(asked)
    if is_id(asked):
        from fi_doctor.cli import commands

        return commands.explain(asked.names[0] if asked.names else None, asked.knowledge, is_list=asked.is_list)
    targets = outputs.targets(asked.formats, "--format", asked.output, forms=written.FORMATS)
    outputs.check(targets)
    found, refused, is_whole = _explained(asked)
    outputs.put(targets, lambda one: _text(found, one.form))
    for error in refused:
        streams.tell_error(error)
    return _REFUSED if refused else code(found, is_whole=is_whole)


def is_id(asked: AskedExplain) -> bool:
    """Whether it is the text behind an id that is asked for, and not what a file tells.

    A name with a slash or the ending of a log is a file, and so is one of several names, and any beside an option
    about logs. Else a name that has a text is an id, even where a file is called so: ./NAME is that file.
    """
    if not asked.names:
        return not (asked.env_files or asked.is_here)
    if len(asked.names) > 1 or asked.env_files or asked.is_here:
        return False
    name = asked.names[0]
    if name == "-" or os.sep in name or name.endswith(_ENDINGS):
        return False
    if not os.path.lexists(name):
        return True
    from fi_doctor.cli import installed
    from fi_doctor.knowledge import explain as explaining
    from fi_doctor.knowledge import explained_registered

    with installed.opened(asked.knowledge) as (kb, specs, folder):
        return name in explaining.ids(kb, specs, folder=folder) or bool(explained_registered.texts(name))


def code(found: Explanation, *, is_whole: bool = True) -> int:
    """The exit code of an answer. is_whole: whether the logs could be read to their end."""
    if not any(one.bytes for one in found.read) or not (is_whole or found.diagnoses):
        return _UNKNOWN
    return _UNKNOWN if harmless.left(found.errors) and not found.diagnoses else 0


def _check(asked: AskedExplain) -> None:
    if asked.is_list and (asked.names or not is_id(asked)):
        raise UsageError("--list is by itself: it is of no id and no log", todo="fi-doctor explain --list")
    if asked.python is not None and not asked.is_here:
        raise UsageError(
            "--python: only --here reads an interpreter", todo="fi-doctor explain FILE --here --python PATH"
        )
    if (asked.formats or asked.output is not None) and is_id(asked):
        raise UsageError(
            "--format and --output are for what a log tells", why="the text behind an id is text", todo="leave them out"
        )


def _explained(asked: AskedExplain) -> tuple[Explanation, tuple[DoctorError, ...], bool]:
    """The answer, which of several files it is without, and whether the others could be read to their end.

    Errors: the first of them where no log is left.
    """
    if not asked.names:
        raise UsageError("there is no log to explain", todo="fi-doctor explain FILE, or - for what is piped in")
    if [*asked.names, *asked.env_files].count("-") > 1:
        raise UsageError("stdin can be only one of the files", todo="fi-doctor explain - --env-file env.txt")
    reports = [_here(asked.python, asked.knowledge)] if asked.is_here else []
    known: list[LogFact] = [fact for report in reports for fact in machine.told(report.facts, "this machine")]
    cut: dict[str, list[str]] = {}
    refused: list[DoctorError] = []
    with ExitStack() as stack:
        by = stack.enter_context(consulting.consulted(asked.knowledge))
        sources = []
        is_log_read = False
        for name, is_environment in (*((one, True) for one in asked.env_files), *((one, False) for one in asked.names)):
            try:
                pasted = _pasted(name)
                report = None if pasted is None else _report(pasted, name)
                if report is None or not (pasted and pasted.is_all):
                    shown = _shown(name)
                    opened = stack.enter_context(inputs.opened(name, cut.setdefault(shown, [])))
                    sources.append(Source(shown, opened, is_environment))
            except (UsageError, DataError, OSError) as error:
                refused.append(_refusal(error, name))
                continue
            is_log_read = is_log_read or not is_environment
            if report is not None:
                reports.append(report)
                known += machine.told(report.facts, _shown(name))
        if refused and not is_log_read:
            raise refused[0]
        found = diagnose(sources, known=tuple(known), folder=by.faults)
    versions = [(fact.key, fact.value) for fact in found.facts if fact.name == "package"]
    damaged = {name for name, why in cut.items() if why and not why[0].startswith(waiting.SILENT)}
    left_out = tuple(f"not read: {error.what}" + (f" ({error.why})" if error.why else "") for error in refused)
    found = msgspec.structs.replace(
        found,
        answer=found.answer if found.diagnoses else "; ".join((found.answer, *_damaged(found, damaged))),
        helps=(*left_out, *_cut(cut), *found.helps, *aging.lines(by.version, by.newest, versions)),
        knowledge=f"{by.version} ({by.origin})" if by.origin else "",
    )
    for report in reports:
        found = msgspec.structs.replace(found, used=machine.compared(found.used, report))
    return secrets.without(found, secrets.held(os.environ)), tuple(refused), not damaged


def _refusal(error: DoctorError | OSError, name: str) -> DoctorError:
    if isinstance(error, DoctorError):
        return error
    return UsageError(f"{name!r} cannot be read", why=error.strerror or str(error), todo="fi-doctor explain FILE")


def _shown(name: str) -> str:
    """A file's name as text: what of it is not UTF-8 as escapes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _damaged(found: Explanation, names: Container[str]) -> tuple[str, ...]:
    return tuple(
        f"{one.file} is damaged or cut off, and could be read to {one.bytes} bytes only"
        for one in found.read
        if one.file in names
    )


def _cut(cut: dict[str, list[str]]) -> tuple[str, ...]:
    """Which files were not read to their end."""
    return tuple(
        f"{name} is damaged or cut off ({why[0]}): what stands before is read" for name, why in cut.items() if why
    )


def _pasted(name: str) -> embedded.Found | None:
    """A report of fi-doctor's in the first mebibytes of a file; nothing is looked for in what is piped in or packed."""
    if name == "-" or not Path(name).is_file():
        return None
    with Path(name).open("rb") as file:
        return embedded.report(file.read(_HEAD))


def _report(pasted: embedded.Found, name: str) -> Report | None:
    """The report, which tells of the machine; None where only a part of one was pasted into a log.

    Errors: DataError where a file is nothing but a report that cannot be read.
    """
    from fi_doctor.reports import document

    try:
        return document.read(pasted.data, name)
    except DataError:
        if pasted.is_all:
            raise
        return None


def _here(python: str | None, knowledge: str | None) -> Report:
    """This machine, read and not measured."""
    from fi_doctor import pipeline
    from fi_doctor.cli import commands, installed
    from fi_doctor.cli.asked import Asked
    from fi_doctor.facts import Gathering
    from fi_doctor.model import Depth, Silent

    kb, specs = installed.known(knowledge)
    request = commands.request_of(Asked(depth=Depth.STATIC.value), tuple(one.id for one in kb.features), kb)
    gathering = Gathering(sys.executable if python is None else python)
    return pipeline.diagnose(request, request, kb=kb, specs=specs, gathering=gathering, watch=Silent())


def _text(found: Explanation, form: str) -> str:
    if form == "json":
        return written.to_json(found)
    if form == "markdown":
        from fi_doctor.reports import explained_markdown

        return explained_markdown.render(found)
    width, _ = emit.style()
    return written.render(found, width=width)
