"""The settings that an installed package's own source has: how each is turned into a value, and who reads it."""

from __future__ import annotations

import json
import re

from fi_doctor.model.base import Closed, Data, Missing, Strict
from fi_doctor.model.nearness import nearest

# What a setting is when nobody sets it. None: the code sees that it is unset, and chooses by itself.
Value = bool | int | float | str | tuple[str, ...] | None

_LAX = {
    True: ("1", "on", "t", "true", "y", "yes"),
    False: ("0", "off", "f", "false", "n", "no"),
}  # pydantic's words, in any case
_LISTED = "CacheDType"  # any text by its type; config/cache.py:470 (0.33.0) takes its choices and what is registered
_SIZE = re.compile(r"\d+(\.\d+)?[kKmMgGtT]?")


class Parse(Closed):
    """How the source turns the text of a setting into its value."""

    UNKNOWN = "unknown"
    INT = "int"  # int(text)
    FLOAT = "float"
    SIZE = "size"  # an int that may end in k, m, g or t, in either case
    BOOL_INT = "bool-int"  # bool(int(text)): "true" raises
    BOOL_WORDS = "bool-words"  # true where the text, in any case, is one of choices
    BOOL_LAX = "bool-lax"  # pydantic: 1, true, yes, on and their opposites, in any case
    EQUALS = "equals"  # true where the text is one of choices to the letter
    DIFFERS = "differs"  # false where the text is one of choices to the letter
    DIFFERS_ANY_CASE = "differs-any-case"
    TRUTHY = "truthy"  # true for any text but the empty one, "0" too
    IS_SET = "is-set"  # true where it is set, to the empty text too
    CHOICE = "choice"  # one of choices to the letter
    CHOICE_ANY_CASE = "choice-any-case"
    CHOICE_DASHES = "choice-dashes"  # in any case, and with - for _
    CHOICES_LIST = "choices-list"  # some of choices, parted by commas
    LIST = "list"  # any words
    JSON = "json"
    PATH = "path"
    TEXT = "text"
    FLAG = "flag"  # a flag that is followed by nothing


class Registered(Data, frozen=True, omit_defaults=True):
    """One variable, flag or key of a configuration class."""

    name: str  # "VLLM_USE_DEEP_GEMM", "--moe-backend", "AttentionConfig.backend"
    kind: str  # "env", "flag" or "key"
    type: str  # as the source writes it, "int | None"; "" where it says none
    parse: Parse
    # The value without the setting; Missing where it has to be given, or the source computes it.
    default: Value | Missing
    source: str  # "envs.py:887", below the package folder
    choices: tuple[str, ...] = ()
    off: tuple[str, ...] = ()  # of BOOL_WORDS: the words for false; any other then counts as unset. Empty: all others
    aliases: tuple[str, ...] = ()  # of a flag: "-cc"
    sets: str = ""  # of a flag: the key that it sets, "KernelConfig.moe_backend"
    negations: tuple[str, ...] = ()  # "--no-enable-x": what says the opposite
    optional: bool = False  # whether a text stands for "unset": "" and "None" of a flag, null of a key
    several: bool = False  # whether a flag takes several values
    # The expression that makes more of the value than `parse` says, or asks for others too; "" where there is none.
    through: str = ""
    deprecated: str = ""  # what the source says where it is set, "v0.23: Use --moe-backend marlin."
    asks_if_set: bool = False  # whether code asks if it is set at all, so that its default differs from unset
    # The files that read it; empty: it is registered, and nothing reads it. Missing: they were not looked for.
    read_in: tuple[str, ...] | Missing = Missing(reason="what reads it was not looked for")

    @property
    def is_dead(self) -> bool:
        """Whether it is registered and nothing reads it; false where that was not looked for."""
        return self.read_in == ()


class Registry(Data, frozen=True):
    """The settings of one package in one version."""

    owner: str  # distribution, "vllm"
    version: str | Missing
    settings: dict[str, Registered]
    unreadable: dict[str, str] = {}  # a part that could not be read -> why; its settings are not in there
    # The release that stands for the version asked for: the version itself, or the nearest older one that was read.
    release: str = ""

    def find(self, name: str) -> Registered | None:
        """The setting of this name, alias or opposite."""
        if found := self.settings.get(name):
            return found
        others = (one for one in self.settings.values() if one.kind == "flag")
        return next((one for one in others if name in one.aliases or name in one.negations), None)


class Successor(Strict, frozen=True):
    """What is set in place of a setting that vanished, has no effect any more, or never was in a release."""

    name: str
    owner: str
    range: str  # versions of the owner in which this holds, and in which `name` has no effect
    setting: str  # as the registry calls it; "" where nothing stands for it
    what: str
    source: str  # the line that shows it, "vllm/envs.py:1466 (0.23.0)"
    # A value of `name` -> those of `setting` that stand for it, the first one first. "": the flag by itself.
    values: dict[str, tuple[str, ...]] = {}
    same_values: bool = False  # whether any other value stands for itself


def refuses(one: Registered, value: str) -> str | Missing | None:
    """Why the source does not take this text, or None where it does; Missing where its reading is not understood."""
    if one.optional and value in _unset_words(one):
        return None if not one.choices else Missing(reason=f"whether {value!r} stands for unset differs by release")
    if one.several and one.kind == "flag":
        found = [_refuses_one(one, word) for word in value.split()]
        return next((reason for reason in found if reason is not None), None)
    return _refuses_one(one, value)


