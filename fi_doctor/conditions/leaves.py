"""The tests at the leaves of conditions: numbers, versions, flags, texts, and what happened to a probe."""

from __future__ import annotations

import enum
import fnmatch
from typing import Any, NamedTuple

from fi_doctor.conditions import patterns
from fi_doctor.conditions.ranges import number_in, number_range, version_in, version_range
from fi_doctor.model import Ending, Missing, Outcome, Stage

_LONGEST_PATTERN = 200
_OUTCOME_KEYS = ("probe", "variant", "ending", "stage", "sm", "text")

_GLOB = frozenset("*?[")


class Truth(str, enum.Enum):
    """Whether something holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Kind(str, enum.Enum):
    """What a subject's values are, and so which tests they can be put to."""

    NUMBER = "number"
    VERSION = "version"
    FLAG = "flag"
    TEXT = "text"


def check_test(kind: Kind, test: object, path: str) -> list[str]:
    """What is wrong with the test of a subject of this kind."""
    wrong = _complaint(kind, test)
    return [f"{path}: {wrong}"] if wrong else []


def reading_passes(kind: Kind, test: Any, reading: tuple[object, ...] | Missing) -> Truth:
    """Whether any of the values that were read passes; unknown when only a value that is Missing might."""
    if isinstance(reading, Missing):
        return Truth.UNKNOWN
    answers = [None if isinstance(value, Missing) else _passes(kind, test, value) for value in reading]
    if True in answers:
        return Truth.YES
    return Truth.UNKNOWN if None in answers else Truth.NO


def check_outcome(test: object, path: str) -> list[str]:
    """What is wrong with the test of an outcome: {probe: glob, variant: glob, ending:, stage:, sm:, text: regex}."""
    if not isinstance(test, dict) or not isinstance(test.get("probe"), str):
        return [f"{path}: expected a mapping with the glob of a probe under 'probe', got {test!r}"]
    errors = [f"{path}.{key}: expected one of {', '.join(_OUTCOME_KEYS)}" for key in test if key not in _OUTCOME_KEYS]
    for key, words in (("ending", Ending), ("stage", Stage)):
        known = {word.value for word in words}
        errors += [
            f"{path}.{key}: no such {key}: {word!r}; they are {', '.join(sorted(known))}"
            for word in _as_list(test.get(key, []))
            if word not in known
        ]
    if not isinstance(test.get("variant", ""), str):
        errors.append(f"{path}.variant: expected the glob of a variant, got {test['variant']!r}")
    if "sm" in test:
        errors += check_test(Kind.NUMBER, test["sm"], f"{path}.sm")
    if "text" in test:
        wrong = _wrong_pattern(test["text"])
        errors += [f"{path}.text: {wrong}"] if wrong else []
    return errors


def outcomes_pass(test: dict[str, Any], outcomes: tuple[Outcome, ...]) -> Truth:
    """Whether any probe, or any variant that is named, ended so; unknown where none of them was tried."""
    endings = [ending for outcome in outcomes for ending in _named(test, outcome)]
    if any(_ended_so(test, ending) for ending in endings):
        return Truth.YES
    tried = any(ending.ending is not Ending.NOT_RUN for ending in endings)
    return Truth.NO if tried else Truth.UNKNOWN


def _complaint(kind: Kind, test: object) -> str:
    """Why `test` cannot test a value of this kind, or ""."""
    if kind is Kind.FLAG:
        return "" if isinstance(test, bool) else f"expected true or false, got {_quote(test)}"
    if kind is Kind.NUMBER:
        if isinstance(test, int) and not isinstance(test, bool):
            return ""
        return _range_complaint(test, number_range, 'a number or a range such as ">=90,<100"')
    if kind is Kind.VERSION:
        return _range_complaint(test, version_range, 'a range of versions such as ">=12.8,<13"')
    return _text_complaint(test)


def _range_complaint(test: object, parse: Any, wanted: str) -> str:
    try:
        if isinstance(test, str):
            parse(test)
            return ""
    except ValueError:
        pass
    return f"expected {wanted}, got {_quote(test)}"


def _text_complaint(test: object) -> str:
    if isinstance(test, str):
        return ""
    if isinstance(test, list) and test and all(isinstance(item, str) for item in test):
        return ""
    if isinstance(test, dict) and "matches" in test and test.keys() <= {"matches", "without"}:
        return next((wrong for pattern in test.values() if (wrong := _wrong_pattern(pattern))), "")
    return f"expected a text, a list of texts or {{matches: regex, without: regex}}, got {_quote(test)}"


def _wrong_pattern(pattern: object) -> str:
    if not isinstance(pattern, str):
        return f"expected a regular expression, got {_quote(pattern)}"
    if len(pattern) > _LONGEST_PATTERN:
        return f"a regular expression of {len(pattern)} characters; {_LONGEST_PATTERN} are allowed"
    return patterns.wrong(pattern)


def _passes(kind: Kind, test: Any, value: Any) -> bool | None:
    """Whether one value passes; None when it cannot be compared, such as a version that is none."""
    if kind is Kind.NUMBER:
        return bool(value == test) if isinstance(test, int) else number_in(value, test)
    if kind is Kind.VERSION:
        return version_in(value, test)
    if kind is Kind.TEXT and isinstance(test, dict):
        is_left_out = "without" in test and patterns.search(test["without"], value) is not None
        return patterns.search(test["matches"], value) is not None and not is_left_out
    return bool(value in test) if isinstance(test, list) else bool(value == test)


class _Ended(NamedTuple):
    ending: Ending
    stage: Stage
    sm: int | Missing
    said: str


def _named(test: dict[str, Any], outcome: Outcome) -> list[_Ended]:
    """What the glob of the probe names: the outcome as a whole, or those of its variants that `variant` names."""
    if not _is_named(outcome.probe, test["probe"]):
        return []
    if "variant" not in test:
        cells = [text for cell in outcome.cells for text in (cell.detail, cell.error, cell.traceback)]
        said = "\n".join((outcome.detail, *cells, outcome.output))
        return [_Ended(outcome.ending, outcome.stage, outcome.sm, said)]
    return [
        _Ended(cell.ending, cell.stage, outcome.sm, f"{cell.detail}\n{cell.error}\n{cell.traceback}")
        for cell in outcome.cells
        if _is_named(cell.variant, test["variant"])
    ]


def _is_named(name: str, glob: str) -> bool:
    """As fnmatch has it, which takes its time where there is nothing to match: most globs are names."""
    return name == glob or (not _GLOB.isdisjoint(glob) and fnmatch.fnmatchcase(name, glob))


def _ended_so(test: dict[str, Any], ended: _Ended) -> bool:
    if "ending" in test and ended.ending.value not in _as_list(test["ending"]):
        return False
    if "stage" in test and ended.stage.value not in _as_list(test["stage"]):
        return False
    if "sm" in test and (isinstance(ended.sm, Missing) or not _passes(Kind.NUMBER, test["sm"], ended.sm)):
        return False
    return "text" not in test or patterns.search(test["text"], ended.said) is not None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
