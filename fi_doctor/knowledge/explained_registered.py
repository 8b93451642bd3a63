"""The text behind a variable, flag or key that releases of vLLM, FlashInfer and SGLang register or read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator

from fi_doctor.knowledge import registry
from fi_doctor.knowledge.plain import indented, wrapped
from fi_doctor.knowledge.successors import load
from fi_doctor.model import Missing
from fi_doctor.model.registry import Parse, Registered, Value

_CALLED = {"vllm": "vLLM", "flashinfer-python": "FlashInfer", "sglang": "SGLang"}
_KINDS = {"env": "variable", "flag": "flag", "key": "key of a configuration class"}
_MOST_FILES = 4
_READ_AS = {
    Parse.INT: "a whole number",
    Parse.FLOAT: "a number",
    Parse.SIZE: "a number, which may end in k, m, g or t",
    Parse.BOOL_INT: "0 or 1; a word raises",
    Parse.BOOL_WORDS: "true where it is one of the choices, in any case",
    Parse.BOOL_LAX: "1, true, yes or on and their opposites, in any case",
    Parse.EQUALS: "true where it is one of the choices to the letter",
    Parse.DIFFERS: "false where it is one of the choices to the letter",
    Parse.DIFFERS_ANY_CASE: "false where it is one of the choices, in any case",
    Parse.TRUTHY: "true for any text but the empty one, also for 0",
    Parse.IS_SET: "true where it is set, whatever to",
    Parse.CHOICE: "one of the choices to the letter",
    Parse.CHOICE_ANY_CASE: "one of the choices, in any case",
    Parse.CHOICE_DASHES: "one of the choices, in any case, with - or _",
    Parse.CHOICES_LIST: "some of the choices, parted by commas",
    Parse.LIST: "words",
    Parse.JSON: "JSON",
    Parse.PATH: "a path",
    Parse.TEXT: "any text",
    Parse.FLAG: "nothing follows it",
}


def is_like_one(name: str) -> bool:
    """Whether it is written as settings are; only then is it worth the time to look it up."""
    return name[:1] == "-" or name[:1].isupper()


def texts(name: str) -> list[str]:
    """What each package's releases make of it; nothing where none of them has it, or stands for it."""
    if not is_like_one(name):
        return []
    return [text for owner in _CALLED for text in (_text(name, owner),) if text]


def names() -> tuple[str, ...]:
    """Every name that `texts` knows."""
    known = {name for owner in _CALLED for name in registry.names(owner)}
    return tuple(sorted(known | {one.name for one in load()}))


def _text(name: str, owner: str) -> str:
    spans = registry.spans(name, owner)
    instead = list(_instead(name, owner))
    if not spans and not instead:
        return ""
    if not spans:
        head = f"{name}: no release of {_CALLED[owner]} that was read has it"
        return "\n\n".join([head, *instead]) + "\n"
    history, releases = registry.history(name, owner), registry.releases(owner)
    newest = spans[-1].record
    parts = [wrapped(f"{name} ({_KINDS.get(newest.kind, newest.kind)} of {_CALLED[owner]})")]
    parts.append(wrapped(f"Known to {_CALLED[owner]} {_ranges(history.known, releases)}; {_until(history, releases)}."))
    if history.dead:
        dead = _ranges(history.dead, releases)
        parts.append(wrapped(f"Registered there and not known to be read by anything: {dead}."))
    parts.append(_stretch(spans[-1], [*_told(newest), *_places(newest)]))
    pairs = list(itertools.pairwise(spans))
    parts += [_stretch(old, _differing(old.record, new.record)) for old, new in reversed(pairs)]
    return "\n\n".join([*parts, *instead]) + "\n"


def _until(history: registry.History, releases: tuple[str, ...]) -> str:
    return "the newest that was read has it" if releases[-1] in history.known else f"{releases[-1]} has it no more"


def _stretch(one: registry.Stretch, told: Iterable[str]) -> str:
    where = one.first if one.first == one.last else f"{one.first} to {one.last}"
    return "\n".join([f"In {where}:", *map(indented, told)])


def _told(record: Registered) -> Iterator[str]:
    yield f"type: {record.type or 'none is written'}"
    yield f"default: {_value(record.default)}"
    if record.parse in _READ_AS:
        yield f"takes: {_READ_AS[record.parse]}" + (f", through {record.through}" if record.through else "")
    if record.choices:
        yield f"choices: {', '.join(record.choices)}"
    if record.off:
        yield f"words for false: {', '.join(record.off)}"
    if record.aliases or record.negations:
        yield f"also written: {', '.join((*record.aliases, *record.negations))}"
    if record.sets:
        yield f"sets: {record.sets}"
    if record.asks_if_set:
        yield "asked whether it is set: yes, so that its default is not the same as leaving it out"
    if record.deprecated:
        yield f"deprecated: {record.deprecated}"


def _places(record: Registered) -> Iterator[str]:
    yield f"registered in: {record.source or 'not known'}"
    if not isinstance(record.read_in, Missing) and record.read_in:
        more = len(record.read_in) - _MOST_FILES
        yield f"read in: {', '.join(record.read_in[:_MOST_FILES])}" + (f" and {more} more" if more > 0 else "")


def _differing(old: Registered, new: Registered) -> list[str]:
    """What an older stretch had otherwise than the one after it."""
    without = [word for word in new.choices if word not in old.choices]
    beside = [word for word in old.choices if word not in new.choices]
    later = set(_told(new))
    lines = [line for line in _told(old) if line not in later and not line.startswith("choices: ")]
    lines += [f"choices: without {', '.join(without)}"] if without and old.choices else []
    lines += [f"choices: with {', '.join(beside)}"] if beside else []
    kinds = {line.partition(":")[0] for line in _told(old)}
    lines += [f"{kind}: no" for line in _told(new) if (kind := line.partition(":")[0]) not in kinds]
    return lines or ["as later, but for the order of its choices or how it is read"]


def _instead(name: str, owner: str) -> Iterator[str]:
    """What stands for it, in each range of releases."""
    for one in load():
        if (one.name, one.owner) == (name, owner):
            head = f"In {_CALLED[owner]} {one.range}: {one.setting or 'nothing'} stands for it, since {one.what}."
            values = [
                indented(f"{old} -> {' or '.join(new) or one.setting}")
                for old, new in one.values.items()
                if (old, new) != (new[0], (old,))
            ]
            yield "\n".join([wrapped(head), *values, indented(f"from {one.source}")])


def _value(default: Value | Missing) -> str:
    if isinstance(default, Missing):
        return f"not known ({default.reason})"
    return "none: the code chooses" if default is None else json.dumps(default)


def _ranges(known: tuple[str, ...], releases: tuple[str, ...]) -> str:
    """The releases as runs of those that were read: "0.11.0 to 0.17.1, 0.20.2"."""
    numbers = [releases.index(one) for one in known]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        releases[run[0]] if len(run) == 1 else f"{releases[run[0]]} to {releases[run[-1]]}" for run in runs
    )
