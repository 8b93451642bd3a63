"""The caches, told: a line for each module that is not as it should be, then the totals and the other folders."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from fi_doctor.model import CACHE_SCHEMA, CacheEntry, Caches, CacheState, Missing
from fi_doctor.reports.text import about, amount, clean, names, wrap

_MIB = 1 << 20
# Of these each module has a line; of the others the number is said.
_TOLD = (CacheState.POISONED, CacheState.STALE, CacheState.LOCKED, CacheState.UNFINISHED, CacheState.UNREAD)


def to_json(caches: Caches) -> str:
    """All of it, as the types have it."""
    return json.dumps(_plain(caches), indent=2, ensure_ascii=True) + "\n"


def to_yaml(caches: Caches) -> str:
    """The same as YAML."""
    return yaml.dump(_plain(caches), Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def schema() -> dict[str, Any]:
    """The JSON Schema of what to_json writes, generated from the types."""
    return {"$id": CACHE_SCHEMA, "title": "fi-doctor cache", **msgspec.json.schema(Caches)}


def verdict(caches: Caches) -> str:
    """The deciding line: "3 of 40 modules are better removed (1.2 GiB)"."""
    bad = [one for one in caches.entries if one.state.is_bad]
    left = [one for one in bad if one.module.path not in caches.removed]
    if caches.removed:
        rest = f", {len(left)} left" if left else ""
        gone = [one for one in bad if one.module.path in caches.removed]
        return f"removed {amount(len(gone), 'module')} ({_size(gone)}){rest}"
    if bad:
        are = "is" if len(bad) == 1 else "are"
        return f"{len(bad)} of {amount(len(caches.entries), 'module')} {are} better removed ({_size(bad)})"
    unread = [one for one in caches.entries if one.state is CacheState.UNREAD]
    seen = [one for one in caches.entries if one.state is not CacheState.UNREAD]
    parts = [amount(len(unread), "module")] if unread else []
    parts += [amount(len(caches.unread), "folder")] if caches.unread else []
    untold = f"{' and '.join(parts)} cannot be looked at; " if parts else ""
    return f"{untold}nothing is wrong with {amount(len(seen), 'module')} ({_size(seen)})"


def render(caches: Caches, *, width: int = 80, whole: bool = False) -> str:
    """For people. whole: a line for each module, also of those that are as they should be."""
    return "\n".join(_lines(caches, width, whole=whole)) + "\n"


def _lines(caches: Caches, width: int, *, whole: bool) -> Iterator[str]:
    yield from wrap(f"{verdict(caches)[0].upper()}{verdict(caches)[1:]} in {clean(caches.base)}", width)
    version = "none" if isinstance(caches.version, Missing) else clean(caches.version, 60)
    builds = "no architecture is known" if isinstance(caches.architectures, Missing) else " ".join(caches.architectures)
    yield from wrap(f"Installed FlashInfer: {version}, builds for: {clean(builds, 200)}", width)
    for path, why in caches.unread.items():
        yield from wrap(f"Cannot be looked at: {clean(path)}: {clean(why)}", width, "", "  ")
    told = [one for one in caches.entries if whole or one.state in _TOLD]
    if told:
        yield ""
    for one in told:
        yield from _entry(one, caches, width)
    yield ""
    counts = Counter(one.state for one in caches.entries if one.module.path not in caches.removed)
    states = ", ".join(f"{counts[state]} {state}" for state in CacheState if counts[state]) or "none"
    yield from wrap(f"Modules: {states}", width)
    yield from _next(caches, width)
    yield from _unused(caches, width)
    for other in caches.others:
        empty = f", {amount(other.empty, 'file')} without content" if other.empty else ""
        if other.damaged:
            path, how = next(iter(other.damaged.items()))
            empty = f", {amount(len(other.damaged), 'file')} not whole, such as {clean(path)} ({how})"
        unread = f"; {clean(other.unread)}" if other.unread else ""
        said = f"{other.name}: {amount(other.files, 'file')}, {_mib(other.bytes)}{_since(other.modified)}{empty}"
        yield from wrap(f"{said}: {clean(other.path)}{unread}", width, "", "  ")
    if caches.command:
        yield ""
        yield from wrap("To remove what is bad, and nothing else (--dry-run says first what that is):", width)
        yield f"  {clean(caches.command)}"
    if caches.next_start:
        yield from wrap(f"What a next start compiles: {clean(caches.next_start)}", width)


def _entry(one: CacheEntry, caches: Caches, width: int) -> Iterator[str]:
    module = one.module
    where = f"{module.version}/{'_'.join(module.architectures)}"
    why = f": {clean(one.why)}" if one.why else ""
    done = "removed, " if module.path in caches.removed else ""
    kept = f"; kept: {clean(caches.kept[module.path])}" if module.path in caches.kept else ""
    name = f"{clean(module.name, 120)} ({clean(where, 80)})"
    next_use = f"; {amount(one.compiles, 'object')}, {about(one.seconds)}" if one.compiles else ""
    size = f"{_mib(module.bytes)}{_since(module.modified)}{next_use}"
    said = f"{name}: {done}{one.state}{why} ({size}){kept}"
    yield from wrap(said, width, "  ", "    ")


def _next(caches: Caches, width: int) -> Iterator[str]:
    """What uses of these modules will compile."""
    open_ones = [one for one in caches.entries if one.compiles]
    if open_ones:
        count, longest = sum(one.compiles for one in open_ones), max(one.seconds for one in open_ones)
        said = f"To be compiled at their next use: {amount(len(open_ones), 'module')}, {amount(count, 'object')}"
        yield from wrap(f"{said}, the longest {about(longest)}, estimated", width)


def _unused(caches: Caches, width: int) -> Iterator[str]:
    """What other versions and architectures left: never removed by --prune."""
    folders: dict[str, list[CacheEntry]] = {}
    for one in caches.entries:
        if one.state is CacheState.UNUSED:
            folders.setdefault(f"{one.module.version}/{'_'.join(one.module.architectures)}", []).append(one)
    told = [f"{clean(folder, 80)} ({amount(len(of), 'module')}, {_size(of)})" for folder, of in folders.items()]
    if told:
        yield from wrap(f"Not used by the installed FlashInfer, and never removed here: {names(told)}", width, "", "  ")


def _size(entries: list[CacheEntry] | tuple[CacheEntry, ...]) -> str:
    return _mib(sum(one.module.bytes for one in entries))


def _mib(size: int) -> str:
    return f"{size / _MIB / 1024:.1f} GiB" if size >= 1024 * _MIB else f"{size / _MIB:.1f} MiB"


def _since(modified: float | Missing) -> str:
    if isinstance(modified, Missing) or not 0 < modified < 1e11:
        return ""
    return f", {dt.datetime.fromtimestamp(modified, dt.timezone.utc):%Y-%m-%d}"


def _plain(caches: Caches) -> object:
    return msgspec.to_builtins(caches, order="deterministic")
