"""What must hold over all knowledge: ids, conditions, texts, ranges, and the names that files give each other."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections import Counter
from pathlib import PurePosixPath

from fi_doctor import conditions
from fi_doctor.conditions import patterns
from fi_doctor.conditions.ranges import number_in, number_range, version_in, version_range
from fi_doctor.model import Action, ActionKind, Feature, Operator, Rule, Setting, Use, Verdict

_RULE_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_FEATURE_ID = re.compile(r"[a-z0-9]+\.[a-z0-9_]+")
_RUNNER = re.compile(r"data/[A-Za-z0-9_]+(?:/[A-Za-z0-9_]+)*\.cuh")
_STATUSES = ("confirmed", "suspected")
_KINDS = ("env", "flag", "key")
# The releases of vLLM that were read, and the GPUs: what is said of a feature has to say it for each of them.
_RELEASES = ("0.11.0", "0.14.1", "0.17.1", "0.20.2", "0.25.1", "0.28.0", "0.33.0")
_SMS = (80, 89, 90, 100, 103, 120, 121)


def check_whole(rules: dict[str, Rule], features: tuple[Feature, ...], settings: tuple[Setting, ...]) -> list[str]:
    """What is wrong, each error with its place; rules are given by file name."""
    names = {setting.name for setting in settings}
    rows = [feature.id for feature in features]
    errors = [error for place, rule in rules.items() for error in _check_rule(place, rule, names, rows)]
    errors += [error for feature in features for error in _check_feature(feature, names)]
    errors += [error for setting in settings for error in _check_setting(setting)]
    errors += _unread(rules, features, settings)
    errors += _repeated("rules", [word for rule in rules.values() for word in (rule.id, *rule.aliases)])
    errors += _repeated("features.yaml", rows)
    # One variable may be read by several packages, each with its own range.
    errors += _repeated("settings", [f"{setting.name} of {setting.owner}" for setting in settings])
    return errors


def check_operators(operators: tuple[Operator, ...]) -> list[str]:
    """What is wrong with the operators of a complete backend. Rows that they name may be added later."""
    errors = [
        f"operators.yaml: {one.id}: {wrong}"
        for one in operators
        for wrong, is_wrong in (
            ("neither entry nor patterns: nothing says what FlashInfer calls it", not (one.entry or one.patterns)),
            ("entry: expected names of FlashInfer", any(not name.startswith("flashinfer.") for name in one.entry)),
            ("patterns: expected small letters and a *", any("*" not in w or w != w.lower() for w in one.patterns)),
        )
        if is_wrong
    ]
    return errors + _repeated("operators.yaml", [one.id for one in operators])


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
    errors += [
        f"{place}: predicts: a rule is about a problem, it cannot predict {verdict}"
        for verdict in (rule.predicts, *(one.verdict for one in rule.foretells))
        if verdict in (Verdict.WORKS, Verdict.UNKNOWN)
    ]
    globs = (*rule.features, *(glob for one in rule.foretells for glob in one.features))
    errors += [f"{place}: features: {glob!r} matches no feature" for glob in globs if not fnmatch.filter(rows, glob)]
    for number, one in enumerate(rule.foretells):
        here = f"{place}: foretells[{number}].when"
        errors += (unsaid := [f"{here}: {error}" for error in conditions.check(one.when, "when")])
        if not unsaid and any("outcome" in part for part in conditions.parts(one.when)):
            errors.append(f"{here}: outcome: what is foretold is known by facts alone")
    errors += [f"{place}: {error}" for error in conditions.check(rule.when, "when")]
    expressions = {"explains": rule.explains, "explains_not": rule.explains_not}
    errors += [f"{place}: {key}: {wrong}" for key, text in expressions.items() if (wrong := patterns.wrong(text))]
    return errors + _check_texts(place, rule, settings)


def _check_texts(place: str, rule: Rule, settings: set[str]) -> list[str]:
    texts = {"title": rule.title, "why": rule.why}
    errors = [f"{place}: {error}" for path, text in texts.items() for error in conditions.check_text(text, path)]
    return errors + _check_actions(place, {"fix": rule.fix}, settings)


def _check_actions(place: str, actions: dict[str, tuple[Action, ...]], settings: set[str]) -> list[str]:
    """What is wrong with lists of actions, given by their paths in the file."""
    errors: list[str] = []
    for path, action in ((f"{key}[{at}]", one) for key, several in actions.items() for at, one in enumerate(several)):
        errors += [f"{place}: {error}" for error in conditions.check_text(action.line, f"{path}.line")]
        errors += [f"{place}: {error}" for error in conditions.check_text(action.why, f"{path}.why")]
        if action.setting and action.setting not in settings:
            errors.append(f"{place}: {path}.setting: {action.setting!r} is not in settings/")
        if not action.setting and action.kind in (ActionKind.SET, ActionKind.FLAG):
            kind = action.kind
            errors.append(f"{place}: {path}.setting: missing; an action of kind {kind} names the setting that it sets")
    return errors


def _check_feature(feature: Feature, settings: set[str]) -> list[str]:
    place = f"features.yaml: {feature.id}"
    errors = [] if _FEATURE_ID.fullmatch(feature.id) else [f"{place}: expected family.name"]
    for name, uses in (("vllm", feature.vllm), ("sglang", feature.sglang)):
        for number, use in enumerate(uses):
            errors += _check_use(place, f"{name}[{number}].{name}", use, settings)
    if feature.call and not _is_call_of(feature.call, feature.entry):
        errors.append(f"{place}: call: expected one of entry with literals by name, got {feature.call!r}")
    if feature.runner and not _RUNNER.fullmatch(feature.runner):
        errors.append(f"{place}: runner: expected a path below FlashInfer's data/ to a .cuh, got {feature.runner!r}")
    errors += _check_actions(place, {"uncaptured": feature.uncaptured}, settings)
    return errors or _gaps(place, feature)


def _is_call_of(text: str, names: tuple[str, ...]) -> bool:
    """Whether it is "flashinfer.bmm_fp8(backend='cublas')" of one of these names."""
    try:
        call = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    if not isinstance(call, ast.Call) or call.args or text.partition("(")[0] not in names:
        return False
    return all(one.arg is not None and isinstance(one.value, ast.Constant) for one in call.keywords)


def _check_use(place: str, name: str, use: Use, settings: set[str]) -> list[str]:
    path = name.rpartition(".")[0]
    errors = [f"{place}: {name}: {wrong}"] if (wrong := _wrong_range(use.releases)) else []
    if wrong := _wrong_numbers(use.sm):
        errors.append(f"{place}: {path}.sm: {wrong}")
    actions = {f"{path}.enable": use.enable, f"{path}.avoid": use.avoid}
    for key, several in actions.items():
        errors += [
            f"{place}: {key}[{at}].setting: missing; what turns a feature on or off names the setting that it sets"
            for at, one in enumerate(several)
            if not one.setting and one.kind not in (ActionKind.SET, ActionKind.FLAG)
        ]
    return errors + _check_actions(place, actions, settings)


def _gaps(place: str, feature: Feature) -> list[str]:
    """The releases that were read, and GPUs, of which nothing is said; a feature without any use says nothing."""
    missing: dict[str, list[int]] = {}
    for release in _RELEASES if feature.vllm else ():
        uses = [use for use in feature.vllm if version_in(release, use.vllm)]
        without = [sm for sm in _SMS if not any(not use.sm or number_in(sm, use.sm) for use in uses)]
        if without:
            missing[release] = without
    return [
        f"{place}: vllm: nothing is said of {release} on {', '.join(f'SM{sm}' for sm in sms)}"
        for release, sms in missing.items()
    ]


def _check_setting(setting: Setting) -> list[str]:
    errors = []
    if setting.kind not in _KINDS:
        errors.append(f"settings: {setting.name}: kind: expected one of {', '.join(_KINDS)}, got {setting.kind!r}")
    if setting.read_by and (wrong := _wrong_range(setting.read_by)):
        errors.append(f"settings: {setting.name}: read_by: {wrong}")
    return errors


def _unread(rules: dict[str, Rule], features: tuple[Feature, ...], settings: tuple[Setting, ...]) -> list[str]:
    """Actions that set what no release reads, a name from a fork: it may be known, and not recommended."""
    read = {setting.name for setting in settings if setting.read_by}
    unread = {setting.name for setting in settings} - read
    actions = [(place, action) for place, rule in rules.items() for action in rule.fix]
    for feature in features:
        for use in (*feature.vllm, *feature.sglang):
            actions += [(f"features.yaml: {feature.id}", action) for action in (*use.enable, *use.avoid)]
    return [
        f"{place}: {action.line!r}: no release reads {action.setting}, so that nobody may be told to set it"
        for place, action in actions
        if action.setting in unread
    ]


def _wrong_numbers(text: str) -> str:
    try:
        number_range(text or ">=0")
    except ValueError as error:
        return str(error)
    return ""


def _wrong_range(text: str) -> str:
    try:
        version_range(text)
    except ValueError as error:
        return str(error)
    return ""


def _repeated(place: str, words: list[str]) -> list[str]:
    return [f"{place}: {word!r} is given {times} times" for word, times in Counter(words).items() if times > 1]
