"""What was asked for and whether it holds, as lines."""

from __future__ import annotations

from collections.abc import Iterator

from fi_doctor.model import Gate, Holds
from fi_doctor.reports.text import clean


def lines(gate: Gate) -> Iterator[str]:
    """A line for each requirement, the one that decided marked, then what was allowed to fail."""
    for ruling in gate.requirements:
        who = "" if ruling.source == "default" else f" ({clean(ruling.source)})"
        why = f": {clean(ruling.why)}" if ruling.why else ""
        mark = "decided: " if ruling.decides else ""
        yield f"gate: {ruling.holds!s:<11}  {mark}{clean(ruling.requirement)}{who}{why}"
    for excuse in gate.allowed:
        rest = f"until {excuse.expires}: {clean(excuse.reason)}"
        yield f"gate: allowed      {clean(excuse.what)}, {excuse.state}, {rest}"
    by_itself = [ruling.holds is Holds.YES for ruling in gate.requirements]
    if all(by_itself):
        yield "gate: every requirement holds"
    elif gate.code == 0:
        yield f"gate: {sum(by_itself)} of {len(by_itself)} requirements hold; that the others do not is allowed"
