"""What each command does: names are checked, the pipeline is called, its report is written."""

from __future__ import annotations

import os
import pathlib
import sys

import msgspec

from fi_doctor import knowing, pipeline
from fi_doctor.cli import consulting, emit, giving, installed, outputs, parse, placing, policy, watching
from fi_doctor.cli.asked import Asked
from fi_doctor.diagnosis import findings, gate
from fi_doctor.errors import UsageError
from fi_doctor.facts import Gathering
from fi_doctor.knowledge import examples, explained_registered, faults
from fi_doctor.knowledge import explain as explaining
from fi_doctor.model import (
    Depth,
    Evidence,
    Feature,
    KnowledgeBase,
    ProbeSpec,
    Report,
    Request,
    Scope,
    Verdict,
    selects,
)
from fi_doctor.probing import catalog, foreign
from fi_doctor.reports import document, expected, failures, files, issue, lists, redaction, rulings
from fi_doctor.reports.text import wrap


def check(asked: Asked, gathering: Gathering | None) -> int:
    """Diagnose, write, and give the gate's code."""
    done = _write_report(asked, gathering)
    if asked.warm_list is not None:
        emit.write(expected.warm_list(done), asked.warm_list, "--warm-list")
    return told(asked, done)


def told(asked: Asked, done: Report) -> int:
    """The gate's code, once all that was said of it stands on stderr."""
    if asked.explain_gate:
        for line in rulings.lines(
            done.gate, width=emit.terminal_width(), file=done.request.policy.file, settings=policy.settings(asked)
        ):
            emit.say(line)
    for warning in done.gate.warnings:
        _say(f"warning: {warning}")
    _say(f"fi-doctor: {done.gate.reason} (exit {done.gate.code})")
    return done.gate.code


def _say(line: str) -> None:
    """A line that scripts read whole; on a terminal it is broken at spaces."""
    width = emit.terminal_width()
    for part in [line] if width is None else wrap(line, width, "", "  ", limit=len(line)):
        emit.say(part)


def report(asked: Asked, gathering: Gathering | None, for_issue: str | None = None) -> int:
    """Diagnose and write, for_issue: in the form of that project's bug reports; 0 once it is written."""
    if for_issue is None:
        _write_report(asked, gathering)
        return 0
    kb, specs = installed.known(asked.knowledge)
    done = judge(asked, gathering, kb, specs)
    failed = {outcome.probe for outcome in failures.failed(done)}
    scripts = {spec.id: catalog.source(spec) for spec in specs if spec.id in failed}
    outputs.put(asked.targets, lambda _: issue.render(done, for_issue, scripts))
    return 0


def explain(name: str | None, knowledge: str | None = None, *, is_list: bool = False) -> int:
    """Print the text behind an id, of installed probes too, or what there is to explain: all of it, or how much."""
    width, _ = emit.style()
    with installed.opened(knowledge) as (known, specs, folder):
        kb = msgspec.structs.replace(known, features=listed_features(known, specs))
        if is_list:
            text = lists.explained(_explained(kb, specs, folder), width)
        elif name is None:
            text = lists.counted(_explained(kb, specs, folder), faults.families(folder), width)
        else:
            words = explaining.ids(kb, specs, folder=folder)
            if name not in words and explained_registered.is_like_one(name):
                words = (*words, *explained_registered.names())
            name = parse.choice(name, words, "fi-doctor explain", listed_by="fi-doctor explain --list")
            text = explaining.explain(kb, name, specs, folder=folder)
    emit.write(text, None)
    return 0


def features(knowledge: str | None = None) -> int:
    """Print the rows of the matrix."""
    width, _ = emit.style()
    emit.write(lists.features(listed_features(*installed.known(knowledge)), width), None)
    return 0


def probes_list() -> int:
    """Print the probes."""
    width, _ = emit.style()
    emit.write(lists.probes(installed.probes(), width), None)
    return 0


def probes_show(name: str) -> int:
    """Print one probe's script."""
    specs = {spec.id: spec for spec in installed.probes()}
    spec = specs[parse.choice(name, specs, "fi-doctor probes show", listed_by="fi-doctor probes list")]
    emit.write(catalog.source(spec), None)
    return 0


