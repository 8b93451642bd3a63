"""The recommended settings alone, in the form that a shell, a container or a command line takes."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from fi_doctor.model import ActionKind, Finding, Recommendation, Report
from fi_doctor.reports.text import add_to, clean

FORMS = ("shell", "dotenv", "docker", "k8s", "vllm-args", "sglang-args", "json")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class Assignment(NamedTuple):
    """One variable to set, or with None to leave unset."""

    name: str
    value: str | None


class Exported(NamedTuple):
    """What goes to stdout, and what is told beside it: what this form cannot say, and where words are not data."""

    text: str
    told: tuple[str, ...] = ()


def export(report: Report, form: str, *, optional: bool = False) -> Exported:
    """The settings of a report in one of FORMS; what is optional only where it is asked for."""
    wanted = [one for one in report.recommendations if optional or not one.optional]
    match form:
        case "json":
            return Exported(json.dumps([_record(one) for one in wanted], indent=2) + "\n")
        case "vllm-args" | "sglang-args":
            return _arguments([one for one in wanted if _is_of(one, form)], form)
        case "k8s":
            return Exported(_lines(_k8s(wanted)))
        case _:
            return Exported(_lines(_settings(wanted, form)))


def settings_told(findings: tuple[Finding, ...]) -> list[str]:
    """What is said of settings that somebody wrote down, a line each: they are none of those that are recommended."""
    told = [one for one in findings if one.id.startswith(("setting-", "settings-"))]
    lines = [f"{one.severity}: {clean(one.title)}{f'; {clean(one.fix[0])}' if one.fix else ''}" for one in told]
    return [f"{line} [{one.id}]" for line, one in zip(lines, told, strict=True)]


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
        if words[:1] == ["unset"] and len(words) > 1:
            found += [Assignment(name, None) for name in words[1:]]
        elif words[:1] == ["export"] and len(words) > 1:
            pairs = [_ASSIGNMENT.fullmatch(word) for word in words[1:]]
            if not all(pairs) or any(pair and pair[2].startswith("/path/") for pair in pairs):
                return None
            found += [Assignment(pair[1], pair[2]) for pair in pairs if pair]
        else:
            return None
    return tuple(found)


def _record(one: Recommendation) -> dict[str, object]:
    """A recommendation with its variables or words apart."""
    record = msgspec.to_builtins(one)
    if one.kind is ActionKind.SET:
        named = variables_of(one.line)
        record["variables"] = None if named is None else {each.name: each.value for each in named}
    if one.kind is ActionKind.FLAG:
        record["arguments"] = _words(one.line)
    return dict(record)


def _settings(wanted: Iterable[Recommendation], form: str) -> Iterator[str]:
    for one in wanted:
        yield from _why(one)
        named = variables_of(one.line) if one.kind is ActionKind.SET else None
        if named is None:
            yield f"# {_as_comment(one)}"
            continue
        yield from (_variable(each, form) for each in named)


def _variable(one: Assignment, form: str) -> str:
    name, value = one
    if value is None:
        return f"unset {name}" if form == "shell" else f"# {name} is to be left unset"
    if form == "shell":
        return f"export {name}={shlex.quote(value)}"
    if form == "docker":
        escaped = re.sub(r'(["\\$])', r"\\\1", value)
        return f'ENV {name}="{escaped}"'
    # `docker run --env-file` takes the rest of the line as it is, python-dotenv without a quote does too.
    is_plain = not re.search(r"[\s#'\"\\]", value)
    return f"{name}={value}" if is_plain else f"# {name} cannot be said here: {value!r}"


def _k8s(wanted: list[Recommendation]) -> Iterator[str]:
    """The fields of a container; quoted as JSON, which YAML reads."""
    variables = [(one, named) for one in wanted if one.kind is ActionKind.SET and (named := variables_of(one.line))]
    flags = [(one, words) for one in wanted if one.kind is ActionKind.FLAG and (words := _words(one.line))]
    for one in wanted:
        if one not in [each for each, _ in (*variables, *flags)]:
            yield from _why(one)
            yield f"# {_as_comment(one)}"
    if any(each.value is not None for _, named in variables for each in named):
        yield "env:"
    for one, named in variables:
        yield from _why(one, "  ")
        for name, value in named:
            if value is None:
                yield f"  # {name} is to be left unset"
            else:
                yield f"  - name: {name}"
                yield f"    value: {json.dumps(value)}"
    if flags:
        yield "args:"
    for one, words in flags:
        yield from _why(one, "  ")
        yield from (f"  - {json.dumps(word)}" for word in words)


def _arguments(wanted: list[Recommendation], form: str) -> Exported:
    """Words for a command line, quoted for a shell; a reason among them would be an argument, and is told beside."""
    lines, told = [], []
    for one in wanted:
        words = _words(one.line)
        told += [line.removeprefix("# ") for line in _why(one)]
        if words is None:
            told.append(_as_comment(one))
        else:
            lines.append(shlex.join(words))
            told.append(f"  {lines[-1]}")
    if not lines:
        told.append(f"nothing to add to the command line of {'SGLang' if form == 'sglang-args' else 'vllm serve'}")
    return Exported(_lines(lines), tuple(told))


def _is_of(one: Recommendation, form: str) -> bool:
    """Whether it is a flag of that server."""
    return one.kind is ActionKind.FLAG and one.holds.startswith("sglang") == (form == "sglang-args")


def _words(line: str) -> list[str] | None:
    """The words of a flag; None where the line is a sentence."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return words if words and words[0].startswith("-") else None


def _why(one: Recommendation, indent: str = "") -> Iterator[str]:
    """Its reason, who asks for it, and the versions in which it holds."""
    asked_by = ", ".join((*one.findings, *(name for name in one.features if name not in one.why)))
    said = [
        "optional:" if one.optional else "",
        clean(one.why),
        f"[{clean(asked_by)}]" if asked_by else "",
        f"({clean(one.holds)})" if one.holds else "",
    ]
    yield f"{indent}# {' '.join(part for part in said if part)}"


def _as_comment(one: Recommendation) -> str:
    label = {
        ActionKind.FLAG: add_to(one).removesuffix(": ") or "add to the command line of the server",
        ActionKind.REPORT: "report upstream",
        ActionKind.SET: "choose, then set",
        ActionKind.RUN: "run",
        ActionKind.INSTALL: "install",
    }.get(one.kind, "")
    return f"{label}: {clean(one.line)}" if label else clean(one.line)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
