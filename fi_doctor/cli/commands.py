"""What each command does: names are checked, the pipeline is called, its report is written."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator

import msgspec

from fi_doctor import knowledge, pipeline
from fi_doctor.cli import emit, parse
from fi_doctor.errors import DataError, UsageError
from fi_doctor.knowledge import examples
from fi_doctor.knowledge import explain as explaining
from fi_doctor.model import Depth, KnowledgeBase, ProbeSpec, Report, Request, Silent, Watch
from fi_doctor.probing import catalog
from fi_doctor.reports import FORMATS, document, lists, render

_LARGEST_INPUT = 64 * 2**20  # bytes; a report of a thousand rows takes one


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `check` and `report` as they were typed."""

    python: str | None = None
    from_file: str | None = None
    example: str | None = None
    as_recorded: bool = False
    depth: str | None = None
    budget: str = "10m"
    features: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    jobs: int = 0
    fresh_cache: bool = False
    format: str = "console"
    output: str | None = None
    quiet: bool = False


def check(asked: Asked) -> int:
    """Diagnose, write, and give the gate's code."""
    done = _write_report(asked)
    emit.say(f"fi-doctor: {done.gate.reason} (exit {done.gate.code})")
    return done.gate.code


def report(asked: Asked) -> int:
    """Diagnose and write; 0 once it is written."""
    _write_report(asked)
    return 0


def report_format(*, yaml: bool, json: bool) -> str:
    """The one format that the two flags of `report` ask for."""
    if yaml and json:
        raise UsageError("--yaml and --json: a report has one format", todo="fi-doctor report --yaml")
    return "json" if json else "yaml"


def explain(name: str) -> int:
    """Print the text of a rule, feature, verdict or kind of evidence."""
    emit.write(explaining.explain(knowledge.load(), name), None)
    return 0


def features() -> int:
    """Print the rows of the matrix."""
    width, _ = emit.style()
    emit.write(lists.features(knowledge.load().features, width), None)
    return 0


def probes_list() -> int:
    """Print the probes."""
    width, _ = emit.style()
    emit.write(lists.probes(catalog.discover(), width), None)
    return 0


def probes_show(name: str) -> int:
    """Print one probe's script."""
    specs = {spec.id: spec for spec in catalog.discover()}
    emit.write(catalog.source(specs[parse.choice(name, specs, "probes show")]), None)
    return 0


def _write_report(asked: Asked) -> Report:
    _check_words(asked)
    kb = knowledge.load()
    specs = catalog.discover()
    known = tuple(feature.id for feature in kb.features)
    request = _request(asked, known)
    done = _judged(asked, request, kb, specs)
    width, color = emit.style()
    emit.write(render(done, asked.format, width=width, color=color and asked.output is None), asked.output)
    return done


def _check_words(asked: Asked) -> None:
    parse.choice(asked.format, FORMATS, "--format")
    if asked.depth is not None:
        parse.choice(asked.depth, [depth.value for depth in Depth], "--depth")
    if asked.output is not None:
        emit.check_writable(asked.output)
    recorded = [
        name for name, value in (("--from", asked.from_file), ("--example", asked.example)) if value is not None
    ]
    if len(recorded) > 1:
        raise UsageError("--from and --example: one recording at a time", todo="fi-doctor check --example NAME")
    if recorded and asked.python is not None:
        raise UsageError(f"--python: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if asked.as_recorded and not recorded:
        raise UsageError(
            "--as-recorded: there is no recording", todo="fi-doctor check --from report.yaml --as-recorded"
        )


def _request(asked: Asked, known: tuple[str, ...]) -> Request:
    selected = parse.names(asked.features, known, "--feature")
    required = parse.names(asked.required, known, "--require")
    return Request(
        depth=Depth(asked.depth or Depth.RUN.value),
        # A row that must work is looked at even where --feature names others.
        features=(*selected, *(name for name in required if name not in selected)) if selected else (),
        required=required,
        budget_s=parse.duration_s(asked.budget, "--budget"),
        jobs=asked.jobs,
        fresh_cache=asked.fresh_cache,
    )


def _judged(asked: Asked, request: Request, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> Report:
    recorded = _recorded(asked)
    if recorded is not None:
        if asked.as_recorded:
            return recorded
        depth = Depth(asked.depth) if asked.depth and asked.depth != "static" else recorded.request.depth
        return pipeline.rejudge(recorded, msgspec.structs.replace(request, depth=depth), kb=kb, specs=specs)
    with _progress(asked) as watch:
        return pipeline.diagnose(
            request if asked.depth is not None else None,
            request,
            kb=kb,
            specs=specs,
            python=asked.python or sys.executable,
            environ=os.environ,
            watch=watch,
        )


def _recorded(asked: Asked) -> Report | None:
    if asked.example is not None:
        name = parse.choice(asked.example, examples.names(), "--example")
        return document.read(examples.data(name), f"example {name}")
    if asked.from_file is None:
        return None
    if asked.from_file == "-":
        return document.read(sys.stdin.buffer.read(_LARGEST_INPUT + 1), "stdin")
    return document.read(_file(pathlib.Path(asked.from_file)), asked.from_file)


def _file(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(_LARGEST_INPUT + 1)
    except OSError as error:
        raise DataError(
            f"--from: {str(path.absolute())!r} cannot be read",
            why=error.strerror or str(error),
            todo="fi-doctor report --yaml -o report.yaml on the machine in question makes one",
        ) from error


@contextlib.contextmanager
def _progress(asked: Asked) -> Iterator[Watch]:
    if asked.quiet or asked.depth == Depth.STATIC.value:
        yield Silent()
        return
    from fi_doctor.probing.estimates import BUILD_S
    from fi_doctor.reports.progress import Progress

    with Progress(sys.stderr, is_terminal=sys.stderr.isatty(), estimates=BUILD_S) as progress:
        yield progress
