"""The answer in words: diagnoses with their lines, reasons and remedies, or what would help."""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.explaining import harmless, helping
from fi_doctor.explaining.contradicting import is_implied
from fi_doctor.explaining.filling import contradicted
from fi_doctor.explaining.matching import Match
from fi_doctor.explaining.patterns import same as alike
from fi_doctor.explaining.ranking import Candidate
from fi_doctor.explaining.suiting import suited
from fi_doctor.model import (
    EXPLAIN_SCHEMA,
    Condition,
    Confidence,
    Diagnosis,
    Event,
    Explanation,
    LogFact,
    LogFacts,
    Matched,
    Read,
    Setting,
    Strength,
    Used,
)

_MOST_DIFFERING = 3
_MOST_LINES = 8  # shown of one diagnosis
_OF_ONE_MACHINE = ("package", "sm", "driver", "nvcc")


class Findings(NamedTuple):
    """What the answer is made of."""

    causes: tuple[Candidate, ...]  # in the order in which they are to be told
    candidates: tuple[Candidate, ...]
    facts: LogFacts
    given: tuple[LogFact, ...]  # with the log: of this machine, of reports and environments
    errors: tuple[Event, ...]
    ended: tuple[Event, ...]  # those of them that are not harmless
    used: tuple[Used, ...]
    read: tuple[Read, ...]
    settings: tuple[Setting, ...]
    left_out: int = 0  # lines with signs, of a log that is full of them
    silent: tuple[str, ...] = ()  # files of environments that tell nothing


def answer(found: Findings) -> Explanation:
    """The whole answer."""
    diagnoses = tuple(_diagnosis(one, found.settings) for one in found.causes)
    return Explanation(
        schema=EXPLAIN_SCHEMA,
        answer=_sentence(diagnoses, found),
        diagnoses=diagnoses,
        errors=found.errors,
        used=found.used,
        helps=(*helping.silent(found.silent), *_left_out(found), *_helps(found)),
        facts=_once(found.facts),
        read=found.read,
    )


def _once(facts: LogFacts) -> tuple[LogFact, ...]:
    """Each fact with the first line that tells it."""
    first: dict[tuple[str, str, str], LogFact] = {}
    for fact in facts.facts:
        first.setdefault((fact.name, fact.key, fact.value), fact)
    return tuple(first.values())


def _sentence(diagnoses: tuple[Diagnosis, ...], found: Findings) -> str:
    if diagnoses:
        first, against = diagnoses[0], found.causes[0].despite
        but = f"; {against.said}" if against else ""
        but += f"; {_later(found.causes[0])}" if found.causes[0].later else ""
        return f"{first.title}{_blame(first, found.causes[0])} (confidence {first.confidence}){but}"
    if not any(one.bytes for one in found.read):
        return "there is nothing to read"
    if found.errors and not found.ended:
        return harmless.sentence(found.errors)
    if own := [error for error in found.ended if not error.follows]:
        return f"I do not know: no fault that is known fits the first error, in line {own[0].line}"
    if found.ended:
        return f"I do not know: line {found.ended[0].line} speaks of an error that stands before this log"
    return "no error is told, and no sign of a fault that is known"


def _blame(one: Diagnosis, cause: Candidate) -> str:
    """Whose it is, where it is not FlashInfer's."""
    if one.flashinfer_at_fault:
        return ""
    if cause.owner:
        return f", which is of {cause.owner}, not of FlashInfer"
    if not one.is_tied and not cause.fault.otherwise:
        return ", if it is of FlashInfer at all"
    return (
        ", which nothing lays to FlashInfer"
        if one.confidence is Confidence.LOW
        else ", which is not FlashInfer's fault"
    )


def _left_out(found: Findings) -> tuple[str, ...]:
    """What was not looked at, that nobody takes it for all."""
    if not found.left_out:
        return ()
    return (f"{found.left_out} lines with signs were left out, between the first and the last: give a part of the log",)


