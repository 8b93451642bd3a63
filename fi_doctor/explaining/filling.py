"""What is given with a log fills in what the log does not tell."""

from __future__ import annotations

from fi_doctor.model import LogFact, LogFacts

_OF_GPUS = ("gpu", "sm")


def filled(told: tuple[LogFact, ...], given: tuple[LogFact, ...]) -> tuple[LogFact, ...]:
    """What the log tells, and what of the given it leaves open: "12.4" leaves open that it is 12.4.131."""
    said: dict[tuple[str, str], str] = {}
    for fact in told:
        said.setdefault((fact.name, fact.key), fact.value)
    finer = tuple(fact for fact in given if fact.value.startswith(f"{said.get((fact.name, fact.key), fact.value)}."))
    return (*finer, *told, *(fact for fact in given if not _is_told(fact, said)))


def of_files(facts: LogFacts, files: frozenset[str], given: tuple[LogFact, ...]) -> LogFacts:
    """What holds for lines of these files: what other logs tell of the same may be of another machine."""
    strange = [fact for fact in facts.facts if fact.file not in files and fact not in given]
    if not strange:
        return facts
    own = {_subject(fact) for fact in facts.facts if fact.file in files}
    aside = {fact for fact in strange if _subject(fact) in own}
    return LogFacts(tuple(fact for fact in facts.facts if fact not in aside))


def _subject(fact: LogFact) -> tuple[str, str]:
    return (_OF_GPUS[0] if fact.name in _OF_GPUS else fact.name, fact.key)


def contradicted(told: tuple[LogFact, ...], given: tuple[LogFact, ...]) -> tuple[tuple[LogFact, LogFact], ...]:
    """Each fact that is given, with what the log tells in its place, once for each subject."""
    first: dict[tuple[str, str], LogFact] = {}
    every: dict[tuple[str, str], set[str]] = {}
    for fact in told:
        first.setdefault((fact.name, fact.key), fact)
        every.setdefault((fact.name, fact.key), set()).add(fact.value)
    found: dict[tuple[str, str], tuple[LogFact, LogFact]] = {}
    for fact in given:
        subject = (fact.name, fact.key)
        if subject in first and not any(_agree(fact.value, value) for value in every[subject]):
            found.setdefault(subject, (fact, first[subject]))
    return tuple(found.values())


def _is_told(fact: LogFact, said: dict[tuple[str, str], str]) -> bool:
    names = _OF_GPUS if fact.name in _OF_GPUS and ("sm", "") in said else (fact.name,)
    return any((name, fact.key) in said for name in names)


def _agree(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
