"""What trying a recommendation showed, in words: what it turned, what came instead, or why it is not proven."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.model import Evidence, Missing, Proof, Proven, Trial, Tried, Verdict
from fi_doctor.reports.text import amount, clean, names

DISPROVED = "Tried here, did not help:"
_MOST_NAMED = 3  # variants; more are counted


def told(proof: Proof | None) -> list[str]:
    """A line for each thing that it shows; none where it was not asked for."""
    if proof is None:
        return []
    if proof.result is Proven.NOT_PROVEN:
        return [f"not proven: {clean(proof.why)}"]
    lines = [f"tried here: {line}" for line in _grouped(one for one in proof.trials if one.turned)]
    rest = [one for one in proof.trials if not one.turned]
    still = "not turned: " if lines else "tried here, did not help: "
    lines += [f"{still}{line}" for line in _grouped(one for one in rest if one.after.verdict is not Verdict.UNKNOWN)]
    lines += [f"not known: {line}" for line in _grouped(one for one in rest if one.after.verdict is Verdict.UNKNOWN)]
    if proof.why:
        lines.append(f"tried here, did not help: {clean(proof.why)}")
    return [*lines[:-1], f"{lines[-1]}, {proof.seconds:.0f} s"] if lines else []


def _grouped(trials: Iterable[Trial]) -> Iterable[str]:
    """Cells of one row that say the same, before and after, in one sentence."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in trials:
        sm = "" if isinstance(one.sm, Missing) else f" on SM{one.sm}"
        groups.setdefault((f"{clean(one.feature)}{sm}", _change(one)), []).append(one.variant)
    for (row, change), variants in groups.items():
        named = [clean(name) for name in variants if name]
        which = names(named) if len(named) <= _MOST_NAMED else amount(len(named), "variant")
        yield f"{row}{f' ({which})' if named else ''} {change}"


def _change(one: Trial) -> str:
    """As "broken -> works (verified)"; of what is no success the reason too."""
    said = f"{one.before.verdict} -> {_word(one.after)}"
    return said if one.after.verdict is Verdict.WORKS else f"{said}: {clean(one.after.why)}"


def _word(tried: Tried) -> str:
    if tried.verdict is Verdict.UNKNOWN and tried.evidence is Evidence.BUILT:
        return "built"
    return f"{tried.verdict} ({tried.evidence})"
