"""The knowledge base: rules, features and settings as YAML files, decoded strictly and checked as a whole."""

from __future__ import annotations

from pathlib import Path

from fi_doctor.errors import BrokenDoctorError, DataError
from fi_doctor.knowledge.consistency import check_operators, check_whole
from fi_doctor.knowledge.decode import decode_list, decode_record, read_yaml
from fi_doctor.model import Feature, KnowledgeBase, Operator, Rule, Setting, Strict

SCHEMA = "fi-doctor.knowledge/1"
_SHIPPED = Path(__file__).parent / "data"


class _Head(Strict, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """kb.yaml."""

    schema: str
    version: str
    checked_on: tuple[str, ...]


def load(folder: Path | None = None) -> KnowledgeBase:
    """The knowledge in a folder, by default that which ships with fi-doctor.

    Errors: DataError that lists what is wrong in all files; BrokenDoctorError when it is the shipped folder.
    """
    place = folder or _SHIPPED
    errors: list[str] = []
    head = decode_record(_Head, read_yaml(place / "kb.yaml", place, errors), "kb.yaml", errors)
    if head is not None and head.schema != SCHEMA:
        errors.append(f"kb.yaml: schema: expected {SCHEMA!r}, got {head.schema!r}")
    features = decode_list(Feature, read_yaml(place / "features.yaml", place, errors), "features.yaml", errors)
    settings: list[Setting] = []
    for path in sorted((place / "settings").glob("*.yaml")):
        settings += decode_list(Setting, read_yaml(path, place, errors), path.relative_to(place).as_posix(), errors)
    rules: dict[str, Rule] = {}
    for path in sorted((place / "rules").glob("*/*.yaml")):
        name = path.relative_to(place).as_posix()
        rule = decode_record(Rule, read_yaml(path, place, errors), name, errors)
        if rule is not None:
            rules[name] = rule
    written = place / "operators.yaml"  # a folder may do without
    known = read_yaml(written, place, errors) if written.exists() else None
    operators = decode_list(Operator, known, "operators.yaml", errors)
    errors += check_operators(tuple(operators))
    errors += check_whole(rules, tuple(features), tuple(settings))
    if errors or head is None:
        raise _broken(place, errors, shipped=folder is None)
    return KnowledgeBase(
        version=head.version,
        checked_on=head.checked_on,
        rules=tuple(sorted(rules.values(), key=lambda rule: rule.id)),
        features=tuple(features),
        settings=tuple(settings),
        operators=tuple(operators),
    )


def _broken(place: Path, errors: list[str], *, shipped: bool) -> DataError | BrokenDoctorError:
    what = f"the knowledge in {place} cannot be used: {len(errors)} error{'s' if len(errors) > 1 else ''}"
    why = "\n       ".join(errors)
    if shipped:
        return BrokenDoctorError(what, why=why, todo="mend that file, or install fi-doctor anew")
    return DataError(what, why=why, todo="mend the files at the places named")
