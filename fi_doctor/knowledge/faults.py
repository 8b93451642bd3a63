"""The faults that logs tell: their literals for the search, and the files of those whose literals were found.

A log is searched for every literal, and few are in it: only files with one that is are decoded, strictly.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from msgspec.structs import replace

from fi_doctor.conditions import patterns
from fi_doctor.conditions.logs import LOG
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.knowledge import SHIPPED, broken, read_head
from fi_doctor.knowledge.decode import decode_list, decode_record, read_yaml
from fi_doctor.knowledge.plain import plain
from fi_doctor.model import FAMILIES, ActionKind, Fault, Mend, Rule, Setting

FOLDER = SHIPPED / "faults"
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_CAUSE = re.compile(r"[a-z0-9.]+(-[a-z0-9.]+)+")  # "needs-cuda-12.6"
# Every `text` and `near` stands on a line of its own, so that it is found without a YAML parser, which takes a
# thousand times as long.
_LITERAL = re.compile(rb"\n *(?:- )?(text|near): +([^\n]*[^\n ])")
_CAUSE_LINE = re.compile(rb"^cause: +([a-z0-9.-]+) *$", re.MULTILINE)
# The samples of a fault, which only tests look at, and which are the half of its file.
_SAMPLES = re.compile(rb"^(?:fires|silent):.*?(?=^[a-z_]+:|\Z)", re.MULTILINE | re.DOTALL)
_SHORTEST = 6  # characters; a shorter literal stands in too many lines


def ids(folder: Path = FOLDER) -> dict[str, Path]:
    """The ids of all faults with their files, which are not read."""
    return {path.stem: path for path in sorted(folder.glob("*/*.yaml"))}


def families(folder: Path = FOLDER) -> dict[str, int]:
    """How many faults each family has; they are not read."""
    return dict(Counter(path.parent.name for path in ids(folder).values()))


@functools.cache
def causes(folder: Path = FOLDER) -> dict[str, list[Path]]:
    """The causes of all faults, each with the files that have it."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*/*.yaml")):
        for cause in _CAUSE_LINE.findall(path.read_bytes()):
            found.setdefault(cause.decode(), []).append(path)
    return found


def literals(folder: Path = FOLDER) -> dict[bytes, list[Path]]:
    """Each literal of a sign, in UTF-8, with the files that it may tell: of one that only stands near, none."""
    found: dict[bytes, list[Path]] = {}
    for path in sorted(folder.glob("*/*.yaml")):
        for key, written in _LITERAL.findall(path.read_bytes()):
            found.setdefault(_scalar(written.decode()).encode(), []).extend([path] if key == b"text" else ())
    return found


def load(
    paths: Iterable[Path], folder: Path = FOLDER, *, name: str = "", is_checked: bool = False
) -> tuple[Fault, ...]:
    """The faults of these files, sorted by id.

    name: what errors call the folder of knowledge. is_checked: tests have looked at what is in these files, as in those
    that ship, and compiling all their patterns once more would be a tenth of the time that a log takes; their samples
    are left out.
    Errors: DataError that lists what is wrong in all of them; BrokenDoctorError when they ship with fi-doctor.
    """
    errors: list[str] = []
    faults = []
    for path in sorted(set(paths)):
        place = path.relative_to(folder).as_posix()
        data = read_yaml(path, folder, errors, without=_SAMPLES if is_checked else None, is_checked=is_checked)
        if is_checked and isinstance(data, dict):
            data |= {"fires": (), "silent": ()}
        fault = decode_record(Fault, data, place, errors)
        if fault is not None:
            errors += [] if is_checked else check(place, fault)
            faults.append(_with_rule(fault, place, folder.parent, errors) if fault.rule else fault)
    if errors:
        head = read_head(folder.parent, name) if (folder.parent / "kb.yaml").exists() else None
        raise broken(folder.parent, name or str(folder), errors, head.schema if head else "")
    return tuple(sorted(faults, key=lambda fault: fault.id))


def settings(folder: Path = FOLDER) -> tuple[Setting, ...]:
    """The settings that remedies may name. Errors: as `load`, for the shipped folder."""
    errors: list[str] = []
    found: list[Setting] = []
    for path in sorted((folder.parent / "settings").glob("*.yaml")):
        found += decode_list(Setting, read_yaml(path, folder.parent, errors), path.name, errors)
    if errors:
        raise BrokenDoctorError("the settings cannot be used", why="\n       ".join(errors), todo="mend those files")
    return tuple(found)