def means(one: Registered, value: str) -> Value | Missing:  # noqa: C901, PLR0912 - one line for each word
    """The value that this text gives; Missing where it is refused or its reading is not understood."""
    why = refuses(one, value)
    if why is not None:
        return why if isinstance(why, Missing) else Missing(reason=why)
    if one.through:
        return Missing(reason=f"{one.source} makes more of it: {one.through}")
    if one.optional and value in _unset_words(one):
        return None
    if one.several and one.kind == "flag" and len(value.split()) > 1:
        return tuple(value.split())
    match one.parse:
        case Parse.INT:
            return int(value)
        case Parse.FLOAT:
            return float(value)
        case Parse.BOOL_INT:
            return bool(int(value))
        case Parse.BOOL_WORDS:
            return value.lower() in _lower(one.choices)
        case Parse.BOOL_LAX:
            return value.lower() in _LAX[True]
        case Parse.EQUALS:
            return value in one.choices
        case Parse.DIFFERS:
            return value not in one.choices
        case Parse.DIFFERS_ANY_CASE:
            return value.lower() not in _lower(one.choices)
        case Parse.TRUTHY:
            return bool(value)
        case Parse.IS_SET | Parse.FLAG:
            return True
        case Parse.CHOICE_ANY_CASE:
            return next(word for word in one.choices if word.lower() == value.lower())
        case Parse.CHOICE_DASHES:
            return value.lower().replace("-", "_")
        case Parse.CHOICE | Parse.PATH | Parse.TEXT | Parse.JSON:
            return value
        case Parse.CHOICES_LIST | Parse.LIST:
            return tuple(word.strip() for word in value.split(",") if word.strip())
    return Missing(reason=f"how {one.source} reads it is not understood")


def equals_default(one: Registered, value: str) -> bool | None:
    """Whether this text gives what is there without it; None where that is not known."""
    found = means(one, value)
    if isinstance(found, Missing) or isinstance(one.default, Missing):
        return None
    return (type(found), found) == (type(one.default), one.default)


def _refuses_one(one: Registered, value: str) -> str | Missing | None:  # noqa: C901, PLR0912 - one line for each word
    match one.parse:
        case Parse.UNKNOWN:
            return None if value in one.choices else Missing(reason=f"how {one.source} reads it is not understood")
        case Parse.INT | Parse.BOOL_INT:
            return None if _converts(int, value) else _wrong_number(one, value, "int")
        case Parse.FLOAT:
            return None if _converts(float, value) else _wrong_number(one, value, "float")
        case Parse.SIZE if value not in one.choices:
            return (
                None if _SIZE.fullmatch(value) or _converts(int, value) else f"{value!r} is no size, such as 1024 or 2k"
            )
        case Parse.BOOL_WORDS if value != value.strip():
            return Missing(reason=f"whether {one.source} takes blanks away is not told")
        case Parse.BOOL_WORDS if one.off and value.lower() not in _lower((*one.choices, *one.off)):
            return f"{value!r} is none of {', '.join((*one.choices, *one.off))}, and counts as unset"
        case Parse.BOOL_LAX if value.lower() not in (*_LAX[True], *_LAX[False]):
            return f"{value!r} is neither true nor false"
        case Parse.CHOICE if value not in one.choices:
            close = [word for word in one.choices if word.lower() == value.lower()]
            return f"{value!r} is not {close[0]!r}" if close else _none_of(one, value)
        case Parse.CHOICE_ANY_CASE if value.lower() not in _lower(one.choices):
            return _none_of(one, value)
        case Parse.CHOICE_DASHES if value.lower().replace("-", "_") not in one.choices:
            return _none_of(one, value)
        case Parse.TEXT if one.type.startswith(_LISTED) and value not in one.choices:
            return f"{_none_of(one, value)}, and vLLM refuses what no plug-in registers"
        case Parse.CHOICES_LIST:
            wrong = [word for word in (part.strip() for part in value.split(",")) if word and word not in one.choices]
            return _none_of(one, wrong[0]) if wrong else None
        case Parse.JSON:
            return None if _converts(json.loads, value) else f"{value!r} is not JSON"
        case Parse.FLAG if value:
            return f"{one.name} takes no value; {' or '.join(one.negations) or 'nothing'} says the opposite"
    return None


def _unset_words(one: Registered) -> tuple[str, ...]:
    return ("", "None") if one.kind == "flag" else ("null",)


def _converts(kind: type[int | float] | object, value: str) -> bool:
    try:
        kind(value)  # type: ignore[operator] # int, float or json.loads
    except (ValueError, RecursionError):
        return False
    return True


def _wrong_number(one: Registered, value: str, kind: str) -> str:
    hint = ", which takes 0 and 1" if one.parse is Parse.BOOL_INT else ""
    return f"{value!r} is no number: {kind}() raises ValueError{hint}"


def _none_of(one: Registered, value: str) -> str:
    near = nearest(value, one.choices)
    first = [word for word in one.choices if word == near]
    return f"{value!r} is none of {', '.join((*first, *(word for word in one.choices if word != near)))}"


def _lower(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word.lower() for word in words)
