"""The report as one HTML page that needs nothing else: no script, no network, no other file.

The page is page/report.html with its style and script, filled in by Jinja. Whatever is put into it is cleaned as all
text for people is, and escaped. Its Content-Security-Policy lets it load its own style and script, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fi_doctor.model import FeatureRow, Missing, Outcome, Recommendation, Report, Stage, Verdict
from fi_doctor.model.deployed import Effect
from fi_doctor.reports import answer, binaries, built, deployed, failures, proofs, rulings, table, upgrades
from fi_doctor.reports.document import in_order
from fi_doctor.reports.text import add_to, amount, clean, clean_lines, command, duration

_FOLDER = Path(__file__).parent / "page"
_ORDER = (Verdict.WORKS, Verdict.WRONG_RESULT, Verdict.BROKEN, Verdict.UNKNOWN, Verdict.UNSUPPORTED)
_STAGES = (Stage.IMPORTED, Stage.BUILT, Stage.RAN, Stage.VERIFIED)
_EFFECTS = {
    Effect.FAILS: "broken",
    Effect.WRONG_RESULT: "wrong-result",
    Effect.FLASHINFER: "works",
    Effect.OTHER: "works",
    Effect.UNKNOWN: "unknown",
}


class _Bar(NamedTuple):
    """A line of the timeline: parts of its length in thousandths of the longest, each with its class."""

    name: str
    said: str
    parts: tuple[tuple[str, float, float], ...]  # class, start, length


def render(report: Report) -> str:
    """The whole report."""
    report = in_order(report)
    script = (_FOLDER / "report.js").read_text(encoding="utf-8")
    page = environment().get_template("report.html")
    return (
        page.render(
            report=report,
            style=Markup(style()),  # noqa: S704 - ours, as is the script
            script=Markup(script),  # noqa: S704
            policy=f"default-src 'none'; style-src {digest(style())}; script-src {digest(script)}; "
            "base-uri 'none'; form-action 'none'",
            several=len(answer.sms_of(report.features)) > 1,
            tally=_tally(report),
            families=[(name, list(rows)) for name, rows in groupby(report.features, _family)],
            seconds=_seconds_of_cells(report),
            failed=failures.failed(report),
            builds=_builds(report),
            probes=_probes(report),
        )
        + "\n"
    )


def style() -> str:
    """The style of all pages."""
    return (_FOLDER / "report.css").read_text(encoding="utf-8")


def environment() -> Environment:
    """What fills in the pages: all that is put into them is cleaned and escaped."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=_cleaned,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    modules = (answer, binaries, built, deployed, failures, proofs, rulings, table, upgrades)
    environment.globals.update({one.__name__.rpartition(".")[2]: one for one in modules})
    environment.globals.update(
        EXIT_MEANINGS=answer.EXIT_MEANINGS,
        EFFECTS=_EFFECTS,
        add_to=add_to,
        amount=amount,
        breakable=_breakable,
        command=_command,
        duration=duration,
        is_command=_is_command,
        log=_log,
        sm=lambda sm: "" if isinstance(sm, Missing) else f"SM{sm}",
    )
    return environment


def _cleaned(value: object) -> object:
    """What is put into the page, on one line and without what a browser might obey; markup of ours as it is."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else clean(value)


def _command(line: str) -> Markup:
    return Markup.escape(command(line))


def _log(text: str) -> Markup:
    return Markup.escape("\n".join(clean_lines(text)))


def _breakable(name: str) -> Markup:
    """A name that may be broken after each underscore."""
    return Markup("_<wbr>").join(clean(name).split("_"))


def digest(text: str) -> str:
    """What a Content-Security-Policy calls a style or a script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _family(row: FeatureRow) -> str:
    return row.feature.partition(".")[0]


def _is_command(one: Recommendation) -> bool:
    return one.kind.value in ("set", "run", "install") or bool(add_to(one))


def _tally(report: Report) -> list[tuple[Verdict, int, int]]:
    """Verdict, how many rows have it, and how many stand before these; those that nobody has are left out."""
    counts = Counter(row.verdict for row in report.features)
    found, before = [], 0
    for verdict in _ORDER:
        if counts[verdict]:
            found.append((verdict, counts[verdict], before))
        before += counts[verdict]
    return found


def _seconds_of_cells(report: Report) -> dict[tuple[str, str, object], str]:
    """(probe, variant, SM) -> how long it ran, in words, of what was run in this check."""
    return {
        (outcome.probe, cell.variant, outcome.sm): _short(cell.seconds)
        for outcome in report.outcomes
        for cell in outcome.cells
        if cell.seconds > 0
    }


def _short(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 0.1 else duration(seconds)


def _builds(report: Report) -> list[_Bar]:
    """Of each module that was compiled how long it took, the longest first."""
    costs = sorted(report.builds.costs.items(), key=lambda item: (-item[1].seconds, item[0]))
    longest = _longest(cost.seconds for _, cost in costs)
    return [
        _Bar(
            name,
            f"{duration(cost.seconds)}, {amount(cost.objects, 'object')}, CPU {duration(cost.cpu_seconds)}",
            (("built", 0.0, _share(cost.seconds, longest)),),
        )
        for name, cost in costs
    ]


def _probes(report: Report) -> list[_Bar]:
    """Of each probe that was tried how long each stage took, the longest first."""
    tried = [(sum(_stages(one).values()), one) for one in report.outcomes if one.seconds]
    longest = _longest(total for total, _ in tried)
    ordered = sorted(tried, key=lambda pair: (-pair[0], pair[1].probe))
    return [_Bar(failures.title(one), duration(total), tuple(_parts(one, longest))) for total, one in ordered]


def _parts(outcome: Outcome, longest: float) -> Iterator[tuple[str, float, float]]:
    start = 0.0
    for stage, seconds in _stages(outcome).items():
        length = _share(seconds, longest)
        yield stage, round(start, 1), length
        start += length


def _stages(outcome: Outcome) -> dict[str, float]:
    return {stage.value: max(0.0, outcome.seconds[stage]) for stage in _STAGES if outcome.seconds.get(stage)}


def _longest(times: Iterable[float]) -> float:
    return max((one for one in times if math.isfinite(one)), default=0.0)


def _share(seconds: float, longest: float) -> float:
    """In thousandths; of what has no finite length nothing."""
    share = 1000 * seconds / longest if longest > 0 else 0.0
    return round(share, 1) if 0 <= share <= 1000 else 0.0
