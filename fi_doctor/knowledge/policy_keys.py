"""The keys of a policy: each is decoded by itself, so that all that is wrong with a file is told at once."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from fi_doctor.conditions.ranges import version_range
from fi_doctor.model import AllowTable, Evidence, PolicyFile, RequireTable, Scope, Severity, Verdict

# What has a version: the packages that are looked for in the examined interpreter, and what is no package.
VERSIONED = (
    "apache-tvm-ffi",
    "cuda-bindings",
    "cuda-python",
    "flashinfer-cubin",
    "flashinfer-python",
    "ninja",
    "nvidia-cudnn-frontend",
    "nvidia-cutlass-dsl",
    "nvidia-ml-py",
    "pynvml",
    "sglang",
    "torch",
    "triton",
    "vllm",
    "cuda",
    "driver",
    "nvcc",
    "python",
)
PREFIXES = ("flashinfer-jit-cache", "nvidia-")
FAIL_ON = (
    *(verdict.value for verdict in Verdict if verdict is not Verdict.WORKS),
    *(severity.value for severity in Severity),
)
ROWS = ("all", "called")  # that fail-on may look at
NO_VERDICT = "none"  # of fail-on: no verdict of a row fails
FAIL_WORDS = (*FAIL_ON, NO_VERDICT)
# The evidence that may be required, what each verdict has at least first: a row that works was run.
EVIDENCE = {Verdict.WORKS: (Evidence.RAN, Evidence.VERIFIED), Verdict.UNSUPPORTED: (Evidence.DECLARED,)}
_REQUIRED = tuple(verdict.value for verdict in EVIDENCE)
_WORKING = tuple(evidence.value for evidence in EVIDENCE[Verdict.WORKS])
_BUILT = Evidence.BUILT.value  # asked for without a verdict: a row that only compiled does not work
REQUIRE_WORDS = (*_REQUIRED, _BUILT, *_WORKING)  # a verdict, or the least evidence
_Table = TypeVar("_Table", RequireTable, AllowTable)


def decode(table: dict[str, Any], errors: list[str]) -> PolicyFile:
    """The record; each key is decoded by itself so that all errors are told, and what is wrong is left out."""
    decoders: dict[str, Callable[[Any, str, list[str]], Any]] = {
        "require": _require,
        "versions": _versions,
        "fail-on": _fail_on,
        "rows": _rows,
        "feature": _words,
        "format": _words,
        "allow": _allow,
    }
    fields = {field.encode_name: field for field in msgspec.structs.fields(PolicyFile)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            errors.append(f"{quoted(key)}: no such key{nearest(key, fields)}")
            continue
        read = decoders.get(key, _plain(fields[key].type))
        before = len(errors)
        found = read(value, key, errors)
        if len(errors) == before or key in ("require", "allow"):
            values[fields[key].name] = found
    return PolicyFile(**values)


def quoted(key: str) -> str:
    """A key as TOML writes it in a path."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'


