"""Which settings a remedy names, and what is left of it for the engines and the releases of a log."""

from __future__ import annotations

import re

from fi_doctor.conditions import Truth
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.knowledge import registry
from fi_doctor.model import Setting
from fi_doctor.model.registry import Registry

ENGINES = frozenset(("vllm", "sglang"))  # whose flags and variables remedies name
_OURS = "flashinfer-python"
_OWNERS = {
    "VLLM": "vllm",
    "SGLANG": "sglang",
    "SGL": "sglang",
    "FLASHINFER": _OURS,
}  # of variables, by their first word
_NAME = rf"(?:(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]|\b(?:{'|'.join(_OWNERS)})_[A-Z0-9_]*[A-Z0-9](?!\w))"
_NAMED = re.compile(_NAME)
# Flags that tools and parts of the engines take which the settings of releases do not cover.
_SHARED = frozenset(("--device", "--port", "--chat-template", "--tool-call-parser"))
# Settings in a row, each with its values if any: those that are not read are left out of it.
_VALUE = r"(?:[A-Z][A-Z0-9_]{3,}|auto|marlin|triton|cutlass|fp8|smaller|larger|\d+(?:\.\d+)?)(?![\w.-])"
_ITEM = rf"{_NAME}(?:[ =]{_VALUE}(?:,? or {_VALUE})*)?"
_JOINED = r"(?:, (?:and |or )?| and | or )"
_ROW = re.compile(rf"{_ITEM}(?:{_JOINED}{_ITEM})+")
_JOIN = re.compile(rf"({_JOINED})(?={_NAME})")
# The flag of newer vLLM, and the variable of releases before it, which takes the same names.
_FLAG, _VARIABLE = "--attention-backend", "VLLM_ATTENTION_BACKEND"


def left(line: str, view: LogView, settings: tuple[Setting, ...]) -> str:
    """A remedy without what the engines of a log do not read; "" where nothing is left. Unknown: the whole line."""
    if not {fact.value for fact in view.facts.of("engine")} & ENGINES:
        return line
    unread = _unread(line, view, settings)
    if _FLAG in unread and _VARIABLE not in line and not _unread(_VARIABLE, view, settings):
        line = _older(line)
        unread = _unread(line, view, settings)
    if unread:
        line = _ROW.sub(lambda row: _shorter(row[0], unread), line)
    return "" if any(name in unread for name in _NAMED.findall(line)) else line


def _unread(line: str, view: LogView, settings: tuple[Setting, ...]) -> frozenset[str]:
    return frozenset(name for name in _NAMED.findall(line) if not _is_read(name, view, settings))


def _is_read(name: str, view: LogView, settings: tuple[Setting, ...]) -> bool:
    """Whether one of those in a log may read a setting; so it is for flags that none of the engines ever had."""
    if name in _SHARED:
        return True
    engines = {fact.value for fact in view.facts.of("engine")} & ENGINES
    if not name.startswith("--"):
        owner = _OWNERS[name.partition("_")[0]]
        if name not in registry.names(owner):
            return owner == _OURS  # names of backends begin so, too
        return owner not in ENGINES - engines and _reads(owner, name, view, settings)
    readers = [engine for engine in engines if name in registry.names(engine)]
    if not readers:
        return not any(name in registry.names(engine) for engine in ENGINES - engines)
    return any(_reads(engine, name, view, settings) for engine in readers)


def _reads(owner: str, name: str, view: LogView, settings: tuple[Setting, ...]) -> bool:
    """Whether the release in a log has a setting: as the settings of releases say, for others as the ranges do."""
    told = view.facts.of("package", owner)
    release = registry.at(owner, told[0].value) if told else None
    if isinstance(release, Registry):
        return release.find(name) is not None
    ranges = [one.read_by for one in settings if one.owner == owner and one.name == name and one.read_by]
    return not ranges or any(LOG.holds({"package": {owner: one}}, view) is not Truth.NO for one in ranges)


def _older(line: str) -> str:
    """The line with the variable of older vLLM in the place of the flag."""
    if line.startswith(f"{_FLAG} auto"):
        return f"unset {_VARIABLE}"
    alone = re.fullmatch(rf"{_FLAG} ([A-Z_]+)", line)
    said = re.sub(rf"{_FLAG} (?=[A-Z_]{{3}})", f"{_VARIABLE}=", line).replace(_FLAG, _VARIABLE)
    return f"export {said}" if alone else said


def _shorter(row: str, unread: frozenset[str]) -> str:
    """Settings in a row without those that are not read; the row as it is where that is all of them."""
    parts = _JOIN.split(row)
    kept = [at for at in range(0, len(parts), 2) if not any(name in unread for name in _NAMED.findall(parts[at]))]
    if not kept:
        return row
    said = parts[kept[0]]
    for at in kept[1:]:
        said += (parts[-2] if at == kept[-1] else parts[at - 1]) + parts[at]
    return said
