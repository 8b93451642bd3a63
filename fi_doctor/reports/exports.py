"""The recommended settings alone, in the form that a shell, a container or a command line takes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from fi_doctor.model import ActionKind, Finding, Proven, Recommendation, Report
from fi_doctor.model.assignments import Assignment, variables_of, without_remark
from fi_doctor.reports import proofs
from fi_doctor.reports.text import add_to, clean, command
from fi_doctor.reports.upgrades import in_brief

FORMS = ("shell", "dotenv", "docker", "k8s", "vllm-args", "sglang-args", "json")


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
            found = _arguments([one for one in wanted if _is_of(one, form)], form)
            return found._replace(told=(*found.told, *in_brief(report)))
        case "k8s":
            lines = _k8s(wanted)
        case _:
            lines = _settings(wanted, form)
    text = _lines((*lines, *(f"# {clean(line)}" for line in in_brief(report))))
    return Exported(text, tuple(_not_set(wanted, form)))


def settings_told(findings: tuple[Finding, ...]) -> list[str]:
    """What is said of settings that somebody wrote down, a line each: they are none of those that are recommended."""
    told = [one for one in findings if one.id.startswith(("setting-", "settings-"))]
    lines = [f"{one.severity}: {clean(one.title)}{f'; {clean(one.fix[0])}' if one.fix else ''}" for one in told]
    return [f"{line} [{one.id}]" for line, one in zip(lines, told, strict=True)]


def disproved_told(report: Report) -> list[str]:
    """What would stand among the settings and was tried here in vain."""
    return [f"left out: {command(one.line)}; {'; '.join(proofs.told(one.proof))}" for one in report.disproved]


def _not_set(wanted: Iterable[Recommendation], form: str) -> Iterator[str]:
    """What is to be set and stands in the text as a comment only, which nobody sees where a program takes it."""
    for one in wanted:
        if one.kind is not ActionKind.SET:
            continue
        named = _variables(one)
        if named is None:
            yield f"not set: {_as_comment(one)}"
            continue
        yield from (f"not set: {_cannot_say(each)}" for each in named if not _can_say(each.value, form))


def _can_say(value: str | None, form: str) -> bool:
    """Whether a form can hold a value, and no terminal obeys what stands there; leaving unset is said in words."""
    if value is None:
        return True
    match form:
        case "shell":
            return value.replace("\n", "").replace("\t", "").isprintable()
        case "docker":  # an instruction ends with its line
            return value.isprintable()
        case "k8s":  # its escapes are of four digits, of which YAML makes no pairs
            return value.isprintable() or all("\0" < one < "\ud800" or "\udfff" < one < "\U00010000" for one in value)
        case _:
            # `docker run --env-file` takes the rest of the line as it is, python-dotenv without a quote does too.
            return value.isprintable() and not re.search(r"[\s#'\"\\]", value)


def _cannot_say(one: Assignment) -> str:
    return f"{one.name} cannot be said in this form: {clean(repr(one.value))}"


def _record(one: Recommendation) -> dict[str, object]:
    """A recommendation with its variables or words apart."""
    record = msgspec.to_builtins(one)
    if one.kind is ActionKind.SET:
        named = _variables(one)
        record["variables"] = None if named is None else {each.name: each.value for each in named}
    if one.kind is ActionKind.FLAG:
        record["arguments"] = _words(one.line)
    return dict(record)


def _settings(wanted: Iterable[Recommendation], form: str) -> Iterator[str]:
    for one in wanted:
        yield from _why(one)
        named = _variables(one) if one.kind is ActionKind.SET else None
        if named is None:
            yield f"# {_as_comment(one)}"
            continue
        yield from (_variable(each, form) for each in named)


def _variables(one: Recommendation) -> tuple[Assignment, ...] | None:
    """What it sets. A value with a reservation is for a person to choose, unless it was seen to help here."""
    helps = one.proof is not None and one.proof.result in (Proven.TURNED, Proven.IN_PART)
    return variables_of(without_remark(one.line) if helps else one.line)


def _variable(one: Assignment, form: str) -> str:
    name, value = one
    if value is None:
        return f"unset {name}" if form == "shell" else f"# {name} is to be left unset"
    if not _can_say(value, form):
        return f"# {_cannot_say(one)}"
    if form == "shell":
        return f"export {name}={shlex.quote(value)}"
    if form == "docker":
        escaped = re.sub(r'(["\\$])', r"\\\1", value)
        return f'ENV {name}="{escaped}"'
    return f"{name}={value}"


def _k8s(wanted: list[Recommendation]) -> Iterator[str]:
    """The fields of a container; quoted as JSON, which YAML reads."""
    variables = [(one, named) for one in wanted if one.kind is ActionKind.SET and (named := _variables(one))]
    flags = [(one, words) for one in wanted if one.kind is ActionKind.FLAG and (words := _words(one.line))]
    for one in wanted:
        if one not in [each for each, _ in (*variables, *flags)]:
            yield from _why(one)
            yield f"# {_as_comment(one)}"
    if any(each.value is not None and _can_say(each.value, "k8s") for _, named in variables for each in named):
        yield "env:"
    for one, named in variables:
        yield from _why(one, "  ")
        for each in named:
            if each.value is None:
                yield f"  # {each.name} is to be left unset"
            elif not _can_say(each.value, "k8s"):
                yield f"  # {_cannot_say(each)}"
            else:
                yield f"  - name: {each.name}"
                yield f"    value: {json.dumps(each.value, ensure_ascii=not each.value.isprintable())}"
    if flags:
        yield "args:"
    for one, words in flags:
        yield from _why(one, "  ")
        yield from (f"  - {json.dumps(word)}" for word in words)


def _arguments(wanted: list[Recommendation], form: str) -> Exported:
    """Words for a command line; a reason among them would be an argument, and is told beside, as the words with quotes.

    What `$(...)` gives a shell splits at blanks, and takes no quotes away.
    """
    lines, told = [], []
    for one in wanted:
        words = _words(one.line)
        told += [line.removeprefix("# ") for line in _why(one)]
        plain = None if words is None else [_unsplit(word) for word in words]
        if plain is None or words is None:
            told.append(_as_comment(one))
        elif all(word.isprintable() and not re.search(r"[\s*?]", word) for word in plain):
            lines.append(" ".join(plain))
            told.append(f"  {shlex.join(words)}")
        else:
            told.append(f"not among the words, since a shell would split or change it: {clean(shlex.join(words))}")
    if not lines:
        told.append(f"nothing to add to the command line of {'SGLang' if form == 'sglang-args' else 'vllm serve'}")
    return Exported(_lines(lines), tuple(told))


def _unsplit(word: str) -> str:
    """JSON without anything at which a shell splits it or looks for files; other words as they are."""
    if not word.startswith(("{", "[")):
        return word
    try:
        text = json.dumps(json.loads(word), separators=(",", ":"))
    except (ValueError, RecursionError):
        return word
    return re.sub(r"[ *?]", lambda found: f"\\u{ord(found[0]):04x}", text)


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
    yield from (f"{indent}# {line}" for line in proofs.told(one.proof))


def _as_comment(one: Recommendation) -> str:
    label = {
        ActionKind.FLAG: add_to(one).removesuffix(": ") or "add to the command line of the server",
        ActionKind.REPORT: "report upstream",
        ActionKind.SET: "choose, then set",
        ActionKind.RUN: "run",
        ActionKind.INSTALL: "install",
    }.get(one.kind, "")
    return f"{label}: {command(one.line)}" if label else command(one.line)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
