"""Collectives between ranks, told: what works over which way, who stopped, and what NCCL's logs say."""

from __future__ import annotations

import json

import msgspec

from fi_doctor.model.collectives import CollectiveRow, Collectives, NcclLog
from fi_doctor.reports.text import clean, wrap

FORMATS = ("console", "json")


def render(done: Collectives, form: str, *, width: int = 80) -> str:
    """As text or as JSON; for each operation a line, and why below it."""
    if form == "json":
        return json.dumps(msgspec.to_builtins(done, order="deterministic"), indent=2, ensure_ascii=True) + "\n"
    lines = [*wrap(clean(done.reason), width, "", "  "), ""]
    lines += wrap(f"--tp {done.tp} --pp {done.pp}: {clean(done.placement)}", width, "", "  ")
    for node in dict.fromkeys(place.node for place in done.places):
        ranks = [place for place in done.places if place.node == node]
        gpus = ", ".join(dict.fromkeys(place.gpu or "no GPU that torch sees" for place in ranks))
        numbers = ", ".join(str(place.rank) for place in ranks)
        lines += wrap(f"{clean(node)}: rank {numbers} ({clean(gpus)})", width, "  ", "    ")
    if done.rows:
        lines += ["", f"{'backend':8}{'ranks':18}{'collective':12}{'verdict':14}evidence"]
    why = ""
    for row in done.rows:
        lines += _row(row, width, is_as_above=row.why == why)
        why = row.why
    for log in done.logs:
        lines += ["", *_log(log, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _row(row: CollectiveRow, width: int, *, is_as_above: bool) -> list[str]:
    ranks = f"{row.kind} {'-'.join(map(str, row.ranks))}"
    line = f"{row.backend:8}{ranks:18}{row.operation:12}{row.verdict!s:14}{row.evidence}"
    way = f"via {', '.join(row.transports)}; " if row.transports else ""
    taken = f" ({row.seconds:.3g} s)" if row.seconds else ""
    told = "as above" if is_as_above and not way else f"{way}{clean(row.why)}{taken}"
    return [line, *wrap(told, width, "    ", "    ")]


def _log(log: NcclLog, width: int) -> list[str]:
    """What one log says; of InfiniBand fi-doctor only reads."""
    head = f"NCCL {log.version or 'of a release that its log does not tell'}, {clean(log.source)}"
    net = f"; network {clean(log.network)} ({clean(', '.join(log.devices))})" if log.network else ""
    over = f"; over {log.nodes} node{'s' if log.nodes != 1 else ''}" if log.nodes else ""
    ways = [f"{clean(way)} on {count} channel{'s' if count != 1 else ''}" for way, count in log.links.items()]
    lines = wrap(f"{head}{net}{over}", width, "", "  ")
    lines += wrap("; ".join(ways) or "no channel was connected", width, "  ", "    ")
    for warning in log.warnings:
        lines += wrap(f"warning: {clean(warning)}", width, "  ", "    ")
    return lines