def load_all(folder: Path = FOLDER, *, name: str = "") -> tuple[Fault, ...]:
    """Every fault. Errors: as `load`."""
    return load(folder.glob("*/*.yaml"), folder, name=name)


def check(place: str, fault: Fault) -> list[str]:
    """What is wrong with a fault by itself, each error with its place."""
    path = PurePosixPath(place)
    demands = (
        ("id: expected the file's name", fault.id != path.stem),
        ("id: expected words joined by hyphens", not _ID.fullmatch(fault.id)),
        ("cause: expected words joined by hyphens", not _CAUSE.fullmatch(fault.cause)),
        (f"family: expected one of {', '.join(FAMILIES)}", fault.family not in FAMILIES),
        ("family: expected the folder's name", fault.family != path.parent.name),
        ("signs: empty", not fault.signs),
        ("fires: empty", not fault.fires),
        ("silent: empty", not fault.silent),
        ("title: empty, and no rule to take it from", not (fault.title or fault.rule)),
        ("why: empty, and no rule to take it from", not (fault.why or fault.rule)),
        ("fix: empty, and no rule to take it from", not (fault.fix or fault.rule)),
    )
    errors = [wrong for wrong, is_wrong in demands if is_wrong]
    errors += LOG.check(fault.when, "when") if fault.when else []
    errors += [error for key in ("title", "otherwise", "why") for error in LOG.check_text(getattr(fault, key), key)]
    return [f"{place}: {error}" for error in (*errors, *_wrong_signs(fault), *_wrong_actions(fault))]


def _with_rule(fault: Fault, place: str, data: Path, errors: list[str]) -> Fault:
    """The fault with the texts of its rule where it has none; what a machine would fill in is shown as <words>."""
    path = next((data / "rules").glob(f"*/{fault.rule}.yaml"), None)
    if path is None:
        errors.append(f"{place}: rule: there is no rule {fault.rule!r}")
        return fault
    rule = decode_record(Rule, read_yaml(path, data, errors), path.name, errors)
    if rule is None:
        return fault
    fix = tuple(Mend(kind=one.kind, line=_said(one.line), why=_said(one.why), setting=one.setting) for one in rule.fix)
    return replace(
        fault, title=fault.title or _said(rule.title), why=fault.why or _said(rule.why), fix=fault.fix or fix
    )


def _said(text: str) -> str:
    """Without placeholders, and with its braces as they are written in a text with placeholders."""
    return plain(text).replace("{", "{{").replace("}", "}}")


def _wrong_signs(fault: Fault) -> list[str]:
    errors = []
    for at, sign in enumerate(fault.signs):
        for key in ("text", "near"):
            literal = getattr(sign, key)
            if (literal or key == "text") and (len(literal) < _SHORTEST or "\n" in literal):
                errors.append(f"signs[{at}].{key}: expected a part of one line of {_SHORTEST} characters or more")
        if not sign.source:
            errors.append(f'signs[{at}].source: empty; where no source has the message, "report"')
        errors += [
            f"signs[{at}].{key}: {wrong}"
            for key in ("pattern", "without")
            if (wrong := patterns.wrong(getattr(sign, key)))
        ]
    return errors


def _wrong_actions(fault: Fault) -> list[str]:
    errors = []
    for at, mend in enumerate(fault.fix):
        errors += LOG.check(mend.when, f"fix[{at}].when") if mend.when else []
        errors += LOG.check_text(mend.line, f"fix[{at}].line") + LOG.check_text(mend.why, f"fix[{at}].why")
        if mend.kind in (ActionKind.SET, ActionKind.FLAG) and not mend.setting:
            errors.append(f"fix[{at}].setting: missing; an action of kind {mend.kind} names the setting that it sets")
    return errors


def _scalar(written: str) -> str:
    """A YAML scalar on one line: quoted once or twice, or plain."""
    if written[:1] == '"':
        return str(json.loads(written)) if "\\" in written else written[1:-1]
    return written[1:-1].replace("''", "'") if written[:1] == "'" else written
