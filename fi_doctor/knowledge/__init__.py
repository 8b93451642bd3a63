"""The knowledge base: rules, features and settings as YAML files, decoded strictly and checked as a whole."""

from __future__ import annotations

import re
from pathlib import Path

from fi_doctor.errors import BrokenDoctorError, DataError
from fi_doctor.knowledge.consistency import check_operators, check_whole
from fi_doctor.knowledge.decode import decode_list, decode_record, read_yaml
from fi_doctor.model import Feature, KnowledgeBase, Operator, Rule, Setting, Strict

SCHEMA = "fi-doctor.knowledge/1.2"  # a minor version adds fields; "/1" is 1.0
SHIPPED = Path(__file__).parent / "data"
_SCHEMA = re.compile(r"fi-doctor\.knowledge/(\d{1,6})(?:\.(\d{1,6}))?")
_MAJOR, _MINOR = 1, 2
_NEWER = "take a newer fi-doctor, which knows that schema, or knowledge for this one"


class Head(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """kb.yaml."""

    schema: str
    version: str  # calendar version, 2026.11.27
    checked_on: tuple[str, ...]
    newest: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it; see KnowledgeBase


def load(folder: Path | None = None, *, name: str = "", origin: str = "") -> KnowledgeBase:
    """The knowledge in a folder, by default that which ships with fi-doctor.

    name: what errors call the folder. origin: where it is from, for reports.
    Errors: DataError that lists what is wrong in all files; BrokenDoctorError when it is the shipped folder.
    """
    place = folder or SHIPPED
    name = name or str(place)
    errors: list[str] = []
    head, schema = _head(place, name, errors)
    features = decode_list(Feature, read_yaml(place / "features.yaml", place, errors), "features.yaml", errors)
    settings: list[Setting] = []
    for path in sorted((place / "settings").glob("*.yaml")):
        settings += decode_list(Setting, read_yaml(path, place, errors), path.relative_to(place).as_posix(), errors)
    rules: dict[str, Rule] = {}
    for path in sorted((place / "rules").glob("*/*.yaml")):
        file = path.relative_to(place).as_posix()
        rule = decode_record(Rule, read_yaml(path, place, errors), file, errors)
        if rule is not None:
            rules[file] = rule
    written = place / "operators.yaml"  # a folder may do without
    known = read_yaml(written, place, errors) if written.exists() else None
    operators = decode_list(Operator, known, "operators.yaml", errors)
    errors += check_operators(tuple(operators))
    errors += check_whole(rules, tuple(features), tuple(settings))
    if errors or head is None:
        raise broken(place, name, errors, schema)
    return KnowledgeBase(
        version=head.version,
        checked_on=head.checked_on,
        rules=tuple(sorted(rules.values(), key=lambda rule: rule.id)),
        features=tuple(features),
        settings=tuple(settings),
        operators=tuple(operators),
        newest=head.newest,
        origin=origin,
    )


def read_head(folder: Path = SHIPPED, name: str = "") -> Head:
    """What kb.yaml says. Errors: as `load`."""
    errors: list[str] = []
    head, schema = _head(folder, name or str(folder), errors)
    if head is None or errors:
        raise broken(folder, name or str(folder), errors, schema)
    return head


def _head(folder: Path, name: str, errors: list[str]) -> tuple[Head | None, str]:
    """What kb.yaml says, and the schema that it names. DataError where this fi-doctor does not read that schema."""
    written = read_yaml(folder / "kb.yaml", folder, errors)
    schema = str(written.get("schema", "")) if isinstance(written, dict) else ""
    found = _SCHEMA.fullmatch(schema)
    if found and int(found[1]) != _MAJOR:
        why = f"kb.yaml: schema: it is {schema}, and this fi-doctor reads fi-doctor.knowledge/{_MAJOR}"
        raise DataError(f"the knowledge in {name} is of another schema", why=why, todo=_NEWER)
    if schema and not found:
        errors.append(f"kb.yaml: schema: expected {SCHEMA!r}, got {schema!r}")
    return decode_record(Head, written, "kb.yaml", errors), schema


def broken(folder: Path, name: str, errors: list[str], schema: str) -> DataError | BrokenDoctorError:
    """The error for a folder of knowledge in which this is wrong; of a newer schema what is newer may be it."""
    what = f"the knowledge in {name} cannot be used: {len(errors)} error{'s' if len(errors) > 1 else ''}"
    why = "\n       ".join(errors)
    if folder == SHIPPED:
        return BrokenDoctorError(what, why=why, todo="mend that file, or install fi-doctor anew")
    found = _SCHEMA.fullmatch(schema)
    if found and int(found[2] or 0) > _MINOR:
        why += f"\n       it is of {schema}, and this fi-doctor reads {SCHEMA} and older"
        return DataError(what, why=why, todo=_NEWER)
    return DataError(what, why=why, todo="mend the files at the places named")
