"""What to write in place of a setting: its successor in a version, spelled as a variable or a flag."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from fi_doctor.model import Missing
from fi_doctor.model.given import Stated
from fi_doctor.model.nearness import nearest
from fi_doctor.model.registry import Parse, Registered, Registry, Successor, refuses

_BOOL = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}
_TAKES_ONE_OF = 6  # choices that are listed


def in_its_place(stated: Stated, successors: tuple[Successor, ...], registry: Registry | Missing) -> tuple[str, ...]:
    """A line for each successor that this version has, with the value that stands for the one given."""
    return tuple(line for one in successors if (line := _line(stated, one, registry)))


def taken_out(stated: Stated) -> str:
    """What removes it from where it stands."""
    if stated.file:
        return f"Take {stated.name} out of {stated.place}"
    return f"unset {stated.name}"


def another_value(stated: Stated, setting: Registered) -> tuple[str, ...]:
    """The value that was meant, where that is plain, else those that are taken."""
    if stated.value is None:
        return ()
    word = stated.value.strip().lower()
    number = _BOOL.get(word) if setting.parse is Parse.BOOL_INT else None
    close = next((one for one in setting.choices if one.lower() in (word, word.replace("-", "_"))), number)
    if setting.parse is Parse.FLAG:
        name = setting.name if word not in ("0", "false", "no", "off") else next(iter(setting.negations), "")
        return (f"add to the command line: {name}",) if name else (taken_out(stated),)
    if close is not None:
        return (_written(stated, close),)
    near = nearest(stated.value, setting.choices)
    asked = (f"Is {near} meant?",) if near else ()
    if setting.choices and len(setting.choices) <= _TAKES_ONE_OF:
        return (*asked, f"It takes one of {', '.join(setting.choices)}", taken_out(stated))
    return (*asked, taken_out(stated))


def registered(name: str, registry: Registry) -> Registered | None:
    """The flag of this name, or the key that a dotted one reaches: --attention-config.backend."""
    found = registry.find(name)
    if found is not None or "." not in name:
        return found
    key = key_name(name, registry)
    return registry.settings.get(key) if key else None


def key_name(name: str, registry: Registry) -> str | None:
    """The key that a dotted flag is about, "AttentionConfig.backend", whether or not it is there."""
    base, *parts = name.split(".")
    flag = registry.find(base)
    if flag is None or not parts:
        return None
    owner = _class_of(flag)
    for part in parts[:-1]:
        below = registry.settings.get(f"{owner}.{part}")
        owner = _class_of(below) if below is not None else None
    return f"{owner}.{parts[-1].replace('-', '_')}" if owner else None


def flag_of(key: str, registry: Registry) -> str | None:
    """The flag that sets a key: one of its own, or a dotted one, --compilation-config.pass_config.enable_fusion."""
    flags = [one for one in registry.settings.values() if one.kind == "flag"]
    own = next((one.name for one in flags if one.sets == key), None)
    if own is not None:
        return own
    owner, _, field = key.partition(".")
    for one in flags:
        if _class_of(one) == owner:
            return f"{one.name}.{field}"
    for name, one in registry.settings.items():
        if one.kind == "key" and _class_of(one) == owner and (above := flag_of(name, registry)):
            return f"{above}.{field}"
    return None


def values(one: Successor, value: str) -> tuple[str, ...]:
    """The values of the successor that stand for a value; none where that is not known."""
    found = one.values.get(value) or one.values.get(_BOOL.get(value.strip().lower(), value), ())
    return found or ((value,) if one.same_values else ())


def _line(stated: Stated, one: Successor, registry: Registry | Missing) -> str:
    if not one.setting:
        return f"{one.what[:1].upper()}{one.what[1:]}"
    name = one.setting
    if not name.startswith("-") and "." in name:
        name = (flag_of(name, registry) if not isinstance(registry, Missing) else None) or name
    taken = _taken(one, stated.value, registry) if stated.value is not None else ()
    if not taken:
        return f"{name} stands for it: {one.what}"
    others = f"or {', '.join(taken[1:])}: " if len(taken) > 1 else ""
    how = "add to the command line:" if name.startswith("-") else "export"
    return f"{how} {_assigned(name, taken[0])}  # {others}{one.what}"


def _taken(one: Successor, value: str, registry: Registry | Missing) -> tuple[str, ...]:
    """The values that stand for a value, those that this version refuses left out."""
    setting = None
    if not isinstance(registry, Missing):
        setting = registry.settings.get(one.setting) or registry.find(one.setting)
    return tuple(word for word in values(one, value) if setting is None or not isinstance(refuses(setting, word), str))


def _assigned(name: str, value: str) -> str:
    if not name.startswith("-"):
        return f"{name}={shlex.quote(value)}"
    return f"{name}{'=' if '.' in name else ' '}{shlex.quote(value)}" if value else name


def _written(stated: Stated, value: str) -> str:
    if stated.kind == "env":
        line = f"{stated.name}={shlex.quote(value)}"
        return f"Write {line} in {stated.place}" if stated.file else f"export {line}"
    return f"Write {_assigned(stated.name, value)} in {stated.place}"


def _class_of(one: Registered) -> str | None:
    """The configuration class of a flag or key, by its type: "SpeculativeConfig | None"."""
    words: Iterator[re.Match[str]] = re.finditer(r"[A-Z]\w*", one.type)
    return next((word[0] for word in words if word[0] not in ("None", "Any", "Optional", "Literal")), None)