def nearest(word: str, words: Iterable[str]) -> str:
    """The end of a message that names the word which is meant, "" where none is near."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.5)
    return f"; the nearest is {near[0]}" if near else ""


def _plain(kind: Any) -> Callable[[Any, str, list[str]], Any]:
    def read(value: Any, place: str, errors: list[str]) -> Any:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            errors.append(_told(place, error))
            return None

    return read


def _words(value: Any, place: str, errors: list[str]) -> tuple[str, ...]:
    """One word, or a list of them."""
    words: tuple[str, ...] | None = _plain(tuple[str, ...])([value] if isinstance(value, str) else value, place, errors)
    return words or ()


def _fail_on(value: Any, place: str, errors: list[str]) -> tuple[str, ...]:
    words = _words(value, place, errors)
    errors += [
        f"{place}[{at}]: {word!r} is no verdict that fails and no severity{nearest(word, FAIL_WORDS)}"
        for at, word in enumerate(words)
        if word not in FAIL_WORDS
    ]
    if value == []:
        errors.append(f'{place}: it is empty; with "{NO_VERDICT}" no verdict of a row fails')
    elif wrong := contradiction(words):
        errors.append(f"{place}: {wrong}")
    return words


def _rows(value: Any, place: str, errors: list[str]) -> str | None:
    word: str | None = _plain(str)(value, place, errors)
    if word is not None and word not in ROWS:
        errors.append(f"{place}: {_not_one(word, ROWS)}")
    return word


def contradiction(words: Iterable[str]) -> str:
    """What is wrong with words of fail-on that are each right, "" where nothing is."""
    asked = set(words)
    verdicts = [verdict.value for verdict in Verdict if verdict.value in asked]
    if NO_VERDICT not in asked or not verdicts:
        return ""
    return f'"{NO_VERDICT}" lets no verdict fail, and "{verdicts[0]}" is one'


def _versions(value: Any, place: str, errors: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, wanted in _items(value, place, errors):
        where = f"{place}.{quoted(name)}"
        if not isinstance(wanted, str):
            errors.append(f'{where}: expected a range such as ">=0.6,<0.8", got {type(wanted).__name__}')
        elif name not in VERSIONED and not name.startswith(PREFIXES):
            # The distribution of FlashInfer is not called like what is imported.
            meant = f"{name}-python" if f"{name}-python" in VERSIONED else name
            errors.append(f"{where}: no version of that is read{nearest(meant, VERSIONED)}")
        else:
            try:
                version_range(wanted)
                found[name] = wanted
            except ValueError as error:
                errors.append(f"{where}: {error}")
    return found


def _require(value: Any, place: str, errors: list[str]) -> dict[str, RequireTable]:
    found: dict[str, RequireTable] = {}
    for glob, wanted in _items(value, place, errors):
        where = f"{place}.{quoted(glob)}"
        if isinstance(wanted, str):
            table = by_word(wanted) if wanted in REQUIRE_WORDS else None
            errors += [] if table else [f"{where}: {_not_one(wanted, REQUIRE_WORDS)}"]
        else:
            table = _record(RequireTable, wanted, where, errors)
            if table is not None:
                _check_required(table, where, errors)
        found[glob] = table or RequireTable()
    return found


def by_word(word: str) -> RequireTable:
    """What one of REQUIRE_WORDS asks for."""
    return RequireTable(verdict=word) if word in _REQUIRED else RequireTable(evidence=word)


def _check_required(table: RequireTable, place: str, errors: list[str]) -> None:
    if table.verdict and table.verdict not in _REQUIRED:
        errors.append(f"{place}.verdict: {_not_one(table.verdict, _REQUIRED)}")
        return
    evidence = [_BUILT, *_WORKING]
    if table.verdict:
        evidence = [one.value for one in EVIDENCE[Verdict(table.verdict)]]
    if table.evidence and table.evidence not in evidence:
        errors.append(f"{place}.evidence: {_not_one(table.evidence, evidence)}")
    scopes = [scope.value for scope in Scope]
    if table.scope and table.scope not in scopes:
        errors.append(f"{place}.scope: {_not_one(table.scope, scopes)}")


def _allow(value: Any, place: str, errors: list[str]) -> tuple[AllowTable, ...]:
    if not isinstance(value, list):
        errors.append(f"{place}: expected an array of tables, got {type(value).__name__}")
        return ()
    return tuple(_allowed(item, f"{place}[{at}]", errors) for at, item in enumerate(value))


def _allowed(value: Any, place: str, errors: list[str]) -> AllowTable:
    """One of them; where it is wrong what it names all the same, so that names are looked at too."""
    one = _record(AllowTable, value, place, errors)
    named: dict[str, Any] = {key: word for key in ("finding", "feature") if (word := _word_at(value, key))}
    if len(named) != 1:
        errors.append(f"{place}: a finding or a feature, one of the two")
    if one is not None and not one.reason.strip():
        errors.append(f"{place}.reason: it is empty")
    if one is not None:
        errors += [f"{place}.verdict: {wrong}" for wrong in _wrong_verdicts(value, one)]
    return one or AllowTable(reason="", expires=dt.date.min, **named)


def _wrong_verdicts(value: dict[str, Any], one: AllowTable) -> list[str]:
    words = [verdict.value for verdict in Verdict]
    wrong = [_not_one(word, words) for word in one.verdict if word not in words]
    if value.get("verdict") == []:
        wrong.append("it is empty")
    return [*wrong, "a finding has none"] if one.verdict and one.finding else wrong


def _word_at(value: Any, key: str) -> str:
    word = value.get(key) if isinstance(value, dict) else None
    return word if isinstance(word, str) else ""


def _record(kind: type[_Table], value: Any, place: str, errors: list[str]) -> _Table | None:
    """A table, each of its keys decoded by itself."""
    if not isinstance(value, dict):
        errors.append(f"{place}: expected a table, got {type(value).__name__}")
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    wrong = [f"{place}.{quoted(key)}: no such key{nearest(key, fields)}" for key in value if key not in fields]
    wrong += [f"{place}.{name}: missing" for name, field in fields.items() if field.required and name not in value]
    values: dict[str, Any] = {
        key: (_words if fields[key].type == tuple[str, ...] else _plain(fields[key].type))(
            item, f"{place}.{key}", wrong
        )
        for key, item in value.items()
        if key in fields
    }
    errors += wrong
    return None if wrong else kind(**values)


def _items(value: Any, place: str, errors: list[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    errors.append(f"{place}: expected a table, got {type(value).__name__}")
    return iter(())


def _not_one(word: str, words: Iterable[str]) -> str:
    return f"{word!r} is not one of {', '.join(words)}{nearest(word, words)}"


def _told(place: str, error: msgspec.ValidationError) -> str:
    """`Expected `str`, got `int` - at `$[0]`` as `format[0]: expected str, got int`."""
    what, _, where = str(error).replace("`", "").replace(" | null", "").partition(" - at $")
    return f"{place}{where}: {what[0].lower()}{what[1:]}"
