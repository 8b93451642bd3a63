"""The JSON Schema of a policy: generated from the type, with what TOML says shorter than the type does."""

from __future__ import annotations

from typing import Any

import msgspec

from fi_doctor.knowledge.policy_keys import (
    EVIDENCE,
    FAIL_WORDS,
    NO_VERDICT,
    PREFIXES,
    REQUIRE_WORDS,
    ROWS,
    VERSIONED,
)
from fi_doctor.model import Depth, Evidence, PolicyFile, Scope, Verdict
from fi_doctor.model.policy import DURATION, FORMATS, SIZE

POLICY_SCHEMA = "fi-doctor.policy/1.0"
# One bound of a range of versions.
_BOUND = r"(?:~=|===?|!=|<=?|>=?)\s*[^,\s][^,]*"
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
    verdicts = {"contains": {"enum": [verdict.value for verdict in Verdict]}}
    both = {"allOf": [{"contains": {"const": NO_VERDICT}}, verdicts]}
    keys["fail-on"] |= {"items": {"enum": list(FAIL_WORDS)}, "minItems": 1, "not": both}
    keys["rows"]["enum"] = list(ROWS)
    keys["depth"]["enum"] = [depth.value for depth in Depth]
    # Zero is no time and no memory.
    keys["budget"]["pattern"] = f"^(?=.*[1-9]){DURATION}$"
    keys["memory"]["pattern"] = f"^(?:auto|(?=.*[1-9]){SIZE})$"
    keys["format"]["items"]["pattern"] = f"^(?:{'|'.join(FORMATS)})(?::.+)?$"
    names = [*(f"{_any_case(name)}$" for name in VERSIONED), *map(_any_case, PREFIXES)]
    keys["versions"]["propertyNames"] = {"anyOf": [{"enum": list(VERSIONED)}, {"pattern": f"^(?:{'|'.join(names)})"}]}
    keys["versions"]["additionalProperties"]["pattern"] = rf"^\s*{_BOUND}(?:,\s*{_BOUND})*$"
    for name in _ONE_OR_MORE:
        keys[name] = {"anyOf": [keys[name]["items"], keys[name]]}
    keys["require"]["additionalProperties"] = {
        "anyOf": [{"enum": list(REQUIRE_WORDS)}, {"$ref": "#/$defs/RequireTable"}]
    }
    _close(tables["RequireTable"]["properties"])
    tables["RequireTable"]["anyOf"] = [*map(_pair, EVIDENCE), _words(verdict=[""], evidence=["built"])]
    allowance = tables["AllowTable"]["properties"]
    allowance["reason"]["pattern"] = r"\S"
    # TOML has dates, which a reader gives as such or as text: whatever it is, it is nothing else that JSON has.
    others = ["array", "boolean", "null", "number", "object"]
    allowance["expires"] = {"format": "date", "not": {"type": others}}
    verdict = allowance["verdict"]
    words = {"enum": [word.value for word in Verdict]}
    allowance["verdict"] = {"anyOf": [words, {**verdict, "items": words, "minItems": 1}]}
    tables["AllowTable"]["oneOf"] = [{**_names("finding"), "not": {"required": ["verdict"]}}, _names("feature")]
    return {"$id": POLICY_SCHEMA, "title": "fi-doctor policy", **plain}


def _without_null(key: dict[str, Any]) -> dict[str, Any]:
    """A key that may be left out: TOML has no null to say so with."""
    if "anyOf" not in key:
        return key
    [kind] = [one for one in key["anyOf"] if one != {"type": "null"}]
    return dict(kind)


def _any_case(name: str) -> str:
    """What takes a name as packaging compares it: in any case, with -, _ and . alike."""
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else "[-_.]+" if char == "-" else char for char in name)


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
