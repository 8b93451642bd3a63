"""The answer in words: diagnoses with their lines, reasons and remedies, or what would help."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG
from fi_doctor.explaining.matching import Match
from fi_doctor.explaining.ranking import Candidate
from fi_doctor.model import (
    EXPLAIN_SCHEMA,
    Condition,
    Confidence,
    Diagnosis,
    Explanation,
    LogFacts,
    Matched,
    Mend,
    Read,
    Setting,
    Strength,
)

_MOST_LINES = 8  # shown of one diagnosis


def answer(
    causes: tuple[Candidate, ...],
    candidates: Iterable[Candidate],
    facts: LogFacts,
    read: tuple[Read, ...],
    settings: tuple[Setting, ...],
) -> Explanation:
    """The whole answer; causes are in the order in which they are to be told."""
    diagnoses = tuple(_diagnosis(one, settings) for one in causes)
    follow_ons = tuple(line for one in candidates for line in _matched(_following(one.matches)))
    return Explanation(
        schema=EXPLAIN_SCHEMA,
        knowledge="",
        answer=_sentence(diagnoses),
        diagnoses=diagnoses,
        follow_ons=tuple(dict.fromkeys(follow_ons)),
        facts=facts.facts,
        read=read,
    )


def _sentence(diagnoses: tuple[Diagnosis, ...]) -> str:
    if not diagnoses:
        return "not known: no line of the log decides"
    first = diagnoses[0]
    return f"{first.title} ({first.cause}, confidence {first.confidence})"


def _diagnosis(one: Candidate, settings: tuple[Setting, ...]) -> Diagnosis:
    fault = one.fault
    unknown = _unknown(one)
    return Diagnosis(
        rule=fault.id,
        cause=fault.cause,
        family=fault.family,
        confidence=one.confidence,
        flashinfer_at_fault=fault.flashinfer_at_fault,
        title=LOG.fill(fault.title, one.view),
        why=LOG.fill(fault.why, one.view),
        remedies=tuple(LOG.fill(mend.line, one.view) for mend in fault.fix if _applies(mend, one, settings)),
        matched=_matched(one.matches),
        reason=_reason(one, unknown),
        unknown=unknown,
        confirm=fault.confirm,
        fixed_in=fault.fixed_in,
        source=fault.source,
    )


def _following(matches: tuple[Match, ...]) -> tuple[Match, ...]:
    return tuple(match for match in matches if match.sign.strength is Strength.FOLLOWS_ON)


def _applies(mend: Mend, one: Candidate, settings: tuple[Setting, ...]) -> bool:
    """Whether it is for these versions: not known to be for others, and its setting, if any, read by them."""
    if mend.when and LOG.holds(mend.when, one.view) is Truth.NO:
        return False
    if not mend.setting:
        return True
    readers = [setting for setting in settings if setting.name == mend.setting and setting.read_by]
    return any(LOG.holds({"package": {reader.owner: reader.read_by}}, one.view) is not Truth.NO for reader in readers)


def _matched(matches: tuple[Match, ...]) -> tuple[Matched, ...]:
    """Each text once, with the ranks that say it; the first of them have their place."""
    same: dict[tuple[str, str], list[Match]] = {}
    for match in matches:
        same.setdefault((match.sign.text, match.line.text), []).append(match)
    return tuple(_one_text(several) for several in same.values())[:_MOST_LINES]


def _one_text(several: list[Match]) -> Matched:
    first = several[0]
    return Matched(
        line=first.line.number,
        text=first.line.text.strip(),
        file=first.line.file,
        strength=first.sign.strength.value,
        source=first.sign.source,
        times=len(several),
        ranks=tuple(dict.fromkeys(match.line.rank for match in several if match.line.rank)),
    )


def _unknown(one: Candidate) -> tuple[str, ...]:
    """The parts of `when` that the log does not tell, in words."""
    if one.truth is not Truth.UNKNOWN:
        return ()
    parts = [part for part in LOG.parts(one.fault.when) if LOG.holds(part, one.view) is Truth.UNKNOWN]
    return tuple(dict.fromkeys(in_words(part) for part in parts))


def in_words(part: Condition) -> str:
    """A leaf of a condition: "sm >=120", "package vllm <0.16"."""
    [(word, test)] = part.items()
    if isinstance(test, dict) and word in ("package", "installed", "env", "argument"):
        [(key, test)] = test.items()
        word = f"{word} {key}"
    return f"{word} {test}"


def _reason(one: Candidate, unknown: tuple[str, ...]) -> str:
    deciding = [match for match in one.matches if match.sign.strength is Strength.DECIDES]
    if not deciding:
        return "its lines fit this cause, and others too"
    where = f"line {deciding[0].line.number} is brought about by nothing else"
    if one.confidence is Confidence.HIGH:
        return where if not one.fault.when else f"{where}, as the facts of the log stand"
    return f"{where}, if {' and '.join(unknown)}: that is not told"
