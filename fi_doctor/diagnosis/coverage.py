"""How much of a complete FlashInfer backend the installed packages have, call, and can run here."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from fi_doctor.model import (
    COVERAGE_SCHEMA,
    Calls,
    Coverage,
    Covered,
    Depth,
    Facts,
    FeatureRow,
    Here,
    KnowledgeBase,
    Missing,
    Operator,
    Package,
    Report,
    Verdict,
)
from fi_doctor.model.coverage import OTHERS


def cover(kb: KnowledgeBase, report: Report) -> Coverage:
    """Each operator, with what the report's facts and rows say of it."""
    operators = (*kb.operators, *_others(kb))
    return Coverage(
        schema=COVERAGE_SCHEMA,
        doctor=report.doctor,
        created=report.created,
        flashinfer=_package(report.facts, "flashinfer-python"),
        vllm=_package(report.facts, "vllm"),
        known=_known(report),
        operators=tuple(_covered(operator, report) for operator in operators),
        calls=report.facts.calls,
    )


def works(here: tuple[Here, ...]) -> bool | None:
    """False as soon as one row does not work; None while one of them is not known, or there is none."""
    if any(one.verdict not in (Verdict.WORKS, Verdict.UNKNOWN) for one in here):
        return False
    return True if here and all(one.verdict is Verdict.WORKS for one in here) else None


def _others(kb: KnowledgeBase) -> Iterator[Operator]:
    """An operator for each row that none names."""
    globs = [glob for operator in kb.operators for glob in operator.rows]
    for feature in kb.features:
        if not any(fnmatch.fnmatchcase(feature.id, glob) for glob in globs):
            yield Operator(
                id=feature.id,
                group=OTHERS,
                title=feature.title,
                entry=feature.entry,
                rows=(feature.id,),
                instead=feature.fallback,
            )


def _covered(operator: Operator, report: Report) -> Covered:
    has, has_why, has_it = _flashinfer(operator, report.facts)
    calls, calls_why, is_called = _vllm(operator, has, report.facts, is_known=has_it is not None)
    here = tuple(_here(row) for row in report.features if _concerns(operator, row))
    told = {"flashinfer": has_it, "vllm": is_called, "here": works(here)}
    return Covered(
        id=operator.id,
        group=operator.group,
        title=operator.title,
        flashinfer=has,
        flashinfer_why=has_why,
        vllm=calls,
        vllm_why=calls_why,
        here=here,
        missing=tuple(place for place, is_there in told.items() if is_there is False),
        unknown=tuple(place for place, is_there in told.items() if is_there is None),
        instead=operator.instead,
    )


def _flashinfer(operator: Operator, facts: Facts) -> tuple[dict[str, str], str, bool | None]:
    """The names that FlashInfer has, else why not, and whether it has it; None: it cannot be told."""
    if not operator.entry and not operator.patterns:
        return {}, "no name of FlashInfer is known for it", None
    installed = facts.flashinfer
    if isinstance(installed, Missing):
        return {}, installed.reason, None
    places = {name: installed.symbols.get(name, Missing(reason="it was not looked up")) for name in operator.entry}
    found = {name: place for name, place in places.items() if isinstance(place, str)}
    for pattern in operator.patterns:
        for name, place in installed.public.get(pattern, {}).items():
            if place not in found.values():
                found[name] = place
    if found:
        return found, "", True
    unread = [place.reason for place in places.values() if isinstance(place, Missing) and not place.absent]
    unread += [f"{pattern} was not looked for" for pattern in operator.patterns if pattern not in installed.public]
    if unread:
        return {}, unread[0], None
    looked = ", ".join((*operator.entry, *(f"a public name like {pattern}" for pattern in operator.patterns)))
    return {}, f"it has none of: {looked}" if "," in looked else f"it has no {looked.removeprefix('a ')}", False


def _vllm(
    operator: Operator, has: dict[str, str], facts: Facts, *, is_known: bool
) -> tuple[tuple[str, ...], str, bool | None]:
    """Where vLLM calls one of these names, by whatever name it does; else why not."""
    calls = facts.calls
    if isinstance(calls, Missing):
        return (), calls.reason, None
    if not is_known:
        return (), "it is not known what there is to call", None
    found = [
        place
        for name, places in calls.calls.items()
        if _is_of(name, has) or calls.places.get(name, "") in has.values()
        for place in places
    ]
    found += () if has else _looked_for(operator, calls)
    if found:
        return tuple(sorted(set(found))), "", True
    return (), "no call of it is found in vLLM's source" if has else "there is nothing to call", False


def _looked_for(operator: Operator, calls: Calls) -> tuple[str, ...]:
    """Where vLLM asks for what this FlashInfer has not: by the last part of a name, which moves between modules."""
    absent = [(one.name, one.caller) for one in calls.misfits if not one.callee]
    last = tuple(entry.rpartition(".")[2] for entry in (*operator.entry, *operator.patterns))
    asked = ((name.rpartition(".")[2], place) for name, place in (*absent, *calls.wanting.items()))
    return tuple(place for name, place in asked if any(fnmatch.fnmatchcase(name, one) for one in last))


def _is_of(name: str, has: dict[str, str]) -> bool:
    """One of the names, or a member of one: a class whose methods are called without an instance."""
    return name in has or any(name.startswith((f"{one}.", f"{one}().")) for one in has)


def _here(row: FeatureRow) -> Here:
    return Here(row=row.feature, sm=row.sm, verdict=row.verdict, evidence=row.evidence, why=row.why)


def _concerns(operator: Operator, row: FeatureRow) -> bool:
    return any(fnmatch.fnmatchcase(row.feature, glob) for glob in operator.rows)


def _package(facts: Facts, name: str) -> str:
    package = facts.packages.get(name, Missing(reason=f"{name} was not looked for"))
    if isinstance(package, Package):
        return f"{name} {package.version if isinstance(package.version, str) else 'of unknown version'}"
    return f"{name} is {package.reason}" if package.reason.startswith("not installed") else package.reason


def _known(report: Report) -> str:
    if report.request.depth is Depth.STATIC or not any(outcome.cells for outcome in report.outcomes):
        return "a static look: nothing was built or run"
    return f"what was run, at {report.created}"
