"""The keys of a policy: each is decoded by itself, so that all that is wrong with a file is told at once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fi_doctor.conditions.ranges import parse_version, version_range
from fi_doctor.knowledge.policy_values import items, nearest, not_one, plain, quoted, record, words
from fi_doctor.model import AllowTable, Evidence, PolicyFile, RequireTable, Scope, Severity, Verdict
from fi_doctor.model.policy import DRIFT

# What has a version: the packages that are looked for in the examined interpreter, and what is no package.
VERSIONED = (
    "apache-tvm-ffi",
    "cuda-bindings",
    "cuda-python",
    "cuda-tile",
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
    DRIFT,
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


def decode(table: dict[str, Any], errors: list[str]) -> PolicyFile:
    """The record; each key is decoded by itself so that all errors are told, and what is wrong is left out."""
    decoders: dict[str, Callable[[Any, str, list[str]], Any]] = {
        "require": _require,
        "versions": _versions,
        "fail-on": _fail_on,
        "rows": _rows,
        "feature": words,
        "format": words,
        "allow": _allow,
    }
    fields = {field.encode_name: field for field in msgspec.structs.fields(PolicyFile)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in fields:
            errors.append(f"{quoted(key)}: no such key{nearest(key, fields)}")
            continue
        read = decoders.get(key, plain(fields[key].type))
        before = len(errors)
        found = read(value, key, errors)
        if len(errors) == before or key in ("require", "allow"):
            values[fields[key].name] = found
    return PolicyFile(**values)


def _fail_on(value: Any, place: str, errors: list[str]) -> tuple[str, ...]:
    asked = words(value, place, errors)
    errors += [
        f"{place}[{at}]: {word!r} is no verdict that fails and no severity{nearest(word, FAIL_WORDS)}"
        for at, word in enumerate(asked)
        if word not in FAIL_WORDS
    ]
    if value == []:
        errors.append(f'{place}: it is empty; with "{NO_VERDICT}" no verdict of a row fails')
    elif wrong := contradiction(asked):
        errors.append(f"{place}: {wrong}")
    return asked


def _rows(value: Any, place: str, errors: list[str]) -> str | None:
    word: str | None = plain(str)(value, place, errors)
    if word is not None and word not in ROWS:
        errors.append(f"{place}: {not_one(word, ROWS)}")
    return word


def contradiction(fail_on: Iterable[str]) -> str:
    """What is wrong with words of fail-on that are each right, "" where nothing is."""
    asked = set(fail_on)
    verdicts = [verdict.value for verdict in Verdict if verdict.value in asked]
    if NO_VERDICT not in asked or not verdicts:
        return ""
    return f'"{NO_VERDICT}" lets no verdict fail, and "{verdicts[0]}" is one'


def _versions(value: Any, place: str, errors: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for written, wanted in items(value, place, errors):
        where = f"{place}.{quoted(written)}"
        name = re.sub(r"[-_.]+", "-", written).lower()  # as packaging compares names
        if name in found:
            errors.append(f"{where}: the same as {name}, which has a range already")
        elif not isinstance(wanted, str):
            errors.append(f'{where}: expected a range such as ">=0.6,<0.8", got {type(wanted).__name__}')
        elif name not in VERSIONED and not name.startswith(PREFIXES):
            # The distribution of FlashInfer is not called like what is imported.
            meant = f"{name}-python" if f"{name}-python" in VERSIONED else name
            read = ", ".join([*VERSIONED, *(f"{prefix.rstrip('-')}-*" for prefix in PREFIXES)])
            errors.append(f"{where}: no version of that is read{nearest(meant, VERSIONED)}; read are {read}")
        else:
            try:
                version_range(wanted)
                found[name] = wanted
            except ValueError as error:
                meant = f'; a range is written ">={wanted}"' if parse_version(wanted) else ""
                errors.append(f"{where}: {error}{meant}")
    return found


def _require(value: Any, place: str, errors: list[str]) -> dict[str, RequireTable]:
    found: dict[str, RequireTable] = {}
    for glob, wanted in items(value, place, errors):
        where = f"{place}.{quoted(glob)}"
        before = len(errors)
        if isinstance(wanted, str):
            table = by_word(wanted)
            errors += [] if wanted in REQUIRE_WORDS else [f"{where}: {not_one(wanted, REQUIRE_WORDS)}"]
        elif isinstance(wanted, dict):
            values = record(RequireTable, wanted, where, errors) or {}
            _check_required(values, where, errors, is_told=len(values) < len(wanted))
            table = RequireTable(**values)
        else:
            table = RequireTable()
            expected = f"expected one of {', '.join(REQUIRE_WORDS)}, or a table"
            errors.append(f"{where}: {expected}, got {type(wanted).__name__}")
        found[glob] = table if len(errors) == before else RequireTable()
    return found


def by_word(word: str) -> RequireTable:
    """What one of REQUIRE_WORDS asks for."""
    return RequireTable(verdict=word) if word in _REQUIRED else RequireTable(evidence=word)


def _check_required(values: dict[str, str], place: str, errors: list[str], *, is_told: bool) -> None:
    """The words of a table. is_told: something in it could not be read, by which the evidence may be right."""
    verdict, evidence, scope = (values.get(key, "") for key in ("verdict", "evidence", "scope"))
    of = [_BUILT, *_WORKING]
    if verdict and verdict not in _REQUIRED:
        errors.append(f"{place}.verdict: {not_one(verdict, _REQUIRED)}")
        of = [word.value for word in Evidence]
    elif verdict:
        of = [one.value for one in EVIDENCE[Verdict(verdict)]]
    elif is_told:
        of = [word.value for word in Evidence]
    if evidence and evidence not in of:
        errors.append(f"{place}.evidence: {not_one(evidence, of)}")
    scopes = [word.value for word in Scope]
    if scope and scope not in scopes:
        errors.append(f"{place}.scope: {not_one(scope, scopes)}")


def _allow(value: Any, place: str, errors: list[str]) -> tuple[AllowTable, ...]:
    if not isinstance(value, list):
        errors.append(f"{place}: expected an array of tables, got {type(value).__name__}")
        return ()
    found = tuple(_allowed(item, f"{place}[{at}]", errors) for at, item in enumerate(value))
    # Which of two reasons, or days, is meant for the same thing nobody can say.
    keys = [(one.reason and (one.finding, one.feature, *sorted(set(one.verdict)))) for one in found]
    for at, key in enumerate(keys):
        if key and key in keys[:at]:
            errors.append(f"{place}[{at}]: it allows what {place}[{keys.index(key)}] allows already")
    return found


def _allowed(value: Any, place: str, errors: list[str]) -> AllowTable:
    """One of them; where it is wrong what it names all the same, so that names are looked at too."""
    before = len(errors)
    values = record(AllowTable, value, place, errors)
    named: dict[str, Any] = {key: word for key in ("finding", "feature") if (word := (values or {}).get(key))}
    given = [key for key in ("finding", "feature") if values is not None and value.get(key, "") != ""]
    if values is not None and len(given) != 1:
        errors.append(f"{place}: a finding or a feature, one of the two")
    if values is not None and not values.get("reason", "-").strip():
        errors.append(f"{place}.reason: it is empty")
    errors += [f"{place}.verdict: {wrong}" for wrong in _wrong_verdicts(values or {})]
    if values is None or len(errors) > before:
        return AllowTable(reason="", expires=dt.date.min, **named)
    return AllowTable(**values)


def _wrong_verdicts(values: dict[str, Any]) -> list[str]:
    if "verdict" not in values:
        return []
    known = [verdict.value for verdict in Verdict]
    wrong = [not_one(word, known) for word in values["verdict"] if word not in known]
    if not values["verdict"]:
        wrong.append("it is empty")
    return [*wrong, "a finding has none"] if values.get("finding") else wrong
