"""The settings of releases, read from their wheels beforehand: for where nothing is installed, and for comparing."""

from __future__ import annotations

import functools
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.model import Data, Missing
from fi_doctor.model.registry import Registered, Registry

_Kind = TypeVar("_Kind", bound=Data)

FOLDER = Path(__file__).with_suffix("")  # the folder beside this file
ENDING = ".json.xz"
MOST_READERS = 8  # of the files that read a setting this many are shipped


class Span(Data, frozen=True):
    """The releases, by their numbers from first to last, in which a setting is the same."""

    first: int
    last: int
    record: Registered  # without its place and its readers


class Place(Data, frozen=True, array_like=True):
    """The file in which a setting is registered, and its line in each release from first to last."""

    first: int
    last: int
    file: int
    lines: tuple[int, ...]


class Readers(Data, frozen=True, array_like=True):
    """The files that read a setting in the releases from first to last."""

    first: int
    last: int
    files: tuple[int, ...]


class Known(Data, frozen=True):
    """One setting over all releases."""

    spans: tuple[Span, ...]
    places: tuple[Place, ...]
    readers: tuple[Readers, ...]  # none for a release in which they were not looked for


class Shipped(Data, frozen=True):
    """What is shipped of one package."""

    owner: str
    releases: tuple[str, ...]  # the oldest first
    files: tuple[str, ...]
    settings: dict[str, Known]


class _Record(Data, frozen=True):
    name: str
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()


class _Span(Data, frozen=True):
    record: _Record


class _Known(Data, frozen=True):
    spans: tuple[_Span, ...]


class _Names(Data, frozen=True):
    """Of `Shipped` the names alone, which takes a quarter of the time."""

    settings: dict[str, _Known]


class Stretch(Data, frozen=True):
    """Releases, first to last, in which a setting is the same; its place and readers are those of the last."""

    first: str
    last: str
    record: Registered


class History(Data, frozen=True):
    """The releases that know a setting, and those whose files read it."""

    known: tuple[str, ...]
    read: tuple[str, ...]

    @property
    def dead(self) -> tuple[str, ...]:
        """The releases that register it, and do not read it."""
        return tuple(release for release in self.known if release not in self.read)


def releases(owner: str) -> tuple[str, ...]:
    """The releases of a package that were read, the oldest first; none for a package that is not shipped."""
    found = _shipped(owner)
    return found.releases if found else ()


@functools.lru_cache(maxsize=8)
def at(owner: str, version: str) -> Registry | Missing:
    """The settings of a release; those of the nearest older one that was read, which `release` then names.

    Missing for a version older than all that were read, or newer, and for what is no version.
    """
    found = _shipped(owner)
    if found is None:
        return Missing(reason=f"nothing is shipped of the settings of {owner}")
    asked = parse_version(version)
    if asked is None:
        return Missing(reason=f"{version!r} is no version")
    number = _nearest(found.releases, asked)
    if number is None:
        first, last = found.releases[0], found.releases[-1]
        return Missing(reason=f"the settings of {owner} {version} are not known; those of {first} to {last} are")
    settings = dict(_settings(found, number))
    return Registry(owner=owner, version=version, settings=settings, release=found.releases[number])


def history(name: str, owner: str = "vllm") -> History:
    """The releases that know a setting, by its name or the short form or opposite of a flag, and those that read it."""
    found = _shipped(owner)
    if found is None:
        return History(known=(), read=())
    names = {one for one in found.settings if one == name} or set(_named_otherwise(found, name))
    spans = [span for one in names for span in found.settings[one].spans if name in (one, *_words(span.record))]
    known = {number for span in spans for number in range(span.first, span.last + 1)}
    read = {
        number
        for one in names
        for reader in found.settings[one].readers
        for number in range(reader.first, reader.last + 1)
        if reader.files
    }
    told = [found.releases[number] for number in sorted(known)]
    return History(known=tuple(told), read=tuple(one for one in told if found.releases.index(one) in read))


@functools.cache
def names(owner: str) -> tuple[str, ...]:
    """Every setting that a release of a package had, with the short forms and opposites of flags."""
    found = _read(owner, _Names)
    settings = found.settings if found else {}
    records = [span.record for one in settings.values() for span in one.spans]
    others = (word for record in records for word in (*record.aliases, *record.negations))
    return tuple(dict.fromkeys((*settings, *others)))


def spans(name: str, owner: str) -> tuple[Stretch, ...]:
    """What a setting, by any of its names, was in the releases that had it, the oldest first."""
    found = _shipped(owner)
    if found is None:
        return ()
    words = [name] if name in found.settings else dict.fromkeys(_named_otherwise(found, name))
    told = [
        (span, word)
        for word in words
        for span in found.settings[word].spans
        if name in (word, *_words(span.record))  # a key that a class inherits has the name of its origin
    ]
    return tuple(
        Stretch(first=found.releases[span.first], last=found.releases[span.last], record=_whole(found, word, span))
        for span, word in sorted(told, key=lambda one: one[0].first)
    )


def _whole(found: Shipped, word: str, span: Span) -> Registered:
    one = found.settings[word]
    return replace(span.record, source=_place(found, one, span.last), read_in=_readers(found, one, span.last))


def _nearest(known: tuple[str, ...], asked: Version) -> int | None:
    asked = Version(asked.public)
    versions = [Version(one) for one in known]
    # A build of the next release, 0.34.0.dev1, is no longer the newest one.
    if asked > versions[-1]:
        return None
    return max((number for number, one in enumerate(versions) if one <= asked), default=None)


def _settings(found: Shipped, number: int) -> Iterator[tuple[str, Registered]]:
    for name, one in found.settings.items():
        span = next((span for span in one.spans if span.first <= number <= span.last), None)
        if span is not None:
            yield name, replace(span.record, source=_place(found, one, number), read_in=_readers(found, one, number))


def _place(found: Shipped, one: Known, number: int) -> str:
    place = next((place for place in one.places if place.first <= number <= place.last), None)
    return f"{found.files[place.file]}:{place.lines[number - place.first]}" if place else ""


def _readers(found: Shipped, one: Known, number: int) -> tuple[str, ...] | Missing:
    for reader in one.readers:
        if reader.first <= number <= reader.last:
            return tuple(found.files[file] for file in reader.files)
    return Missing(reason="what reads it was not looked for")


def _named_otherwise(found: Shipped, name: str) -> Iterator[str]:
    for word, one in found.settings.items():
        if any(name in (*span.record.aliases, *span.record.negations) for span in one.spans):
            yield word


def _words(record: Registered) -> tuple[str, ...]:
    return (record.name, *record.aliases, *record.negations)


@functools.cache
def _shipped(owner: str) -> Shipped | None:
    return _read(owner, Shipped)


def _read(owner: str, kind: type[_Kind]) -> _Kind | None:
    path = FOLDER / f"{owner}{ENDING}"
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=kind)
    except (OSError, EOFError, lzma.LZMAError, msgspec.MsgspecError) as error:
        raise BrokenDoctorError(f"{path} cannot be used", why=str(error), todo="install fi-doctor anew") from error
