"""The whole plan of a move: what moves with it, what stands otherwise afterwards, and what keeps what is required."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from fi_doctor import __version__, pipeline, upgraded
from fi_doctor.diagnosis import given
from fi_doctor.knowledge.gpus import ON_ARM
from fi_doctor.model import Doctor, Facts, Finding, Holds, Missing, Report, Severity
from fi_doctor.model.expected import FirstStarts
from fi_doctor.model.plans import PLAN_SCHEMA, Kept, Plan, Side, Standing
from fi_doctor.model.targets import Target
from fi_doctor.moving import altered, ends, judging, keeping, pins, searching
from fi_doctor.moving.standing import moves, stands

HOLDS, LOST, CANNOT_TELL = 0, 1, 3


def plan(  # noqa: PLR0913 - both ends, what is asked and what is known
    begin: Facts,
    to: Target,
    *,
    required: tuple[str, ...],
    globbed: frozenset[str] = frozenset(),
    known: judging.Known,
    words: tuple[str, str],
    recorded: Report | None = None,
    is_here: bool = True,
) -> Plan:
    """The plan of a move from these facts.

    required: ids of features. globbed: those of them that only a glob names, of which one that is at neither end does
    not count. words: what --from and --to say. recorded: the report that the facts are of, where one
    was made. is_here: whether the facts are of this machine.
    """
    before = static = judging.judge(begin, known)
    if recorded is not None:
        before = judging.as_measured(replace(recorded, facts=begin), known)
    end = ends.end(begin, to, is_here=is_here)
    after = judging.judge(end.facts, known)
    old, new = stands(before, known.kb), stands(after, known.kb, before=before)
    foretold = stands(static, known.kb)
    old |= {name: foretold[name] for name, one in old.items() if one.standing is Standing.OPEN and name in foretold}
    held = keeping.kept(required, old, new, end.facts, known.kb, globbed)
    of_required = tuple(keeping.with_mends(one, after) for one in held)
    lost = [one for one in of_required if one.holds is Holds.NO]
    search = None
    if lost:
        counted = tuple(one.feature for one in of_required if one.holds is not Holds.ALLOWED)
        asked = searching.Asked(begin, before, end, old, new, counted, is_here)
        search = searching.search(asked, lost, known)
    code, reason = _decided(of_required, all(one.standing is Standing.UNKNOWN for one in new.values()))
    gone, came = ({f"{one.id}: {one.title}" for one in _counting(report)} for report in (static, after))
    return Plan(
        schema=PLAN_SCHEMA,
        doctor=Doctor(version=__version__, knowledge=known.kb.version, knowledge_from=known.kb.origin),
        created=pipeline.now(),
        before=Side(words=words[0], told=told(begin)),
        after=Side(words=words[1], told=told(end.facts)),
        code=code,
        reason=reason,
        pins=end.pins,
        needs=pins.needs(end.facts),
        rows=tuple(moves(old, new)),
        rows_compared=len({*old, *new}),
        problems_new=_only(came, gone),
        problems_gone=_only(gone, came),
        settings=altered.find(known.kb, begin, end.facts, known.stated),
        starts=(_first_start(static), _first_start(after)),
        required=of_required,
        search=search,
        notes=_notes(begin, end),
    )


def told(facts: Facts) -> tuple[str, ...]:
    """GPU, driver, nvcc and packages, in words; what is not known among them."""
    gpus, driver, nvcc = pins.gpus_told(facts), pins.driver_of(facts), pins.nvcc_of(facts)
    names = (pins.VLLM, pins.FLASHINFER, pins.TORCH)
    versions = [(name, pins.installed(name, facts)) for name in names]
    return (
        gpus or "no GPU is known",
        f"driver {driver}" if driver else "the driver is not known",
        f"nvcc {nvcc}" if nvcc else "no nvcc is known",
        *(f"{name} {version}" if version else f"no {name}" for name, version in versions),
    )


def _first_start(report: Report) -> FirstStarts:
    return report.expected.first_start if report.expected is not None else FirstStarts()


def _counting(report: Report) -> list[Finding]:
    """Without what is told of settings."""
    return [one for one in report.findings if one.severity is not Severity.INFO and one.id not in given.IDS]


def _only(one: set[str], other: set[str]) -> tuple[str, ...]:
    ids = {name.partition(":")[0] for name in other}
    return tuple(sorted(name for name in one if name.partition(":")[0] not in ids))


def _decided(required: Sequence[Kept], is_untold: bool) -> tuple[int, str]:  # noqa: FBT001 - the second of two
    """The exit code, and the sentence that says it."""
    lost = [one.feature for one in required if one.holds is Holds.NO]
    untold = [one.feature for one in required if one.holds is Holds.CANNOT_TELL]
    if lost:
        return LOST, f"required and not there after the move: {', '.join(lost)}"
    if untold:
        return CANNOT_TELL, f"required, and nothing is known of them after the move: {', '.join(untold)}"
    if is_untold:
        return CANNOT_TELL, "of no row anything is known after the move"
    if required:
        return HOLDS, "nothing that is known stands against what is required"
    return HOLDS, "nothing was required"


def _notes(begin: Facts, end: ends.End) -> tuple[str, ...]:
    versions = {pin.what: pin.after for pin in end.pins}
    calls = end.facts.calls
    fit = f"how vLLM {end.facts.vllm_version} calls FlashInfer {pins.installed(pins.FLASHINFER, end.facts)}"
    untold = [*upgraded.unshipped(versions), *altered.untold(begin, end.facts)]
    if end.facts.vllm_version and isinstance(calls, Missing) and {pins.VLLM, pins.FLASHINFER} & versions.keys():
        untold.append(f"{fit} is not in the shipped data: {calls.reason}")
    torch = versions.get(pins.TORCH)
    if torch and isinstance(cuda := upgraded.cuda_of_torch(torch), Missing):
        untold.append(f"for which CUDA it is: {cuda.reason}")
    if end.target.name in ON_ARM and end.facts.system.machine != "aarch64":
        machine = end.facts.system.machine
        untold.append(f"{end.target.name} comes with an aarch64 CPU; packages are judged as those of {machine}")
    if not pins.sms_of(end.facts):
        untold.append("no GPU is known, so that nothing that depends on one is judged; name one, as --to h200")
    return tuple(dict.fromkeys(untold))
