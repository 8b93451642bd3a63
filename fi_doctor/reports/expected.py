"""How rows start on the machine that --target describes, and what their verdicts lean on, in lines. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable

from fi_doctor.model import FlashInfer, Missing, Report, Verdict
from fi_doctor.model.expected import Expected, FirstStarts, Start
from fi_doctor.model.targets import ARCH_LIST, arch_list
from fi_doctor.reports.text import about, amount, clean, names

_LONG = 32
TITLE = "Expected there, where nothing was run"


def lines(report: Report) -> list[str]:
    """What compiles first, then each way to start with its rows, then why of others nothing is foretold."""
    if report.expected is None:
        return []
    rows = report.expected.rows
    told = [first_start_line(report.expected.first_start)]
    told += _grouped((_start(row), row) for row in rows)
    verdicts = {(row.feature, str(row.sm)): row.verdict for row in report.features}
    undecided = [row for row in rows if verdicts.get((row.feature, str(row.sm))) is Verdict.UNKNOWN and row.why]
    told += _grouped((f"open: {row.why}", row) for row in undecided if row.start is not Start.CANNOT)
    return [clean(line, 2000) for line in told]


def warm_list(report: Report) -> str:
    """A file for `fi-doctor warm --list`: the rows of a first start whose modules are to be compiled, one a line."""
    found = report.expected.first_start if report.expected is not None else FirstStarts()
    words = clean(report.target.words, 300) if report.target is not None else ""
    release = report.facts.version_of("flashinfer-python")
    head = [f"# --target {words}, FlashInfer {release}", f"# {first_start_line(found)}", f"# {_command(report)}"]
    if found.unwarmed:
        head.append(f"# Left to the first start, as no probe compiles them for this GPU: {', '.join(found.unwarmed)}")
    rows = [row for row in found.rows if row not in found.unwarmed]
    return "".join(f"{line}\n" for line in (*head, *rows))


def _command(report: Report) -> str:
    """What compiles them without a GPU, as long as FlashInfer is told for which one."""
    package = report.facts.flashinfer
    tags = package.architectures if isinstance(package, FlashInfer) else ()
    named = "" if isinstance(tags, Missing) else arch_list(tags)
    return f"{ARCH_LIST}={shlex.quote(named)} fi-doctor warm --list FILE" if named else "fi-doctor warm --list FILE"


def first_start_line(found: FirstStarts) -> str:
    """What a server's first start compiles there, in a sentence."""
    unknown = f"; what {names(found.unknown)} would compile is not known" if found.unknown else ""
    who = "What is required" if found.is_asked else "What vLLM calls without a flag, of which a model takes a part,"
    return f"{who} compiles at a first start there {first_start(found)}{unknown}"


def first_start(found: FirstStarts) -> str:
    """How much that is: "4 modules: 16 objects, about 11 min with 2 jobs of up to 3.4 GiB"."""
    cannot = f"{names(found.cannot)} cannot be compiled" if found.cannot else ""
    if not found.modules:
        return f"nothing, as {cannot}" if cannot else "nothing that is known of"
    return (
        f"{amount(len(found.modules), 'module')}: {amount(found.objects, 'object')}, {about(found.seconds)} "
        f"with {amount(found.jobs, 'job')} of up to {found.memory_mib / 1024:.1f} GiB{f'; {cannot}' if cannot else ''}"
    )


def _grouped(told: Iterable[tuple[str, Expected]]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for said, row in told:
        groups.setdefault(said, []).append(row.feature)
    return [f"{said}: {names(dict.fromkeys(features))}" for said, features in sorted(groups.items())]


def _start(row: Expected) -> str:
    if row.start is not Start.COMPILES:
        if row.start is Start.UNKNOWN:
            return f"start not known{f', since {row.doubt}' if row.doubt else ''}"
        return str(row.start) if row.start in (Start.CANNOT, Start.NOTHING, Start.FIRST_CALL) else f"start {row.start}"
    measured = f"as on {', '.join(row.measured)}" if row.measured else "estimated"
    cost = f"{amount(row.objects, 'object')}, {row.cpu_seconds:.0f} CPU s, {row.memory_mib / 1024:.1f} GiB, {measured}"
    return f"compiles {briefly(row.modules)} ({cost})"


def briefly(modules: tuple[str, ...]) -> str:
    """Their names; attention's go on with types and sizes, which machine formats have."""
    counts = Counter(name if len(name) <= _LONG else f"{name[: name.rfind('_', 0, _LONG) + 1]}*" for name in modules)
    return ", ".join(f"{number} x {name}" if number > 1 else name for name, number in counts.items())
