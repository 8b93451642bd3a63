"""The policy of a check: read, its words and names looked at, and made ready for the gate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from fi_doctor.cli import outputs, parse
from fi_doctor.cli.asked import Asked
from fi_doctor.diagnosis import aging, given, misfits
from fi_doctor.diagnosis.captured import FAILS_IN_GRAPH
from fi_doctor.diagnosis.findings import MEASURED_BEATS_KNOWN, UNEXPLAINED_FAILURE
from fi_doctor.errors import UsageError
from fi_doctor.knowledge import policies
from fi_doctor.knowledge.policies import Written
from fi_doctor.knowledge.policy_keys import FAIL_WORDS, REQUIRE_WORDS, ROWS, by_word, contradiction
from fi_doctor.model import Depth, KnowledgeBase, Policy, Requirement, Scope
from fi_doctor.model.policy import DRIFT
from fi_doctor.reports.rulings import Setting

_T = TypeVar("_T")


def load(path: Path, knowledge: str | None = None) -> Written:
    """What a policy says; its names are not looked at yet. Errors: DataError with all that is wrong."""
    written = policies.read(path)
    errors = [*written.errors, *_wrong_words(written)]
    if errors:
        # Who has to mend the file wants to know of its names too, which else are looked at when all is loaded.
        from fi_doctor.cli.commands import known_names

        raise policies.refusal(written.name, [*errors, *policies.wrong_names(written, *known_names(knowledge))])
    return written


def wrong_values(asked: Asked, features: Iterable[str]) -> list[UsageError]:
    """All that is wrong with what options and variables select, require and let fail."""
    known = tuple(features)
    checks = (
        _refused(asked.features, lambda words: parse.names(words, known, asked.origin("feature"))),
        _refused(asked, lambda words: required(words, known)),
        _refused(asked, _failing),
        _refused(asked.rows, lambda word: parse.choice(word, ROWS, asked.origin("rows"))),
    )
    return [error for error in checks if error is not None]


def resolve(asked: Asked, features: Iterable[str], kb: KnowledgeBase) -> Policy:
    """The policy as the gate judges it, with what was said on the command line, and looked at, in its place."""
    words = _failing(asked)
    settled = Policy(
        fail_on=policies.failing(words),
        rows=asked.rows or Policy().rows,
        names_verdict=not words or policies.names_verdict(words),
        sources=asked.sources,
    )
    if asked.policy is None:
        return settled
    wrong = policies.wrong_names(asked.policy, features, findings(kb))
    if wrong:
        raise policies.refusal(asked.policy.name, wrong)
    aliases = {alias: rule.id for rule in kb.rules for alias in rule.aliases}
    today = dt.datetime.now().astimezone().date().isoformat()
    written = policies.resolve(asked.policy, today, aliases)
    return replace(
        settled,
        file=written.file,
        requirements=written.requirements,
        versions=written.versions,
        allowed=written.allowed,
        day=written.day,
    )


def required(asked: Asked, features: Iterable[str]) -> tuple[tuple[str, ...], tuple[Requirement, ...]]:
    """The rows that options or a variable require to work, and those of which GLOB=WORD asks for something else."""
    known, option = tuple(features), asked.origin("require")
    words = tuple(part.strip() for typed in asked.required for part in typed.split(",") if part.strip())
    if asked.required and not words:
        parse.names(asked.required, known, option)
    plain, found = [], []
    for word in words:
        if word in [scope.value for scope in Scope]:
            raise UsageError(
                f"{option}: {word!r} is a scope and no feature",
                why="a scope is asked for in the policy, in the table [require]",
                todo=f'"GLOB" = {{ evidence = "verified", scope = "{word}" }}',
            )
        glob, equals, wanted = word.rpartition("=")
        [name] = parse.names((glob if equals else word,), known, option)
        if not equals:
            plain.append(name)
            continue
        parse.choice(f"{name}={wanted}", [f"{name}={one}" for one in REQUIRE_WORDS], option)
        found.append(policies.requirement(name, by_word(wanted), option))
    return tuple(plain), tuple(found)


def settings(asked: Asked) -> list[Setting]:
    """What is not as it is by default and no requirement, in the order of the keys, and who set it."""
    targets = (f"{one.form}:{one.path}" if one.path else one.form for one in asked.targets)
    values = {
        "budget": asked.budget,
        "depth": asked.depth,
        "feature": ", ".join(asked.features),
        "format": ", ".join(targets),
        "jobs": asked.jobs,
        "memory": asked.memory,
        "rows": asked.rows,
    }
    return [Setting(key, str(value), asked.sources[key]) for key, value in values.items() if key in asked.sources]


def findings(kb: KnowledgeBase) -> tuple[str, ...]:
    """Every id that a finding can have."""
    rules = (name for rule in kb.rules for name in (rule.id, *rule.aliases))
    return (
        *rules,
        MEASURED_BEATS_KNOWN,
        UNEXPLAINED_FAILURE,
        FAILS_IN_GRAPH,
        aging.OLDER,
        *given.IDS,
        *given.FORMER_IDS,
        *misfits.IDS,
    )


def _failing(asked: Asked) -> tuple[str, ...]:
    """The words of --fail-on. Errors: UsageError."""
    words = tuple(word for part in asked.fail_on for word in part.split(","))
    for word in words:
        parse.choice(word, FAIL_WORDS, asked.origin("fail-on"))
    if DRIFT in words and not asked.is_fleet and asked.origin("fail-on") == "--fail-on":
        raise UsageError(
            f"--fail-on {DRIFT}: one machine differs from no other",
            todo=f"fi-doctor fleet --fail-on {DRIFT}",
        )
    if clash := contradiction(words):
        raise UsageError(f"{asked.origin('fail-on')}: {clash}", todo="leave one of the two out")
    return words


def _wrong_words(written: Written) -> list[str]:
    """What the command line would not take either."""
    file, name = written.file, Path(written.name).name
    checks = (
        _refused(file.depth, lambda word: parse.choice(word, [depth.value for depth in Depth], "depth")),
        _refused(file.budget, lambda word: parse.duration_s(word, "budget")),
        _refused(file.memory, lambda word: parse.memory_mib(word, "memory")),
        _refused(file.format, lambda words: outputs.targets(words, "format")),
    )
    return [f"{name}: {error.what}; {error.why}; try: {error.todo}" for error in checks if error is not None]


def _refused(value: _T | None, check: Callable[[_T], object]) -> UsageError | None:
    """Why a value is no good, if it is none."""
    try:
        if value is not None:
            check(value)
    except UsageError as error:
        return error
    return None
