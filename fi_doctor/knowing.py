"""Knowledge and probes, as they are installed or as they are remembered."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fi_doctor import knowledge
from fi_doctor.facts.remembered import quick_key, remembered, scan
from fi_doctor.model import Data, KnowledgeBase, ProbeSpec
from fi_doctor.probing import catalog

_KNOWN = "known.json"


class _Known(Data, frozen=True):
    """What is known, as it is kept between two commands."""

    kb: KnowledgeBase
    specs: tuple[ProbeSpec, ...]


def load(folder: Path | None, place: Path | None = None) -> tuple[KnowledgeBase, tuple[ProbeSpec, ...]]:
    """Both, from the memory in `folder` while no file of fi-doctor and no probe may have changed.

    place: a folder or a bundle of knowledge to be taken for that which ships; it is read each time.
    Errors: DataError where that cannot be used.
    """
    if place is not None:
        from fi_doctor.knowledge import bundles  # noqa: PLC0415 - hardly ever needed

        with bundles.opened(place) as other:
            return other.kb, catalog.discover()
    if folder is None:
        return knowledge.load(), catalog.discover()
    key = ""
    with contextlib.suppress(OSError):
        own = Path(__file__).parent
        places = (own, *catalog.folders())
        key = quick_key(found for place in places for found in scan(place))
        key = key and " ".join((key, *map(str, places)))
    found = remembered(folder / _KNOWN, key, _Known, lambda: _Known(kb=knowledge.load(), specs=catalog.discover()))
    return found.kb, found.specs
