"""Policies: what a file says, everything that is wrong with it at once, and what the gate makes of it."""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fi_doctor.errors import DataError
from fi_doctor.knowledge.policy_keys import EVIDENCE, FAIL_ON, NO_VERDICT, decode
from fi_doctor.knowledge.policy_values import nearest, quoted
from fi_doctor.model import (
    Allowance,
    Evidence,
    Policy,
    PolicyFile,
    Requirement,
    RequireTable,
    Scope,
    Verdict,
)

PROJECT = "pyproject.toml"
_TABLE = "fi-doctor"
_LARGEST_BYTES = 1 << 20
_STREAM = re.compile(r"/dev/(?:stdin|fd/\d+)|/proc/(?:self|\d+)/fd/\d+")  # open already, by whoever started us
# What editors and shells of Windows may write, and TOML does not allow; decoders would only call it invalid.
_MARKS = {codecs.BOM_UTF8: "a byte order mark", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


class Written(NamedTuple):
    """What a file says, without what could not be read of it, and a line for each thing that is wrong."""

    name: str  # absolute
    file: PolicyFile
    errors: list[str]


def has_table(project: Path) -> bool:
    """Whether a pyproject.toml has the table; DataError when it cannot be read."""
    return _table(project) is not None


def read(path: Path) -> Written:
    """What a policy says; DataError when it cannot be read at all."""
    name = str(path.absolute())
    table = _table(path)
    if table is None:
        raise DataError(
            f"the policy {name!r} cannot be used", why=f"it has no [tool.{_TABLE}]", todo="--config fi-doctor.toml"
        )
    errors: list[str] = []
    return Written(name, decode(table, errors), [f"{path.name}: {line}" for line in errors])


def wrong_names(written: Written, features: Iterable[str], findings: Iterable[str]) -> list[str]:
    """The features and findings that the policy names and that do not exist, a line for each."""
    known, ids = tuple(features), tuple(findings)
    file = written.file
    asked = [(f"require.{quoted(glob)}", glob) for glob in file.require]
    asked += [(f"feature[{at}]", glob) for at, glob in enumerate(file.feature or ())]
    asked += [(f"allow[{at}].feature", one.feature) for at, one in enumerate(file.allow) if one.feature]
    wrong = [(place, glob, known, "feature") for place, glob in asked if not fnmatch.filter(known, glob)]
    for at, one in enumerate(file.allow):
        if one.finding and one.finding not in ids:
            wrong.append((f"allow[{at}].finding", one.finding, ids, "finding"))
    name = Path(written.name).name
    families = {f"{one.partition('.')[0]}.*" for one in known}
    return [
        f"{name}: {place}: no {kind} is called {word!r}{nearest(word, sorted(families) if word.endswith('.*') else of)}"
        for place, word, of, kind in wrong
    ]


def refusal(name: str, errors: Iterable[str]) -> DataError:
    """All that is wrong with a policy."""
    lines = list(errors)
    what = f"the policy {name!r} cannot be used: {len(lines)} error{'s' if len(lines) > 1 else ''}"
    return DataError(what, why="\n".join(lines), todo="mend the file, or leave it out with --no-config")


def resolve(written: Written, day: str, aliases: Mapping[str, str]) -> Policy:
    """The policy as the gate judges it.

    day: today, by which what is allowed expires. aliases: former ids of findings, and what they are called now.
    """
    file, name = written.file, Path(written.name).name
    return Policy(
        file=written.name,
        requirements=tuple(
            requirement(glob, table, f"{name}: require") for glob, table in sorted(file.require.items())
        ),
        versions=file.versions,
        fail_on=failing(file.fail_on or ()),
        rows=file.rows or Policy().rows,
        names_verdict=not file.fail_on or names_verdict(file.fail_on),
        allowed=tuple(
            Allowance(
                finding=aliases.get(one.finding, one.finding),
                feature=one.feature,
                reason=one.reason,
                expires=one.expires.isoformat(),
                source=f"{name}: allow[{at}]",
                verdicts=one.verdict,
            )
            for at, one in enumerate(file.allow)
        ),
        day=day if file.allow else "",
    )


def failing(words: Iterable[str]) -> tuple[str, ...]:
    """The words of fail-on in one order; where they name no verdict, those that fail by default stay."""
    asked = set(words)
    if not names_verdict(asked):
        asked |= set(Policy().fail_on)
    return tuple(word for word in FAIL_ON if word in asked)


def names_verdict(words: Iterable[str]) -> bool:
    """Whether words of fail-on say which verdicts fail; severities alone do not."""
    return not {verdict.value for verdict in Verdict}.union([NO_VERDICT]).isdisjoint(words)


def requirement(glob: str, table: RequireTable, source: str) -> Requirement:
    """What is asked of the rows that a glob names, with what goes with the words of a table. source: who asks."""
    is_built = table.evidence == Evidence.BUILT.value
    verdict = Verdict.UNKNOWN if is_built else Verdict(table.verdict or Verdict.WORKS)
    evidence = Evidence(table.evidence) if table.evidence else EVIDENCE[verdict][0]
    scope = Scope.FULL if evidence is Evidence.VERIFIED else Scope.SUBSET
    return Requirement(
        feature=glob,
        verdict=verdict,
        evidence=evidence,
        scope=Scope(table.scope) if table.scope else scope,
        source=source,
    )


def _bytes(path: Path) -> bytes:
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or _STREAM.fullmatch(os.path.abspath(path))):  # noqa: PTH100
            # A pipe that nobody writes to would be waited for.
            raise _unreadable(path, "it is neither a file nor a stream such as /dev/stdin")
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if len(data) > _LARGEST_BYTES:
        raise _unreadable(path, f"it is over {_LARGEST_BYTES >> 20} MiB")
    return data


def _table(path: Path) -> dict[str, Any] | None:
    """The table of the policy, by the name of the file; None where a pyproject.toml has none."""
    if sys.version_info >= (3, 11):
        import tomllib  # noqa: PLC0415 - most commands are given no policy
    else:
        import tomli as tomllib  # noqa: PLC0415 - as above
    data = _bytes(path)
    for mark, said in _MARKS.items():
        if data.startswith(mark):
            raise _unreadable(path, f"{path.name}: it begins with {said}; TOML is UTF-8 without a mark")
    try:
        whole: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unreadable(path, f"{path.name}: {error}") from error
    except (RecursionError, ValueError) as error:
        raise _unreadable(path, f"{path.name}: it holds what cannot be read: {type(error).__name__}") from error
    if path.name != PROJECT:
        return whole
    tools = whole.get("tool")
    table = tools.get(_TABLE) if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise _unreadable(path, f"{path.name}: tool.{_TABLE}: expected a table, got {type(table).__name__}")
    return table


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(
        f"the policy {str(path.absolute())!r} cannot be read",
        why=why,
        todo="mend the file, or leave it out with --no-config",
    )
