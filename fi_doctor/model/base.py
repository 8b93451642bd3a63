"""The two kinds of record: what machines write (read tolerantly) and what people write (read strictly)."""

from __future__ import annotations

import enum
import functools

import msgspec


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """A record that machines write and read: a newer minor version may add fields, which are ignored."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record that people write: an unknown key is an error."""


class Missing(Data, frozen=True, omit_defaults=True, tag_field="kind", tag="missing"):
    """A fact that could not be read, with the reason; never an empty string, zero or None."""

    reason: str  # a sentence: "no libnvidia-ml.so.1 on this machine"
    absent: bool = False  # True: it was looked for wherever it could be, and is not there; else it may be


class Closed(str, enum.Enum):
    """A closed set of words; a word that a newer version wrote becomes the set's own unknown."""

    @classmethod
    def _missing_(cls, value: object) -> Closed:
        del value
        return cls.unknown_word()

    @classmethod
    def unknown_word(cls) -> Closed:
        """The member that stands for a word this version does not know: the weakest one."""
        return next(iter(cls))

    def __str__(self) -> str:
        return str(self.value)

    @property
    def rank(self) -> int:
        """Place in the declared order, weakest first."""
        return _rank(self)


# Words of two sets may be spelt alike, and then are equal.
@functools.lru_cache(maxsize=None, typed=True)
def _rank(word: Closed) -> int:
    return list(type(word)).index(word)
