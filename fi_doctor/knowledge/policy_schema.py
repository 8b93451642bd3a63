"""The JSON Schema of a policy: generated from the type, with what TOML says shorter than the type does."""

from __future__ import annotations

from typing import Any

import msgspec

from fi_doctor.knowledge.policy_keys import EVIDENCE, FAIL_WORDS, REQUIRE_WORDS, ROWS
from fi_doctor.model import Evidence, PolicyFile, Scope, Verdict

POLICY_SCHEMA = "fi-doctor.policy/1.0"
# Where one word may stand for a list of one.
_ONE_OR_MORE = ("fail-on", "feature", "format")


def schema() -> dict[str, Any]:
    """The JSON Schema of fi-doctor.toml, and of [tool.fi-doctor] in pyproject.toml; a date is its ISO text.

    What it cannot say is checked when the policy is read: that names exist, that ranges and durations are some.
    """
    plain = msgspec.json.schema(PolicyFile)
    tables = plain["$defs"]
    keys = tables["PolicyFile"]["properties"]
    for name, key in keys.items():
        keys[name] = _without_null(key)
    keys["fail-on"] |= {"items": {"enum": list(FAIL_WORDS)}, "minItems": 1}
    keys["rows"]["enum"] = list(ROWS)
    for name in _ONE_OR_MORE:
        keys[name] = {"anyOf": [keys[name]["items"], keys[name]]}
    keys["require"]["additionalProperties"] = {
        "anyOf": [{"enum": list(REQUIRE_WORDS)}, {"$ref": "#/$defs/RequireTable"}]
    }
    _close(tables["RequireTable"]["properties"])
    tables["RequireTable"]["anyOf"] = [*map(_pair, EVIDENCE), _words(verdict=[""], evidence=["built"])]
    verdict = tables["AllowTable"]["properties"]["verdict"]
    words = {"enum": [word.value for word in Verdict]}
    tables["AllowTable"]["properties"]["verdict"] = {"anyOf": [words, {**verdict, "items": words, "minItems": 1}]}
    tables["AllowTable"]["oneOf"] = [{**_names("finding"), "not": {"required": ["verdict"]}}, _names("feature")]
    return {"$id": POLICY_SCHEMA, "title": "fi-doctor policy", **plain}


def _without_null(key: dict[str, Any]) -> dict[str, Any]:
    """A key that may be left out: TOML has no null to say so with."""
    if "anyOf" not in key:
        return key
    [kind] = [one for one in key["anyOf"] if one != {"type": "null"}]
    return dict(kind)


def _close(required: dict[str, Any]) -> None:
    """The words of a required row's table; "" asks for what goes with the others."""
    evidence = {Evidence.BUILT, *(word for words in EVIDENCE.values() for word in words)}
    required["verdict"]["enum"] = ["", *(verdict.value for verdict in EVIDENCE)]
    required["evidence"]["enum"] = ["", *(word.value for word in Evidence if word in evidence)]
    required["scope"]["enum"] = ["", *(scope.value for scope in Scope)]


def _pair(verdict: Verdict) -> dict[str, Any]:
    """A verdict with the evidence that it has; it may be left out where it is the one that is then meant."""
    evidence = ["", *(word.value for word in EVIDENCE[verdict])]
    if verdict is Verdict.WORKS:
        return _words(verdict=["", verdict.value], evidence=evidence)
    return {"required": ["verdict"], **_words(verdict=[verdict.value], evidence=evidence)}


def _words(**words: list[str]) -> dict[str, Any]:
    return {"properties": {key: {"enum": values} for key, values in words.items()}}


def _names(key: str) -> dict[str, Any]:
    return {"required": [key], "properties": {key: {"minLength": 1}}}