def _helps(found: Findings) -> tuple[str, ...]:
    """What would make it surer, where the first diagnosis is not sure; what would tell more, where there is none."""
    differs = _differing(found)
    if found.causes:
        first = found.causes[0]
        differs = (*differs, *dict.fromkeys(one.despite.find for one in found.causes if one.despite))
        if first.confidence is Confidence.HIGH:
            return differs
        differs = (*differs, *(helping.before(found.errors) if first.is_on_follow_ons else ()))
        wanted = [f"tell whether {one}: {helping.how(one)}" for one in _unknown(first)]
        return (*differs, *wanted, *(() if first.is_anothers else first.fault.confirm))
    ended = found.ended
    if not ended:
        return (*differs, *helping.elsewhere(found.used))
    lacking = [name for name in ("sm", "nvcc", "driver") if not found.facts.of(name)]
    lacking += [] if found.facts.of("package", "flashinfer-python") else ["the versions of vllm and flashinfer-python"]
    helps = [f"add what the log does not tell ({', '.join(lacking)}): --env-file FILE, or --here"] if lacking else []
    if all(error.follows for error in ended):
        helps += helping.before(ended)
        helps.append("add the log from its beginning, and those of the other ranks: the first error is not in it")
    return (*differs, *helps, "fi-doctor check on that machine builds and runs the kernels, and says which fail")


def _differing(found: Findings) -> tuple[str, ...]:
    """What the log tells otherwise than the machine, the report or the environment that was given with it."""
    told = tuple(fact for fact in found.facts.facts if fact not in found.given)
    said = []
    for other, fact in contradicted(told, found.given):
        if fact.name in _OF_ONE_MACHINE:
            where = f"line {other.line} of {other.file}" if other.line else other.file
            said.append(
                f"{where} has {fact.key or fact.name} {other.value}, and line {fact.line} of the log tells "
                f"{fact.value}, which counts: the log may be of another machine"
            )
    return tuple(said[:_MOST_DIFFERING])


def _diagnosis(one: Candidate, settings: tuple[Setting, ...]) -> Diagnosis:
    fault = one.fault
    unknown = _unknown(one)
    return Diagnosis(
        rule=fault.id,
        cause=fault.cause,
        family=fault.family,
        confidence=one.confidence,
        flashinfer_at_fault=fault.flashinfer_at_fault
        and not one.is_anothers
        and (one.is_tied or one.confidence is not Confidence.LOW),
        title=_said(_title(one), one.view),
        why=_said("" if one.owner and "FlashInfer" in fault.why else fault.why, one.view),
        remedies=_remedies(one, settings),
        matched=_matched(one.matches),
        reason=_reason(one, unknown),
        unknown=unknown,
        confirm=() if one.is_anothers else fault.confirm,
        fixed_in=fault.fixed_in,
        source=fault.source,
        is_tied=one.is_tied,
    )


def _title(one: Candidate) -> str:
    return one.fault.otherwise if one.fault.otherwise and (one.is_anothers or not one.is_tied) else one.fault.title


def _remedies(one: Candidate, settings: tuple[Setting, ...]) -> tuple[str, ...]:
    """Lines that are ready to paste; where there is none, those in which a word is to be filled in."""
    whose = {"is_anothers": one.is_anothers, "is_beside": bool(one.beside)}
    each = (suited(mend, one.view, settings, **whose) for mend in one.fault.fix)
    lines = [line for line in dict.fromkeys(each) if line]
    ready = [line for line in lines if not LOG.unknowns(line, one.view)]
    return tuple(_line(line, one.view) for line in ready or lines)


def _said(text: str, view: LogView) -> str:
    """A sentence, without the words that the log does not tell."""
    for unknown in LOG.unknowns(text, view):
        text = text.replace(f" {unknown}", "").replace(unknown, "")
    return LOG.fill(text, view)


def _line(text: str, view: LogView) -> str:
    """A line to be pasted, with <words> to be filled in by hand for what the log does not tell."""
    for unknown in LOG.unknowns(text, view):
        text = text.replace(unknown, f"<{unknown.strip('{}').rpartition(':')[2]}>")
    return LOG.fill(text, view)


def _matched(matches: tuple[Match, ...]) -> tuple[Matched, ...]:
    """Each text once, however many signs it has, with the ranks that say it; the first of them have their place."""
    same: dict[str, list[Match]] = {}
    for match in matches:
        same.setdefault(alike(match.line.text), []).append(match)
    return tuple(_one_text(several) for several in same.values())[:_MOST_LINES]


