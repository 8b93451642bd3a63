"""What is recommended is read by every release that it is recommended for, and its value is one that it takes."""

from __future__ import annotations

import functools
import shlex

import pytest
from packaging.specifiers import SpecifierSet

from fi_doctor import knowledge
from fi_doctor.knowledge import registry
from fi_doctor.model import ActionKind, Missing
from fi_doctor.model.registry import refuses
from fi_doctor.reports.exports import variables_of

KB = knowledge.load()
OWNERS = ("vllm", "flashinfer-python", "sglang")
SETTINGS = [setting for setting in KB.settings if setting.owner in OWNERS and setting.read_by]


def lines():
    """Every line that sets something, with the server and the range of its releases that it is for; "": any."""
    for rule in KB.rules:
        for action in rule.fix:
            yield rule.id, "vllm", "", action
    for feature in KB.features:
        for action in feature.uncaptured:
            yield feature.id, "vllm", "", action
        for server, uses in (("vllm", feature.vllm), ("sglang", feature.sglang)):
            for use in uses:
                for action in (*use.enable, *use.avoid):
                    yield feature.id, server, use.releases, action


def assignments(action):
    """name -> value, of a line without placeholders; a flag's value is "" where it has none."""
    if "{" in action.line.replace("{{", "").replace("}}", ""):
        return {}
    line = action.line.replace("{{", "{").replace("}}", "}")
    if action.kind is ActionKind.SET:
        return {one.name: one.value for one in variables_of(line) or () if one.value is not None}
    words = shlex.split(line)
    found = {}
    while words and words[0].startswith("-"):
        name, given, value = words.pop(0).partition("=")
        if not given and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name] = value
    return found


def asked():
    seen = set()
    for where, server, wanted, action in lines():
        if action.kind not in (ActionKind.SET, ActionKind.FLAG) or not action.setting:
            continue
        others = {"vllm", "sglang"} - {server}
        owners = [one for one in SETTINGS if one.name == action.setting and one.owner not in others]
        for setting in owners:
            for name, value in assignments(action).items():
                if (setting.owner, name, value, wanted) not in seen:
                    seen.add((setting.owner, name, value, wanted))
                    yield pytest.param(
                        where, wanted, setting, name, value, id=f"{name}={value} {setting.owner} {wanted}"
                    )


ASKED = list(asked())
at = functools.cache(registry.at)  # which keeps only a few releases


def test_there_is_something_to_ask():
    assert len(ASKED) > 40
    assert sum(one.values[2].owner == "sglang" for one in ASKED) >= 10


@pytest.mark.parametrize(("where", "wanted", "setting", "name", "value"), ASKED)
def test_a_recommended_value_is_taken_by_every_release_that_it_is_for(where, wanted, setting, name, value):
    ranges = SpecifierSet(setting.read_by) & SpecifierSet(wanted if setting.owner in ("vllm", "sglang") else "")
    releases = [one for one in registry.releases(setting.owner) if ranges.contains(one, prereleases=True)]
    for release in releases:
        known = at(setting.owner, release)
        one = known.find(name) or known.find(name.partition(".")[0])
        assert one is not None, f"{where}: {setting.owner} {release} has no {name}"
        assert not one.is_dead, f"{where}: nothing in {setting.owner} {release} reads {name}"
        if one.name == name:
            why = refuses(one, value)
            assert why is None or isinstance(why, Missing), f"{where}: {setting.owner} {release}: {name}: {why}"
