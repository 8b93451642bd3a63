"""The policy of a check: read, its words and names looked at, and made ready for the gate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from fi_doctor.cli import outputs, parse
from fi_doctor.cli.asked import Asked
from fi_doctor.diagnosis import misfits
from fi_doctor.diagnosis.captured import FAILS_IN_GRAPH
from fi_doctor.diagnosis.findings import MEASURED_BEATS_KNOWN, UNEXPLAINED_FAILURE
from fi_doctor.errors import UsageError
from fi_doctor.knowledge import policies
from fi_doctor.knowledge.policies import Written
from fi_doctor.knowledge.policy_keys import FAIL_ON
from fi_doctor.model import Depth, KnowledgeBase, Policy

_T = TypeVar("_T")


def load(path: Path) -> Written:
    """What a policy says; its names are not looked at yet. Errors: DataError with all that is wrong."""
    written = policies.read(path)
    errors = [*written.errors, *_wrong_words(written)]
    if errors:
        # Who has to mend the file wants to know of its names too, which else are looked at when all is loaded.
        from fi_doctor.cli.commands import known_names

        raise policies.refusal(written.name, [*errors, *policies.wrong_names(written, *known_names())])
    return written


def resolve(asked: Asked, features: Iterable[str], kb: KnowledgeBase) -> Policy:
    """The policy as the gate judges it, with what was said on the command line in its place."""
    words = tuple(word for part in asked.fail_on for word in part.split(","))
    for word in words:
        parse.choice(word, FAIL_ON, asked.origin("fail-on"))
    fail_on = policies.failing(words)
    if asked.policy is None:
        return Policy(fail_on=fail_on)
    wrong = policies.wrong_names(asked.policy, features, findings(kb))
    if wrong:
        raise policies.refusal(asked.policy.name, wrong)
    aliases = {alias: rule.id for rule in kb.rules for alias in rule.aliases}
    today = dt.datetime.now().astimezone().date().isoformat()
    return replace(policies.resolve(asked.policy, today, aliases), fail_on=fail_on)


def findings(kb: KnowledgeBase) -> tuple[str, ...]:
    """Every id that a finding can have."""
    rules = (name for rule in kb.rules for name in (rule.id, *rule.aliases))
    return (*rules, MEASURED_BEATS_KNOWN, UNEXPLAINED_FAILURE, FAILS_IN_GRAPH, *misfits.IDS)


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
