"""What logs tell, for people and for programs: causes with their lines and remedies, or what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from fi_doctor.model import EXPLAIN_SCHEMA, Diagnosis, Event, Explanation, Matched, Part, Used
from fi_doctor.reports.text import amount, around, clean, names, wrap

FORMATS = ("console", "json", "markdown")
LINE = 300  # characters of a line of the log; the machine format has all that was kept
MOST_ERRORS = 5


def to_json(explanation: Explanation) -> str:
    """Indented by two, with a newline at the end; what a terminal may obey is escaped."""
    plain = msgspec.json.encode(explanation).decode()
    return msgspec.json.format(clean_json(plain), indent=2) + "\n"


def clean_json(text: str) -> str:
    """The document with every character that is not printable as JSON's own escape."""
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def schema() -> dict[str, Any]:
    """The JSON Schema of an explanation, generated from the types."""
    return {"$id": EXPLAIN_SCHEMA, "title": "fi-doctor explanation", **msgspec.json.schema(Explanation)}


def render(explanation: Explanation, *, width: int = 80) -> str:
    """For people; ends with a newline. The lines of the log are data: nothing in them is obeyed."""
    lines = wrap(capital(explanation.answer), width)
    for number, diagnosis in enumerate(explanation.diagnoses, 1):
        lines += ["", *_diagnosis(diagnosis, number, width, several=len(explanation.read) > 1)]
    lines += _section("Errors in the log, the first one first", _errors(explanation, width))
    lines += _section("What would help", [line for one in explanation.helps for line in wrap(one, width, "  ", "    ")])
    lines += _section("What the server says that it uses", _used(explanation.used, width))
    lines += _section("What the log tells", wrap(told(explanation), width, "  ", limit=4000))
    lines += ["", *wrap(f"By the knowledge {explanation.knowledge}", width)] if explanation.knowledge else []
    return "\n".join(lines) + "\n"


def capital(text: str) -> str:
    """A sentence with a capital."""
    return text[:1].upper() + text[1:]


def place(one: Matched | Event, *, several: bool) -> str:
    """Where a line stands, and how often: "line 12, 8 times (rank0, rank1)"."""
    where = f"{clean(one.file)}, line {one.line}" if several else f"line {one.line}"
    ranks = f" ({names(map(clean, one.ranks), 8)})" if len(one.ranks) > 1 else ""
    return f"{where}, {one.times} times{ranks}" if one.times > 1 else where


def blamed(one: Diagnosis) -> str:
    """What is said after the confidence where FlashInfer is not blamed."""
    if one.flashinfer_at_fault:
        return ""
    return "; not FlashInfer's fault" if one.is_tied else "; nothing says that it is FlashInfer's"


def told(explanation: Explanation) -> str:
    """The facts in a sentence; the first of each kind."""
    first: dict[str, str] = {}
    for fact in explanation.facts:
        word = fact.key if fact.name in ("package", "env", "argument", "installed") else fact.name.replace("_", " ")
        first.setdefault(word, fact.value)
    return ", ".join(f"{word} {value}" for word, value in first.items()) or "nothing of the machine"


def unexplained(explanation: Explanation) -> tuple[Event, ...]:
    """The errors that no diagnosis shows already, those that follow from others last."""
    shown = {(line.file, line.line) for one in explanation.diagnoses for line in one.matched}
    rest = [error for error in explanation.errors if (error.file, error.line) not in shown]
    return tuple(sorted(rest, key=lambda error: error.follows))


def _section(title: str, lines: list[str]) -> list[str]:
    return ["", title, *lines] if lines else []


def _diagnosis(one: Diagnosis, number: int, width: int, *, several: bool) -> list[str]:
    blame = blamed(one)
    lines = wrap(f"{number}. {one.title}", width, "", "   ")
    lines += wrap(f"{one.cause} ({one.family}), confidence {one.confidence}{blame}", width, "   ")
    for line in one.matched:
        lines += wrap(
            f"{place(line, several=several)}: {clean(around(line.text, line.at, LINE), LINE)}", width, "   > ", "     "
        )
    lines += wrap(f"Why these lines: {one.reason}", width, "   ", "     ")
    lines += wrap(one.why, width, "   ")
    lines += ["   What helps, the best first:"] if one.remedies else []
    lines += [line for remedy in one.remedies for line in wrap(remedy, width, "     ", "       ", limit=4000)]
    if one.fixed_in:
        lines += wrap(f"Mended in: {', '.join(f'{k} {v}' for k, v in one.fixed_in.items())}", width, "   ", "     ")
    lines += [line for command in one.confirm for line in wrap(f"To be sure: {command}", width, "   ", "     ")]
    return lines + wrap(f"More: fi-doctor explain {one.rule}", width, "   ", "     ")


def _errors(explanation: Explanation, width: int) -> list[str]:
    rest = unexplained(explanation)
    several = len(explanation.read) > 1
    lines = [line for error in rest[:MOST_ERRORS] for line in _error(error, width, several=several)]
    more = len(rest) - MOST_ERRORS
    return lines + ([f"  and {amount(more, 'more error')}; --format json has them"] if more > 0 else [])


def _error(error: Event, width: int, *, several: bool) -> list[str]:
    mark = " (follows from another)" if error.follows else ""
    return wrap(f"{place(error, several=several)}{mark}: {clean(error.text, LINE)}", width, "  ", "    ")


def _used(used: tuple[Used, ...], width: int) -> list[str]:
    return [line for text in used_lines(used) for line in wrap(text, width, "  ", "    ")]


def used_lines(used: tuple[Used, ...]) -> Iterator[str]:
    """A line for each part."""
    for one in used:
        part = "warning" if one.part is Part.PRECISION else one.part
        instead = f"; of FlashInfer, these work here: {one.instead}" if one.instead else ""
        yield f"{part}: {clean(one.choice)} (line {one.line}){instead}"
