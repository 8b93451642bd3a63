"""Which of the facts that differ make a rule hold in one report and not in the other: found by swapping them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from fi_doctor import conditions
from fi_doctor.conditions import Truth, View
from fi_doctor.model import Condition, Facts, Missing

# Where a fact stands: the names of fields and the keys of tables, from the top.
Place = tuple[str, ...]
_GONE = object()  # a key that a table does not have


class Swap(NamedTuple):
    """One difference, and each side's facts with the other side's value in that place."""

    place: Place
    before: Facts
    after: Facts


def swaps(before: Facts, after: Facts) -> tuple[Swap, ...]:
    """One for each place where the facts differ, as deep as both have the same fields."""
    places = sorted(place for place in _places(before, after) if place[0] != "sources")
    return tuple(Swap(place, _taken(before, after, place), _taken(after, before, place)) for place in places)


def decisive(when: Condition, before: View, after: View, found: Iterable[Swap]) -> tuple[Place, ...]:
    """The places that turn a part of the condition, each alone, seen from the one side or from the other.

    What turns it from here only with another turns it alone from there: of two nvccs and two torches that differ by
    major on one side, each alone makes the other side differ too.
    """
    views = (before, after)
    parts = [part for part in conditions.parts(when) if "outcome" not in part]
    both = [(part, (conditions.holds(part, before), conditions.holds(part, after))) for part in parts]
    turned = [(part, held) for part, held in both if held[0] is not held[1]]
    return tuple(swap.place for swap in found if any(_turns(part, held, views, swap) for part, held in turned))


def value_at(facts: Facts, place: Place) -> Any:
    """What stands there; None where a table has no such key."""
    value: Any = facts
    for name in place:
        value = value.get(name) if isinstance(value, dict) else getattr(value, name)
    return value


def _turns(part: Condition, held: tuple[Truth, Truth], views: tuple[View, View], swap: Swap) -> bool:
    """held: what it is on either side as it stands."""
    sides = zip(views, held, (swap.before, swap.after), strict=True)
    return any(conditions.holds(part, view._replace(facts=facts)) is not was for view, was, facts in sides)


def _places(old: Any, new: Any, place: Place = ()) -> Iterator[Place]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {*old, *new}:
            yield from _places(old.get(key, _GONE), new.get(key, _GONE), (*place, key))
    elif isinstance(old, msgspec.Struct) and type(old) is type(new) and not isinstance(old, Missing):
        for name in old.__struct_fields__:
            yield from _places(getattr(old, name), getattr(new, name), (*place, name))
    else:
        yield place


def _taken(one: Any, other: Any, place: Place) -> Any:
    """`one` with what `other` has in that place."""
    if not place:
        return other
    name, *rest = place
    if not isinstance(one, dict):
        return msgspec.structs.replace(one, **{name: _taken(getattr(one, name), getattr(other, name), tuple(rest))})
    if name not in other:
        return {key: value for key, value in one.items() if key != name}
    return {**one, name: _taken(one.get(name), other[name], tuple(rest))}
