"""`fi-doctor cache`: the caches are read and judged, and what is bad is removed where that is asked for."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import msgspec

from fi_doctor import pruning
from fi_doctor.cli import emit, streams
from fi_doctor.cli.asked import gathering, interpreter
from fi_doctor.cli.consistent import named_python
from fi_doctor.diagnosis import cached
from fi_doctor.errors import CannotTellError, UsageError
from fi_doctor.facts import builds
from fi_doctor.facts.caches import read_modules, read_others
from fi_doctor.facts.sources import unread
from fi_doctor.facts.torch_symbols import TVM_FFI, LibrarySymbols
from fi_doctor.model import (
    CACHE_SCHEMA,
    CacheEntry,
    Caches,
    CacheState,
    Depth,
    Facts,
    Missing,
    Package,
    Request,
    command,
    secrets,
)
from fi_doctor.probing import estimates, memory
from fi_doctor.reports import caching


class AskedCache(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `cache` as they were typed."""

    python: str | None = None
    prunes: bool = False
    is_dry: bool = False
    is_sure: bool = False
    is_whole: bool = False
    is_json: bool = False
    is_yaml: bool = False


def cache(asked: AskedCache) -> int:
    """Look at the caches of the interpreter's FlashInfer, and write what was found."""
    _check(asked)
    found = _read(asked)
    if asked.prunes:
        found = _pruned(found, asked)
    found = secrets.without(found, secrets.held(os.environ))
    if asked.is_json or asked.is_yaml:
        text = caching.to_json(found) if asked.is_json else caching.to_yaml(found)
    else:
        text = caching.render(found, width=emit.style()[0], whole=asked.is_whole)
    emit.write(text, None)
    emit.say(f"fi-doctor: {caching.verdict(found)} (exit {found.code})")
    return found.code


def _check(asked: AskedCache) -> None:
    named_python(asked.python, "cache")
    if asked.is_json and asked.is_yaml:
        raise UsageError("--json and --yaml: one format at a time", todo="fi-doctor cache --json")
    for name, is_given in (("--dry-run", asked.is_dry), ("--yes", asked.is_sure)):
        if is_given and not asked.prunes:
            raise UsageError(f"{name}: nothing is removed without --prune", todo=f"fi-doctor cache --prune {name}")
    streams.check_stdout()


def _read(asked: AskedCache) -> Caches:
    begun = gathering(interpreter(asked.python), calls=unread)
    facts = begun.finish()
    package = facts.flashinfer
    if isinstance(package, Missing):
        todo = "fi-doctor cache --python /path/to/venv/bin/python"
        raise CannotTellError("no FlashInfer, whose cache could be looked at", why=package.reason, todo=todo)
    base = Path(package.cache_base)
    jit = facts.toolkit.jit
    if isinstance(jit, Missing):
        difference: cached.Difference | Missing = jit
    else:
        difference = partial(builds.difference, cuda_home=jit.cuda_home, environ=begun.environ)
    judged = partial(cached.entry, facts=facts, difference=difference)
    closed: dict[str, str] = {}
    entries = _estimated([judged(module) for module in read_modules(base, closed, _tvm_ffi(facts))], facts)
    is_bad = any(one.state.is_bad for one in entries)
    return Caches(
        schema=CACHE_SCHEMA,
        base=str(base),
        version=package.version,
        architectures=package.architectures,
        entries=entries,
        others=read_others(base, begun.environ),
        command=command.line(facts.interpreter, "cache", "--prune") if is_bad else "",
        unread=closed,
        next_start=command.line(facts.interpreter, "warm", "--dry-run"),
        code=_code(entries, closed, is_bad=is_bad),
    )


def _estimated(entries: list[CacheEntry], facts: Facts) -> tuple[CacheEntry, ...]:
    """With what their next use compiles, and how long that takes by what was measured elsewhere."""
    here = memory.here(facts, Request(depth=Depth.STATIC))

    def told(one: CacheEntry) -> CacheEntry:
        count = cached.compiled_next(one)
        seconds = estimates.wall_seconds({one.module.name: count}, here.cpus, here) if count else 0.0
        return msgspec.structs.replace(one, compiles=count, seconds=round(seconds, 1))

    return tuple(map(told, entries))


def _tvm_ffi(facts: Facts) -> LibrarySymbols | None:
    package = facts.packages.get("apache-tvm-ffi")
    if not isinstance(package, Package):
        return None
    return LibrarySymbols(Path(package.location) / "tvm_ffi" / "lib", TVM_FFI)


def _pruned(found: Caches, asked: AskedCache) -> Caches:
    """What is bad is said, then removed where somebody agrees."""
    bad = [one for one in found.entries if one.state.is_bad]
    for one in bad:
        emit.say(f"{'would remove' if asked.is_dry else 'to be removed'}: {one.module.path} ({one.state}: {one.why})")
    if not bad or asked.is_dry or not _agreed(bad, asked):
        return found
    removed, kept = [], {}
    for one in bad:
        why = pruning.remove(one.module, found.base)
        if why:
            kept[one.module.path] = why
            emit.say(f"kept: {one.module.path}: {why}")
        else:
            removed.append(one.module.path)
    code = _code(found.entries, found.unread, is_bad=bool(kept))
    return msgspec.structs.replace(
        found, removed=tuple(removed), kept=kept, command=found.command if kept else "", code=code
    )


def _code(entries: tuple[CacheEntry, ...], closed: dict[str, str], *, is_bad: bool) -> int:
    """3 where nothing that was seen is bad, and not all was seen."""
    if is_bad:
        return 1
    return 3 if closed or any(one.state is CacheState.UNREAD for one in entries) else 0


def _agreed(bad: list[CacheEntry], asked: AskedCache) -> bool:
    if asked.is_sure:
        return True
    if not os.isatty(0):
        todo = "fi-doctor cache --prune --dry-run, then --prune --yes"
        raise UsageError("--prune: stdin is no terminal, and nobody can be asked", todo=todo)
    print(f"Remove {len(bad)} folders? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