def listed_features(kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> tuple[Feature, ...]:
    """The known features, and those that only a probe names."""
    known = {feature.id for feature in kb.features}
    foreign: dict[str, list[ProbeSpec]] = {}
    for spec in specs:
        if spec.feature not in known:
            foreign.setdefault(spec.feature, []).append(spec)
    return (
        *kb.features,
        *(
            Feature(id=name, title=of[0].question, entry=(), probes=tuple(spec.id for spec in of), vllm=())
            for name, of in foreign.items()
        ),
    )


def known_names(knowledge: str | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The features and the findings that a policy may name; nothing is written, since something is wrong already."""
    kb, specs = knowing.load(None, consulting.place(knowledge))
    return tuple(feature.id for feature in listed_features(kb, specs)), policy.findings(kb)


def _explained(
    kb: KnowledgeBase, specs: tuple[ProbeSpec, ...], folder: pathlib.Path
) -> dict[str, list[tuple[str, str]]]:
    """What there is to explain, by kind: words with their meaning; what is many is named only."""
    rows = {feature.id for feature in kb.features}
    causes = {rule.cause for rule in kb.rules} | faults.causes(folder).keys()
    causes -= {rule.id for rule in kb.rules} | faults.ids(folder).keys()
    findings = [*explaining.FINDINGS, *(rule.id for rule in kb.rules)]
    words = {name: text for name, text in explaining.WORDS.items() if name not in explaining.FINDINGS}
    verdicts = [(word.value, words.pop(word.value)) for word in Verdict]
    evidence = [(word.value, words.pop(word.value)) for word in Evidence]
    scopes = [(word.value, words.pop(word.value)) for word in Scope]
    return {
        "Verdicts": verdicts,
        "Evidence, the weakest first": evidence,
        "Scope, of what the evidence holds": scopes,
        "Other words": sorted(words.items()),
        "Features": sorted((feature.id, feature.title) for feature in kb.features),
        "Operators of a complete backend": [(name, "") for name in sorted(one.id for one in kb.operators)],
        "Probes, besides those that have the name of their row": [
            (spec.id, "") for spec in specs if spec.id not in rows
        ],
        f"Findings, {len(kb.rules)} of them of rules": [(name, "") for name in sorted(findings)],
        "Faults that logs tell": [(name, "") for name in sorted(faults.ids(folder))],
        "Causes, of which several rules and faults may be": [(name, "") for name in sorted(causes)],
        "Families of faults": [(name, "") for name in sorted(faults.families(folder))],
        "Settings": [(name, "") for name in sorted({setting.name for setting in kb.settings})],
    }


def judge(asked: Asked, gathering: Gathering | None, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]) -> Report:
    """The report on this machine, or on the recording that is asked for."""
    source = gathering or recorded(asked)
    known = tuple(feature.id for feature in listed_features(kb, specs))
    return _judged(asked, request_of(asked, known, kb), kb, specs, source)


def _write_report(asked: Asked, gathering: Gathering | None) -> Report:
    kb, specs = installed.known(asked.knowledge)
    done = judge(asked, gathering, kb, specs)
    if asked.redact:
        done = redaction.redact(done, os.environ)
    outputs.write(done, asked.targets, placing.beside(done, asked.targets, kb))
    return done


def request_of(asked: Asked, known: tuple[str, ...], kb: KnowledgeBase) -> Request:
    """What the options ask for, of these features. Errors: UsageError with all that is wrong."""
    parse.together(policy.wrong_values(asked, known))
    selected = parse.names(asked.features, known, asked.origin("feature"))
    required, requirements = policy.required(asked, known)
    asks = policy.resolve(asked, known, kb)
    asks = msgspec.structs.replace(asks, requirements=(*requirements, *asks.requirements))
    must = (*required, *(one.feature for one in asks.requirements))
    return Request(
        depth=Depth(asked.depth or Depth.RUN.value),
        # A row that must work is looked at even where --feature names others.
        features=(*selected, *(name for name in must if name not in selected)) if selected else (),
        required=required,
        budget_s=parse.duration_s("10m" if asked.budget is None else asked.budget, asked.origin("budget")),
        jobs=asked.jobs or 0,
        memory_mib=parse.memory_mib("auto" if asked.memory is None else asked.memory, asked.origin("memory")),
        fresh_cache=asked.fresh_cache,
        gentle=asked.gentle,
        typed={} if asked.memory in (None, "auto") else {"--memory": asked.memory},
        policy=asks,
    )


def _judged(
    asked: Asked, request: Request, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...], source: Report | Gathering
) -> Report:
    stated = (*asked.stated, *giving.own(asked.kv_cache_dtype))
    if isinstance(source, Report):
        if asked.as_recorded:
            return _as_recorded(asked, request, source)
        depth = Depth(asked.depth) if asked.depth and asked.depth != "static" else source.request.depth
        # Of rows that were not asked for there, nothing was recorded.
        features = request.features or source.request.features
        request = msgspec.structs.replace(request, depth=depth, features=features)
        return pipeline.rejudge(
            source,
            request,
            kb=kb,
            specs=specs,
            stated=stated,
            wanted=asked.wanted,
        )
    for line in foreign.told(specs, request):
        _say(line)
    with watching.progress(asked) as watch:
        return pipeline.diagnose(
            request if asked.depth is not None else None,
            request,
            kb=kb,
            specs=specs,
            gathering=source,
            watch=watch,
            wanted=asked.wanted,
            stated=stated,
            proves=asked.prove,
            starts=asked.prove_vllm,
            target=asked.aim,
        )


def _as_recorded(asked: Asked, request: Request, source: Report) -> Report:
    """The recorded rows that are asked for, and what today's question makes of them: no code of the file counts."""
    if asked.depth not in (None, Depth.STATIC.value, source.request.depth.value):
        raise UsageError(
            f"--depth: verdicts as recorded are those of depth {source.request.depth}",
            todo="leave out --depth or --as-recorded",
        )
    request = msgspec.structs.replace(
        source.request,
        features=request.features or source.request.features,
        required=request.required,
        policy=request.policy,
    )
    rows = tuple(row for row in source.features if selects(request.features, row.feature))
    found = findings.of_selected(source.findings, request.features)
    return msgspec.structs.replace(
        source,
        request=request,
        features=rows,
        findings=found,
        outcomes=tuple(outcome for outcome in source.outcomes if selects(request.features, outcome.feature)),
        gate=gate.decide(request, rows, found, source.facts, foretold=source.target is not None),
    )


def recorded(asked: Asked) -> Report:
    """The report that is named, or the example."""
    if asked.example is not None:
        shipped = examples.names()
        if not shipped:
            raise UsageError("--example: no recording is shipped", todo="fi-doctor check --from report.yaml")
        name = parse.choice(asked.example, shipped, "--example")
        return document.read(examples.data(name), f"example {name}")
    return document_of(asked.from_file or "")


def document_of(name: str) -> Report:
    """A report by the name of its file, or of an example where there is no such file."""
    if name == "-":
        return document.read(sys.stdin.buffer.read(files.MAX_BYTES + 1), "stdin")
    path = pathlib.Path(name)
    if name in examples.names() and not os.path.lexists(path):
        return document.read(examples.data(name), f"example {name}")
    return document.read_file(path)
