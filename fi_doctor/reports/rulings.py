"""What was asked for and whether it holds, as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.model import Gate, Holds, Ruling
from fi_doctor.reports.text import clean, names, wrap

_INDENT = " " * len("gate: cannot tell  ")


class Setting(NamedTuple):
    """A value that was not left as it is by default."""

    key: str
    value: str
    source: str  # "--budget", "FI_DOCTOR_JOBS", "fi-doctor.toml: format"


def lines(gate: Gate, *, width: int | None = 80, file: str = "", settings: Iterable[Setting] = ()) -> Iterator[str]:
    """The policy and who set what, each requirement, the one that decided marked, then what was allowed to fail.

    width: of a terminal; None where scripts read: each line is whole then.  file: the policy, "" for none.
    """
    if file:
        yield from _line("policy", clean(file), width)
    for one in settings:
        yield from _line("set", f"{one.key} {clean(one.value)} ({clean(one.source)})", width)
    for ruling in gate.requirements:
        why = f": {clean(ruling.why)}" if ruling.why else ""
        mark = "decided: " if ruling.decides else ""
        text = f"{mark}{clean(ruling.requirement)} ({clean(ruling.source)}){why}{others(ruling)}"
        yield from _line(str(ruling.holds), text, width)
    for excuse in gate.allowed:
        rest = f"until {excuse.expires}: {clean(excuse.reason)}"
        yield from _line("allow", f"{clean(excuse.what)}, {excuse.state}, {rest}", width)
    by_itself = [ruling.holds is Holds.YES for ruling in gate.requirements]
    if all(by_itself):
        yield "gate: every requirement holds"
    elif gate.code == 0:
        yield f"gate: {sum(by_itself)} of {len(by_itself)} requirements hold; that the others do not is allowed"


def others(ruling: Ruling) -> str:
    """Of a ruling that does not hold what comes after the first culprit, which its reason speaks of; else ""."""
    rest = [*ruling.rows, *ruling.findings][1:]
    return f"; also {names(map(clean, rest), len(rest))}" if rest else ""


def _line(word: str, text: str, width: int | None) -> list[str]:
    first = f"gate: {word:<11}  "
    return [first + text] if width is None else wrap(text, width, first, _INDENT, limit=len(text))