def _one_text(several: list[Match]) -> Matched:
    first = max(several, key=lambda match: match.sign.strength.rank)
    line = several[0].line
    text = line.text.strip()
    return Matched(
        line=line.number,
        text=text,
        file=line.file,
        strength=first.sign.strength.value,
        source=first.sign.source,
        times=len({(match.line.place, match.line.number) for match in several}),
        ranks=tuple(dict.fromkeys(match.line.rank for match in several if match.line.rank)),
        at=max(0, text.find(first.sign.text)),
    )


def _unknown(one: Candidate) -> tuple[str, ...]:
    """The parts of `when` that the log does not tell, in words."""
    if one.truth is not Truth.UNKNOWN:
        return ()
    parts = [part for part in LOG.parts(one.fault.when) if LOG.holds(part, one.view) is Truth.UNKNOWN]
    parts = [part for part in parts if not one.despite or one.despite.fact.name not in part]
    return tuple(dict.fromkeys(in_words(part) for part in parts if not is_implied(part, one.matches, one.view)))


def in_words(part: Condition) -> str:
    """A leaf of a condition: "sm >=120", "package vllm <0.16", "nvcc newer than driver"."""
    [(word, test)] = part.items()
    said = word.replace("_", " ")
    if isinstance(test, dict) and word in LOG.keyed:
        [(key, test)] = test.items()
        said = f"{said} {key}"
    if isinstance(test, dict):
        test = f"matches {test['matches']!r}"
    if isinstance(test, bool):
        return said if test else f"not {said}"
    return f"{said} {test}"


def _reason(one: Candidate, unknown: tuple[str, ...]) -> str:
    deciding = [match for match in one.matches if match.sign.strength is Strength.DECIDES]
    if not deciding:
        whose = "" if one.is_tied else "; none of them names FlashInfer"
        return f"its lines fit this cause, and others too{whose}{f'; but {one.overcome}' if one.overcome else ''}"
    where = f"nothing else brings line {deciding[0].line.number} about"
    if one.owner:
        where = f"{where}, which is of {one.owner}"
    elif one.is_anothers and not one.is_tied:
        where = f"{where}, and nothing says which package it is"
    elif not one.is_tied:
        where = f"line {deciding[0].line.number} is of this cause if it is about FlashInfer, which no line near it says"
    known = _known(one)
    holds = f", since {' and '.join(known)}" if known else ""
    where = f"{where}; it is of {one.beside}, in which no engine runs" if one.beside else where
    but = f"; but {one.despite.said}" if one.despite else ""
    but += f"; but {one.overcome}" if one.overcome else ""
    but += f"; but {_later(one)}" if one.later else ""
    if unknown:
        return f"{where}{holds}, if {' and '.join(unknown)}, which is not told{but}"
    return f"{where}{holds}{but}"


def _later(one: Candidate) -> str:
    return f"a server began to serve after it, in line {one.later}"


def _known(one: Candidate) -> tuple[str, ...]:
    """The parts of `when` that hold, each with what was read and where: "nvcc is 12.8 (line 3)"."""
    said = []
    for part in LOG.parts(one.fault.when) if one.fault.when else ():
        [(word, test)] = part.items()
        key = next(iter(test)) if isinstance(test, dict) and word in LOG.keyed else ""
        if LOG.holds(part, one.view) is Truth.YES and (facts := one.view.facts.of(word, key)):
            fact = next((fact for fact in facts if _is_enough(part, fact, one)), facts[0])
            said.append(f"{key or word.replace('_', ' ')} is {fact.value} ({_where(fact, one)})")
        elif LOG.holds(part, one.view) is Truth.UNKNOWN and is_implied(part, one.matches, one.view):
            said.append(f"{in_words(part)} follows from it")
    return tuple(dict.fromkeys(said))


def _is_enough(part: Condition, fact: LogFact, one: Candidate) -> bool:
    """Whether a condition holds by a fact alone, of several under one name."""
    return LOG.holds(part, one.view._replace(facts=LogFacts(facts=(fact,)))) is Truth.YES


def _where(fact: LogFact, one: Candidate) -> str:
    """The line, with its file where that is another one than the log's."""
    if not fact.line:
        return fact.file
    return f"line {fact.line}" + ("" if fact.file == one.matches[0].line.file else f" of {fact.file}")
