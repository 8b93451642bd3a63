"""How much of a complete backend is there, and how vLLM calls FlashInfer: as text, Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from fi_doctor.errors import UsageError
from fi_doctor.model import COVERAGE_SCHEMA, Calls, Coverage, Covered, Here, Missing, Unbound, Verdict
from fi_doctor.model.coverage import OTHERS
from fi_doctor.reports.text import amount, brief, clean, wrap

FORMATS = ("console", "json", "markdown")
_MOST_PLACES = 2
_MOST_NAMES = 3
_WHY = 100  # characters of a row's reason
_PLACES = {"flashinfer": "FlashInfer", "vllm": "vLLM", "here": "here"}


def render(coverage: Coverage, form: str, *, only_missing: bool = False, width: int = 80) -> str:
    """Every operator, or those that are known to be missing somewhere; ends with a newline."""
    if only_missing:
        operators = tuple(one for one in coverage.operators if one.missing)
        coverage = msgspec.structs.replace(coverage, operators=operators)
    match form:
        case "console":
            return "\n".join(_console(coverage, width, only_missing=only_missing)) + "\n"
        case "markdown":
            return "\n".join(_markdown(coverage)) + "\n"
        case "json":
            return msgspec.json.format(msgspec.json.encode(coverage), indent=2).decode() + "\n"
    raise UsageError(f'there is no format "{form}"', todo=f"one of: {', '.join(FORMATS)}")


def schema() -> dict[str, Any]:
    """The JSON Schema of a coverage, generated from the types."""
    return {"$id": COVERAGE_SCHEMA, "title": "fi-doctor coverage", **msgspec.json.schema(Coverage)}


def headline(coverage: Coverage) -> str:
    """How many operators are missing where; what is not known is counted and never taken for there."""
    missing = Counter(place for one in coverage.operators for place in one.missing)
    unknown = Counter(place for one in coverage.operators for place in one.unknown)
    parts = []
    for place, (one, many, noun) in {
        "flashinfer": ("is not in FlashInfer", "are not in FlashInfer", "not known there"),
        "vllm": ("is not called by vLLM", "are not called by vLLM", "not known there"),
        "here": ("does not work here", "do not work here", "not known here"),
    }.items():
        part = f"{missing[place]} {one if missing[place] == 1 else many}"
        parts.append(f"{part} ({unknown[place]} {noun})" if unknown[place] else part)
    others = sum(one.group == OTHERS for one in coverage.operators)
    own = (
        f" ({len(coverage.operators) - others} of a complete backend, {amount(others, 'row')} beside)" if others else ""
    )
    return f"Of {amount(len(coverage.operators), 'operator')}{own}, {', '.join(parts)}."


def _console(coverage: Coverage, width: int, *, only_missing: bool) -> Iterator[str]:
    yield from wrap(headline(coverage) if not only_missing else _missing_headline(coverage), width)
    yield from wrap(f"{coverage.flashinfer}; {coverage.vllm}. What works here: {coverage.known}.", width)
    group = ""
    for one in coverage.operators:
        if one.group != group:
            group = one.group
            yield from ("", *wrap(f"{group}:", width))
        yield from wrap(_title(one), width, "  ", "    ")
        for place, said in _told(one):
            if not only_missing or place in one.missing:
                yield from wrap(f"{_PLACES[place]}: {said}", width, "    ", "      ")
        if one.instead and one.missing:
            yield from wrap(f"instead: {one.instead}", width, "    ", "      ")


def _missing_headline(coverage: Coverage) -> str:
    return f"{amount(len(coverage.operators), 'operator')} missing somewhere."


def _title(one: Covered) -> str:
    where = ", ".join(_PLACES[place] for place in one.missing)
    return f"{one.id}: {one.title}" + (f" (missing: {where})" if where else "")


def _told(one: Covered) -> Iterator[tuple[str, str]]:
    """What is said of each of the three places."""
    names = [f"{name} (flashinfer/{place})" for name, place in one.flashinfer.items()]
    yield "flashinfer", _some(names, _MOST_NAMES) or one.flashinfer_why
    places = [f"vllm/{place}" for place in one.vllm]
    yield "vllm", _some(places, _MOST_PLACES) or one.vllm_why
    yield "here", "; ".join(_row(row) for row in one.here) or "no row of the matrix says"


def _row(row: Here) -> str:
    sm = "" if isinstance(row.sm, Missing) else f" on SM{row.sm}"
    why = f": {brief(row.why, _WHY)}" if row.why and row.verdict is not Verdict.WORKS else ""
    return f"{row.row}{sm} {row.verdict} ({row.evidence}){why}"


def _some(items: list[str], most: int) -> str:
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def _markdown(coverage: Coverage) -> Iterator[str]:
    yield f"**{headline(coverage)}**"
    yield ""
    yield f"{_cell(coverage.flashinfer)}; {_cell(coverage.vllm)}. What works here: {_cell(coverage.known)}."
    yield ""
    yield "| operator | missing | FlashInfer | vLLM | here |"
    yield "| --- | --- | --- | --- | --- |"
    for one in coverage.operators:
        missing = ", ".join(_PLACES[place] for place in one.missing)
        cells = [_cell(one.title), missing, *(_cell(said) for _, said in _told(one))]
        yield f"| {' | '.join(cells)} |"


def calls(coverage: Coverage, form: str, *, width: int = 80) -> str:
    """How vLLM calls FlashInfer: what does not fit, what cannot be told, what it does without."""
    found = coverage.calls
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    if isinstance(found, Missing):
        return f"It is not known how vLLM calls FlashInfer: {clean(found.reason)}\n"
    lines = list(_calls(coverage, found, width))
    return "\n".join(["```", *lines, "```"] if form == "markdown" else lines) + "\n"


def _calls(coverage: Coverage, found: Calls, width: int) -> Iterator[str]:
    yield from wrap(calls_headline(found), width)
    yield from wrap(f"{coverage.flashinfer}; {coverage.vllm}; {amount(found.files, 'file')} of vLLM read.", width)
    if found.misfits:
        yield from ("", "Does not fit:")
    for misfit in found.misfits:
        callee = f" (flashinfer/{misfit.callee})" if misfit.callee else ""
        yield from wrap(
            f"{misfit.kind}: vllm/{misfit.caller}: {misfit.name}{callee}: {misfit.text}", width, "  ", "    "
        )
    if found.unbound:
        yield from ("", "Cannot be told:", *_unbound(found.unbound, width))
    if found.wanting:
        yield from ("", "Looked for and done without:")
    for name, place in found.wanting.items():
        yield from wrap(f"vllm/{place}: {name}", width, "  ", "    ")
    if found.unread:
        yield from ("", "Could not be read:")
    for name, why in found.unread.items():
        yield from wrap(f"vllm/{name}: {why}", width, "  ", "    ")


def _unbound(several: tuple[Unbound, ...], width: int) -> Iterator[str]:
    """What cannot be told for one reason stands together, the most common reason first; every place is named."""
    for shared, alike in _grouped(several, lambda one: one.why.partition(": ")[0]):
        yield from wrap(f"{shared} ({len(alike)}):", width, "  ", "    ")
        for why, same in _grouped(alike, lambda one: one.why.partition(": ")[2]):
            if why:
                yield from wrap(f"{why}:", width, "    ", "      ")
            indent = "      " if why else "    "
            for name, uses in _grouped(same, lambda one: one.name):
                text = f"{name} ({_places([one.caller for one in uses])})"
                yield from wrap(text, width, indent, f"{indent}  ", limit=len(text))


def _grouped(several: Iterable[Unbound], key: Callable[[Unbound], str]) -> list[tuple[str, list[Unbound]]]:
    groups: dict[str, list[Unbound]] = {}
    for one in several:
        groups.setdefault(key(one), []).append(one)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _places(callers: list[str]) -> str:
    """The places, those in one file as "vllm/a.py:1, 5"."""
    lines: dict[str, list[str]] = {}
    for file, _, line in (caller.rpartition(":") for caller in callers):
        lines.setdefault(file, []).append(line)
    return ", ".join(f"vllm/{file}:{', '.join(numbers)}" for file, numbers in lines.items())


def calls_headline(found: Calls) -> str:
    """How many uses fit and do not, those that cannot be told counted apart."""
    unread = f", {amount(len(found.unread), 'file')} could not be read" if found.unread else ""
    return (
        f"vLLM uses FlashInfer in {found.fitting + len(found.misfits) + len(found.unbound)} places: "
        f"{found.fitting} fit, {len(found.misfits)} do not, {len(found.unbound)} cannot be told{unread}."
    )


def _cell(text: str) -> str:
    return clean(text).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
