"""What must hold over all knowledge: ids, conditions, texts, ranges, and the names that files give each other."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from pathlib import PurePosixPath

from fi_doctor import conditions
from fi_doctor.conditions.ranges import version_range
from fi_doctor.model import ActionKind, Feature, Rule, Setting, Verdict

_RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_FEATURE_ID = re.compile(r"[a-z0-9]+\.[a-z0-9_]+")
_STATUSES = ("confirmed", "suspected")
_KINDS = ("env", "flag")


def check_whole(rules: dict[str, Rule], features: tuple[Feature, ...], settings: tuple[Setting, ...]) -> list[str]:
    """What is wrong, each error with its place; rules are given by file name."""
    names = {setting.name for setting in settings}
    rows = [feature.id for feature in features]
    errors = [error for place, rule in rules.items() for error in _check_rule(place, rule, names, rows)]
    errors += [error for feature in features for error in _check_feature(feature)]
    errors += [error for setting in settings for error in _check_setting(setting)]
    errors += _repeated("rules", [word for rule in rules.values() for word in (rule.id, *rule.aliases)])
    errors += _repeated("features.yaml", rows)
    # One variable may be read by several packages, each with its own range.
    errors += _repeated("settings", [f"{setting.name} of {setting.owner}" for setting in settings])
    return errors


def _check_rule(place: str, rule: Rule, settings: set[str], rows: list[str]) -> list[str]:
    errors = []
    if rule.id != PurePosixPath(place).stem:
        errors.append(f"{place}: id: expected the file's name, got {rule.id!r}")
    if not _RULE_ID.fullmatch(rule.id):
        errors.append(f"{place}: id: expected words joined by hyphens, got {rule.id!r}")
    if rule.status not in _STATUSES:
        errors.append(f"{place}: status: expected one of {', '.join(_STATUSES)}, got {rule.status!r}")
    if not rule.source:
        errors.append(f"{place}: source: empty; a rule says where it is known from")
    if not rule.fix:
        errors.append(f"{place}: fix: empty; where nothing helps, an action of kind report-upstream")
    if rule.predicts in (Verdict.WORKS, Verdict.UNKNOWN):
        errors.append(f"{place}: predicts: a rule is about a problem, it cannot predict {rule.predicts}")
    errors += [
        f"{place}: features: {glob!r} matches no feature" for glob in rule.features if not fnmatch.filter(rows, glob)
    ]
    errors += [f"{place}: {error}" for error in conditions.check(rule.when, "when")]
    if wrong := _wrong_pattern(rule.explains):
        errors.append(f"{place}: explains: {wrong}")
    return errors + _check_texts(place, rule, settings)


def _check_texts(place: str, rule: Rule, settings: set[str]) -> list[str]:
    texts = {"title": rule.title, "why": rule.why}
    for number, action in enumerate(rule.fix):
        texts[f"fix[{number}].line"] = action.line
        texts[f"fix[{number}].why"] = action.why
    errors = [f"{place}: {error}" for path, text in texts.items() for error in conditions.check_text(text, path)]
    for number, action in enumerate(rule.fix):
        here = f"{place}: fix[{number}].setting"
        if action.setting and action.setting not in settings:
            errors.append(f"{here}: {action.setting!r} is not in settings/")
        if not action.setting and action.kind in (ActionKind.SET, ActionKind.FLAG):
            errors.append(f"{here}: missing; an action of kind {action.kind} names the setting that it sets")
    return errors


def _check_feature(feature: Feature) -> list[str]:
    errors = []
    if not _FEATURE_ID.fullmatch(feature.id):
        errors.append(f"features.yaml: {feature.id}: expected family.name")
    errors += [
        f"features.yaml: {feature.id}: vllm[{number}].vllm: {wrong}"
        for number, use in enumerate(feature.vllm)
        if (wrong := _wrong_range(use.vllm))
    ]
    return errors


def _check_setting(setting: Setting) -> list[str]:
    errors = []
    if setting.kind not in _KINDS:
        errors.append(f"settings: {setting.name}: kind: expected one of {', '.join(_KINDS)}, got {setting.kind!r}")
    if wrong := _wrong_range(setting.read_by):
        errors.append(f"settings: {setting.name}: read_by: {wrong}")
    return errors


def _wrong_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        return f"not a regular expression: {error}"
    return ""


def _wrong_range(text: str) -> str:
    try:
        version_range(text)
    except ValueError as error:
        return str(error)
    return ""


def _repeated(place: str, words: list[str]) -> list[str]:
    return [f"{place}: {word!r} is given {times} times" for word, times in Counter(words).items() if times > 1]
