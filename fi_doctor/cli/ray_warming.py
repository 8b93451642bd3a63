"""`fi-doctor fleet warm`: the caches of a cluster are filled, and how each node stands is written."""

from __future__ import annotations

import json
import os

from fi_doctor.cli import emit
from fi_doctor.cli.ray_nodes import grid, teller
from fi_doctor.cli.ray_options import AskedRay
from fi_doctor.cluster import rounds, warming
from fi_doctor.model import secrets
from fi_doctor.reports.text import amount, clean, wrap

_READ_S = 120.0


def warm(asked: AskedRay, wanted: warming.Asked, *, is_json: bool) -> int:
    """0 every node loads all of it; 1 one lacks something; 3 of none is it known."""
    tell = teller(asked)
    with grid(asked) as found:
        read = rounds.Ask(words=_interpreter(wanted.words), limit_s=_READ_S, address=asked.address)
        answers = [*rounds.Rounds(found, read, tell).answers()]
        kinds, left = warming.kinds(answers)
        known = secrets.held(os.environ)
        done = [
            one._replace(said=secrets.hidden(one.said, known), kind=secrets.hidden(one.kind, known))
            for one in (*warming.warm(found, kinds, wanted, tell), *left)
        ]
    codes = {one.code for one in done}
    code = 0 if codes == {0} else 1 if codes - {3} else 3
    whole = sum(one.code == 0 for one in done)
    reason = f"{whole} of {amount(len(done), 'node')} have what was asked for"
    if wanted.is_dry:
        reason = f"{amount(len(kinds), 'cache')} to fill, on {amount(len(done), 'node')}"
    emit.write(_json(done, code) if is_json else _text(done, reason), None)
    emit.say(f"fi-doctor: {reason} (exit {code})")
    return code


def _interpreter(words: tuple[str, ...]) -> tuple[str, ...]:
    """Of `warm`'s words those that a report takes, too."""
    at = words.index("--python") if "--python" in words else len(words)
    return words[at : at + 2]


def _text(done: list[warming.Warmed], reason: str) -> str:
    width = emit.terminal_width() or 80
    lines = [reason]
    for one in sorted(done, key=lambda one: (one.kind, one.node)):
        kind = f" ({clean(one.kind)})" if one.kind else ""
        lines += wrap(f"{clean(one.node)}: {one.did or 'nothing done'}{kind}: {clean(one.said)}", width, "", "  ")
    return "\n".join(lines) + "\n"


def _json(done: list[warming.Warmed], code: int) -> str:
    nodes = [one._asdict() for one in sorted(done, key=lambda one: one.node)]
    return json.dumps({"schema": "fi-doctor.fleet-warm/1.0", "nodes": nodes, "code": code}, indent=2) + "\n"
