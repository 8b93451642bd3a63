"""What logs tell as Markdown, for an issue: the cause, the lines, what helps."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.model import Diagnosis, Explanation
from fi_doctor.reports.explained import LINE, MOST_ERRORS, blamed, capital, place, told, unexplained, used_lines
from fi_doctor.reports.markdown import code, words
from fi_doctor.reports.text import around


def render(explanation: Explanation) -> str:
    """The whole answer; what stands in the log is data, and no markup of it is obeyed."""
    parts = (
        [f"# fi-doctor: {words(capital(explanation.answer))}"],
        *(_diagnosis(one, several=len(explanation.read) > 1) for one in explanation.diagnoses),
        _errors(explanation),
        _list("What would help", explanation.helps),
        _list("What the server says that it uses", used_lines(explanation.used)),
        _list("What the log tells", [told(explanation)]),
        [f"By the knowledge {words(explanation.knowledge)}"] if explanation.knowledge else [],
    )
    return "\n\n".join("\n".join(lines) for lines in map(list, parts) if lines) + "\n"


def _diagnosis(one: Diagnosis, *, several: bool) -> Iterator[str]:
    blame = blamed(one)
    yield f"## {words(one.title)}"
    yield ""
    yield f"{code(one.cause)} ({words(one.family)}), confidence **{one.confidence}**{blame}"
    yield ""
    for line in one.matched:
        yield f"- {words(place(line, several=several))}: {code(around(line.text, line.at, LINE))}"
    yield ""
    yield f"{words(capital(one.reason))}. {words(one.why)}"
    if one.remedies:
        yield ""
        yield "What helps, the best first:"
        yield ""
        yield from (f"- {words(remedy, 4000)}" for remedy in one.remedies)
    if one.confirm:
        yield ""
        yield from (f"To be sure: {code(command)}" for command in one.confirm)


def _errors(explanation: Explanation) -> Iterator[str]:
    rest = unexplained(explanation)
    if not rest:
        return
    yield "## Errors in the log, the first one first"
    yield ""
    several = len(explanation.read) > 1
    for error in rest[:MOST_ERRORS]:
        mark = " (follows from another)" if error.follows else ""
        yield f"- {words(place(error, several=several))}{mark}: {code(error.text[:LINE])}"


def _list(title: str, lines: Iterator[str] | tuple[str, ...] | list[str]) -> Iterator[str]:
    every = list(lines)
    if every:
        yield f"## {title}"
        yield ""
        yield from (f"- {words(line, 4000)}" for line in every)
