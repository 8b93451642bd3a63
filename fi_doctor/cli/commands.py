"""What each command does: names are checked, the pipeline is called, its report is written."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator

import msgspec

from fi_doctor import knowledge, pipeline
from fi_doctor.cli import emit, parse
from fi_doctor.cli.asked import Asked
from fi_doctor.facts import Gathering
from fi_doctor.knowledge import examples
from fi_doctor.knowledge import explain as explaining
from fi_doctor.model import Depth, KnowledgeBase, ProbeSpec, Report, Request, Silent, Watch
from fi_doctor.probing import catalog
from fi_doctor.reports import document, lists, render


def check(asked: Asked, gathering: Gathering | None) -> int:
    """Diagnose, write, and give the gate's code."""
    done = _write_report(asked, gathering)
    emit.say(f"fi-doctor: {done.gate.reason} (exit {done.gate.code})")
    return done.gate.code


def report(asked: Asked, gathering: Gathering | None) -> int:
    """Diagnose and write; 0 once it is written."""
    _write_report(asked, gathering)
    return 0


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
    emit.write(catalog.source(specs[parse.choice(name, specs, "fi-doctor probes show")]), None)
    return 0


def _write_report(asked: Asked, gathering: Gathering | None) -> Report:
    source = gathering or _recorded(asked)
    kb = knowledge.load()
    specs = catalog.discover()
    known = tuple(feature.id for feature in kb.features)
    request = _request(asked, known)
    done = _judged(asked, request, kb, specs, source)
    width, color = emit.style()
    emit.write(render(done, asked.format, width=width, color=color and asked.output is None), asked.output)
    return done


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


def _judged(
    asked: Asked, request: Request, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...], source: Report | Gathering
) -> Report:
    if isinstance(source, Report):
        if asked.as_recorded:
            return source
        depth = Depth(asked.depth) if asked.depth and asked.depth != "static" else source.request.depth
        return pipeline.rejudge(source, msgspec.structs.replace(request, depth=depth), kb=kb, specs=specs)
    with _progress(asked) as watch:
        return pipeline.diagnose(
            request if asked.depth is not None else None,
            request,
            kb=kb,
            specs=specs,
            gathering=source,
            watch=watch,
        )


def _recorded(asked: Asked) -> Report:
    if asked.example is not None:
        name = parse.choice(asked.example, examples.names(), "--example")
        return document.read(examples.data(name), f"example {name}")
    if asked.from_file == "-":
        return document.read(sys.stdin.buffer.read(document.MAX_BYTES + 1), "stdin")
    return document.read_file(pathlib.Path(asked.from_file or ""))


@contextlib.contextmanager
def _progress(asked: Asked) -> Iterator[Watch]:
    if asked.quiet or asked.depth == Depth.STATIC.value:
        yield Silent()
        return
    from fi_doctor.probing.estimates import BUILD_S
    from fi_doctor.reports.progress import Progress

    with Progress(sys.stderr, is_terminal=sys.stderr.isatty(), estimates=BUILD_S) as progress:
        yield progress
