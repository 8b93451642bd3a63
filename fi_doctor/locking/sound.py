"""Whether a lock agrees with itself: what no fi-doctor has written down is not believed. Pure."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from fi_doctor.locking.model import Lock, LockedRow, key_of
from fi_doctor.model import Ending, Outcome

_Name = TypeVar("_Name", bound=Hashable)
_A_DAY = dt.timedelta(days=1)  # as much as clocks may differ


def faults(lock: Lock, today: dt.date | None = None) -> list[str]:
    """What contradicts itself or cannot be, in words. today: a measurement cannot be of a later day."""
    found = [f"it has two rows {name}" for name in _twice(row.key for row in lock.rows)]
    found += [f"the group {name} is empty" for name, names in lock.groups.items() if not names]
    found += [f'"loads" has nothing under {name}' for name, words in lock.loads.items() if not words]
    for name in lock.loads:
        group = f"loads:{name.partition(':')[0]}"
        if f"loads:{name}" not in lock.groups.get(group, ()):
            found.append(f"the group {group} does not name loads:{name}")
    for row in lock.rows:
        found += (f"row {row.key}: {said}" for said in _of_row(row, today))
    each = ((one.feature, one.probe, key_of(one.feature, one.sm).sm) for one in lock.outcomes)
    found += [f"it has two outcomes of {probe}" for _, probe, _ in _twice(each)]
    for one in lock.outcomes:
        found += (f"outcome of {one.probe}: {said}" for said in _of_outcome(one))
    return found


def _twice(names: Iterable[_Name]) -> list[_Name]:
    return [name for name, number in Counter(names).items() if number > 1]


def _of_row(row: LockedRow, today: dt.date | None) -> Iterator[str]:
    if not row.inputs:
        yield "it rests on nothing"
    day = _day(row.measured)
    if day is None:
        yield f'it was measured on "{row.measured:.40}", which is no day'
    elif today is not None and day > today + _A_DAY:
        yield f"it was measured on {day}, which is in the future"


def _day(text: str) -> dt.date | None:
    """The day of a time or of a day, as ISO 8601 writes them."""
    try:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00")).date()
    except ValueError:
        return None


def _of_outcome(outcome: Outcome) -> Iterator[str]:
    """An outcome is made of its cells: it ends as one of them, and well only where none ended badly."""
    if not outcome.cells:
        yield "it has no cells"
        return
    yield from (f"it has two cells {name!r}" for name in _twice(cell.variant for cell in outcome.cells))
    endings = {cell.ending for cell in outcome.cells}
    if any(ending.is_bad for ending in endings):
        endings -= {Ending.RETURNED}
    if outcome.ending not in endings:
        yield f"it says {outcome.ending}, its cells {', '.join(sorted(endings))}"
    stages = {cell.stage for cell in outcome.cells}
    if outcome.stage not in stages:
        yield f"it says {outcome.stage}, its cells {', '.join(sorted(stages))}"
