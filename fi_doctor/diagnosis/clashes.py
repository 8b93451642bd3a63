"""Settings that say two different things of one key: a variable and a flag, or a manifest and a command line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.diagnosis import mends
from fi_doctor.diagnosis.given import CALLED, CONTRADICT, Source, owner_of, value_of
from fi_doctor.model import Finding, Missing, Severity
from fi_doctor.model.given import Stated
from fi_doctor.model.registry import Parse, Registered, Value, equals_default, means, refuses

_COMPARED = {Parse.INT, Parse.FLOAT, Parse.FLAG, Parse.BOOL_INT, Parse.BOOL_LAX, Parse.BOOL_WORDS, Parse.CHOICE}
_ANY_CASE = {Parse.CHOICE_ANY_CASE, Parse.CHOICE_DASHES}


class _Says(NamedTuple):
    """What a setting makes of a key."""

    stated: Stated
    key: str
    takes: frozenset[Value]  # the values of the key that it stands for
    others: frozenset[Value] | None  # those for which another value of it stands; None: all others


def find(stated: Iterable[Stated], sources: dict[str, Source]) -> tuple[Finding, ...]:
    """A finding for each two settings of one process of which only one can hold."""
    keyed = [(one, source) for stated_one in stated for one, source in _said(stated_one, sources)]
    found: dict[tuple[str, str], Finding] = {}
    for (one, source), (other, _) in itertools.combinations(keyed, 2):
        if one.key == other.key and _are_together(one.stated, other.stated) and _differ(one, other):
            pair = (one.stated.written, other.stated.written)
            found.setdefault(pair, _finding(one, other, source))
    return tuple(found.values())


def _said(stated: Stated, sources: dict[str, Source]) -> Iterator[tuple[_Says, Source]]:
    owner = owner_of(stated.name) if stated.kind == "env" else stated.server or "vllm"
    source = sources.get(owner or "")
    if source is None or isinstance(source.registry, Missing) or stated.value is None:
        return
    setting = mends.registered(stated.name, source.registry)
    if setting is None or setting.is_dead:
        return
    value = _value(setting, stated)
    if value is not None and (stated.kind == "flag" or stated.file):
        yield _Says(stated, setting.sets or setting.name, frozenset({value}), None), source
    if stated.kind == "env":
        yield from ((one, source) for one in _through_successors(stated, source))


def _through_successors(stated: Stated, source: Source) -> Iterator[_Says]:
    """What a variable that is still read says of the keys that take its place in other releases."""
    if isinstance(source.registry, Missing) or stated.value is None:
        return
    own = source.variable(stated.name)
    if own is None or isinstance(refuses(own, stated.value), str):
        return
    for one in source.mapped(stated.name):
        key = mends.registered(one.setting, source.registry) or source.registry.settings.get(one.setting)
        takes = mends.values(one, stated.value)
        if key is None or key.kind == "env" or not takes:
            continue
        others = [word for value, words in one.values.items() if value != stated.value for word in words]
        yield _Says(
            stated,
            key.sets or key.name,
            _read(key, takes),
            None if one.same_values else _read(key, others) - _read(key, takes),
        )


def _differ(one: _Says, other: _Says) -> bool:
    """Whether what the one stands for is certainly not what the other stands for."""
    if not one.takes or not other.takes or one.takes & other.takes:
        return False
    return (one.others is None or other.takes <= one.others) and (other.others is None or one.takes <= other.others)


def _are_together(one: Stated, other: Stated) -> bool:
    """Whether one process has both: of a manifest each container is one, and what is typed is for all of them."""
    if one.file == other.file and one.part == other.part:
        return one.kind == "flag" or other.kind == "flag"
    if one.part and other.part:
        return False
    return "" not in (one.file, other.file) or not (one.part or other.part)


def _value(setting: Registered, stated: Stated) -> Value:
    """What a setting is set to; None where it is not plain, or nothing but the default."""
    if setting.parse is Parse.FLAG and stated.name in setting.negations:
        return False
    text = value_of(setting, stated)
    if text is None or (stated.kind == "flag" and equals_default(setting, text) and text in ("auto", "None", "")):
        return None
    return next(iter(_read(setting, (text,))), None)


def _read(setting: Registered, words: Iterable[str]) -> frozenset[Value]:
    """The values that these words give, in one case where case does not count; those are left out that are unclear."""
    found = set()
    for word in words:
        value = means(setting, word)
        if isinstance(value, Missing) or value is None or setting.parse not in _COMPARED | _ANY_CASE:
            continue
        found.add(value.lower() if isinstance(value, str) and setting.parse in _ANY_CASE else value)
    return frozenset(found)


def _finding(one: _Says, other: _Says, source: Source) -> Finding:
    places = [f"{each.stated.written} ({each.stated.place or 'set here'})" for each in (one, other)]
    return Finding(
        id=CONTRADICT,
        cause="settings-contradict",
        severity=Severity.WARNING,
        title=f"{one.stated.written} and {other.stated.written} contradict each other",
        why=f"Both are about {one.key} of {source.called}, and only one of them can hold: {'; '.join(places)}.",
        fix=(f"Leave one of the two out: {' or '.join(places)}",),
        features=(),
        source=f"{CALLED[source.owner].lower()}/{_place(one, source)} ({source.version})",
    )


def _place(one: _Says, source: Source) -> str:
    setting = None if isinstance(source.registry, Missing) else mends.registered(one.stated.name, source.registry)
    return setting.source if setting is not None else ""
