"""What a line of shell sets: variables of a process, and nothing else that it might do."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_REMARK = re.compile(r"\s+# .*\Z", re.DOTALL)
_PLACEHOLDER = "/path/"  # how values begin that are to be chosen first


class Assignment(NamedTuple):
    """One variable to set, or with None to leave unset."""

    name: str
    value: str | None


def variables_of(line: str) -> tuple[Assignment, ...] | None:
    """What a line of shell sets, "unset A; export B=c D=e"; None where it is more than that, or a placeholder."""
    if "$" in line or "`" in line:
        return None
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    found: list[Assignment] = []
    for is_end, group in itertools.groupby(words, lambda word: word == ";"):
        if is_end:
            continue
        words = list(group)
        if words[:1] == ["unset"] and len(words) > 1 and all(map(_IDENTIFIER.fullmatch, words[1:])):
            found += [Assignment(name, None) for name in words[1:]]
        elif words[:1] == ["export"] and len(words) > 1:
            pairs = [_ASSIGNMENT.fullmatch(word) for word in words[1:]]
            if not all(pairs) or any(pair and pair[2].startswith(_PLACEHOLDER) for pair in pairs):
                return None
            found += [Assignment(pair[1], pair[2]) for pair in pairs if pair]
        else:
            return None
    return tuple(found)


def without_remark(line: str) -> str:
    """The line without what stands behind a # for the reader."""
    return _REMARK.sub("", line)


def in_effect(line: str, environ: Mapping[str, str]) -> tuple[Assignment, ...] | None:
    """What a line sets where these variables are set, "export PATH=/x:$PATH" too; None as `variables_of`."""
    text = without_remark(line)
    if "$" in text and "'" in text:  # between quotes a name is none
        return None
    return variables_of(_NAME.sub(lambda name: shlex.quote(environ.get(name[1] or name[2], "")), text))


def changed(environ: Mapping[str, str], assignments: tuple[Assignment, ...]) -> dict[str, str]:
    """The variables after these assignments."""
    after = dict(environ)
    for name, value in assignments:
        if value is None:
            after.pop(name, None)
        else:
            after[name] = value
    return after
