"""The wire format of a report, one definition for JSON and YAML, written and read."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fi_doctor.errors import NEWER, DataError
from fi_doctor.model import SCHEMA, Finding, Missing, Report, secrets
from fi_doctor.reports import refusals
from fi_doctor.reports.files import MAX_BYTES, data_of
from fi_doctor.reports.refusals import MAX_DEPTH

if TYPE_CHECKING:
    import yaml

YAML_MAX_BYTES = 8 * 1024 * 1024  # it takes some 30 times as long to read as JSON
_SCHEMA = re.compile(r"fi-doctor\.report/(\d{1,6})\.(\d{1,6})")
_MAJOR = 1
# What a terminal or an editor may obey and JSON may hold raw: DEL, C1 controls, zero-width and bidirectional marks.
_INVISIBLE = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_REWRITE = "fi-doctor report --{0} -o report.{0} (on the machine in question), then use that file"
# Numbers beyond 64 bits are not portable JSON; only measurements, which may be words too, can hold them.
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_ENDLESS = re.compile(r"\d{1000}")  # Python converts none of 4300 digits


def to_builtins(report: Report) -> dict[str, Any]:
    """The report as dicts, lists and scalars, in the one order in which every machine format writes it.

    Maps are sorted by key. Numbers that JSON cannot say become words in measurements and the largest float elsewhere;
    text that is not Unicode (undecodable bytes of a path) is kept as backslash escapes.
    """
    return portable(msgspec.to_builtins(in_order(report), order="deterministic"))


def portable(plain: dict[str, Any]) -> dict[str, Any]:
    """The same in what JSON and YAML both can say: without text that is not Unicode, and numbers beyond JSON's."""
    return {key: _portable(value, in_measurements=False) for key, value in plain.items()}


def in_order(report: Report) -> Report:
    """The same report, sorted: rows by (feature, sm), findings worst first, outcomes by (feature, probe, sm)."""
    return msgspec.structs.replace(
        report,
        features=tuple(sorted(report.features, key=lambda row: (row.feature, *_sm_order(row.sm)))),
        findings=tuple(sorted(report.findings, key=_finding_order)),
        outcomes=tuple(sorted(report.outcomes, key=lambda out: (out.feature, out.probe, *_sm_order(out.sm)))),
    )


def to_json(report: Report) -> str:
    """The report as JSON: indented by two, Unicode kept, a newline at the end."""
    return json_of(to_builtins(report))


def json_of(plain: dict[str, Any]) -> str:
    """Dicts, lists and scalars as JSON, in the same way."""
    return _escaped(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_yaml(report: Report) -> str:
    """The report as YAML: block style, text of several lines as literal blocks, no anchors."""
    return yaml_of(to_builtins(report))


def yaml_of(plain: dict[str, Any]) -> str:
    """Dicts, lists and scalars as YAML, in the same way."""
    import yaml  # noqa: PLC0415 - only when YAML is asked for

    text: str = yaml.dump(
        plain,
        Dumper=_dumper(),
        default_flow_style=False,
        allow_unicode=True,
        sort_keys=False,
        width=2**30,  # lines are never folded; libyaml takes a C int
    )
    return _escaped(text)


def schema() -> dict[str, Any]:
    """The JSON Schema of a report, generated from the types."""
    return {"$id": SCHEMA, "title": "fi-doctor report", **msgspec.json.schema(Report)}


def read_file(path: Path) -> Report:
    """The report in a file, or in a pipe such as /dev/stdin; DataError when there is none to be had."""
    return read(data_of(path), str(path))


def read(data: bytes, name: str) -> Report:
    """The report that `data` holds, JSON or YAML by its content; `name` is what messages call it.

    Tolerant within the major version: fields that this version does not know are ignored, and words outside a closed
    set become that set's unknown. DataError says what is wrong, with the path into the data.
    """
    document = plain(data, name)
    try:
        report = secrets.without(_without_secrets(msgspec.convert(document, type=Report)), secrets.held(os.environ))
    except msgspec.ValidationError as error:
        raise DataError(f'"{name}" is not a whole report', why=_located(str(error)), todo=_rewrite(name)) from error
    except RecursionError as error:
        raise _too_deep(name) from error
    if why := refusals.of_rows(report.features):
        raise _no_report(name, why)
    return report


def _without_secrets(report: Report) -> Report:
    """The report without variables that are secrets by their names, whoever wrote it."""
    facts = report.facts
    environment, image = map(secrets.without_variables, (facts.environment, facts.system.image))
    if environment == facts.environment and image == facts.system.image:
        return report
    system = msgspec.structs.replace(facts.system, image=image)
    return msgspec.structs.replace(report, facts=msgspec.structs.replace(facts, environment=environment, system=system))


def plain(data: bytes, name: str) -> dict[str, Any]:
    """The same as dicts, lists and scalars, of a schema that can be read; not looked at any further."""
    document = _parse(data, name)
    if not isinstance(document, dict):
        raise _no_report(name, f"expected a mapping, got {_kind(document)}")
    check_schema(document.get("schema"), name)
    _check_numbers(document, name)
    return document


def _sm_order(sm: int | Missing) -> tuple[bool, int]:
    """Rows of no SM come after those that have one."""
    return (True, 0) if isinstance(sm, Missing) else (False, sm)


def _finding_order(finding: Finding) -> tuple[int, str]:
    return (-finding.severity.rank, finding.id)


def _portable(value: Any, *, in_measurements: bool) -> Any:
    """The same value in what JSON and YAML both can say."""
    match value:
        case dict():
            return {
                _unicode(key): _portable(item, in_measurements=in_measurements or key == "measurements")
                for key, item in value.items()
            }
        case list() | tuple():
            return [_portable(item, in_measurements=in_measurements) for item in value]
        case str():
            return _unicode(value)
        case float() if not math.isfinite(value):
            return str(value) if in_measurements else math.copysign(sys.float_info.max, value)
        case int() if in_measurements and not _INT_MIN <= value <= _INT_MAX:
            return str(value)
        case _:
            return value


def _unicode(text: str) -> str:
    """Lone surrogates, which os.fsdecode makes of undecodable bytes, cannot be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _dumper() -> type[yaml.SafeDumper]:
    import yaml  # noqa: PLC0415 - only when YAML is asked for

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # PyYAML may lack libyaml
        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # In double quotes, and only there, what `to_yaml` makes of such a character is read as that character.
        style = '"' if _INVISIBLE.search(text) else "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper


def _escaped(text: str) -> str:
    """What a terminal or an editor may obey, as JSON and YAML in double quotes write it."""
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _parse(data: bytes, name: str) -> Any:
    """JSON when it starts like an object, else YAML; scalars and containers only."""
    if len(data) > MAX_BYTES:
        raise _too_large(name, f"it is over {MAX_BYTES >> 20} MiB")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        raise _no_report(name, "it is empty")
    if data.startswith(b"\x1f\x8b"):
        raise DataError(f'"{name}" is compressed', why="it starts like a gzip file", todo=f'gunzip "{name}" first')
    if data.lstrip().startswith(b"{"):
        return _parse_json(data, name)
    if len(data) > YAML_MAX_BYTES:
        raise _too_large(name, f"it is YAML, and over {YAML_MAX_BYTES >> 20} MiB; JSON may have {MAX_BYTES >> 20} MiB")
    return _parse_yaml(data, name)


def _parse_json(data: bytes, name: str) -> Any:
    try:
        found = msgspec.json.decode(data)
        why = refusals.of_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_report(name, f"it starts like JSON but cannot be read as JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(name) from error
    if why:
        raise _no_report(name, why)
    return found


def _parse_yaml(data: bytes, name: str) -> Any:
    import yaml  # noqa: PLC0415 - only when YAML is read

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # PyYAML may lack libyaml
        # A date without quotes, as a person may write it, stays text.
        yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way
            first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    try:
        if why := refusals.of_yaml(yaml.parse(data, Loader=Loader)):
            raise _no_report(name, why)
        return yaml.load(data, Loader=Loader)  # noqa: S506 - a SafeLoader
    except RecursionError as error:
        raise _too_deep(name) from error
    except yaml.YAMLError as error:
        as_json = "does not begin as JSON does, and " if name.endswith(".json") else ""
        raise _no_report(name, f"it {as_json}cannot be read as YAML: {_one_line(error)}") from error
    except ValueError as error:  # a number that Python refuses, bytes that are not UTF-8
        raise _no_report(name, f"it holds a value that cannot be read: {_one_line(error)}") from error


def _check_numbers(document: object, name: str) -> None:
    """Refuse integers beyond 64 bits, which cannot be computed with as floats, and text with one that has no end."""
    rest = [document]
    while rest:
        match rest.pop():
            case dict() as found:
                rest += found.values()
            case list() as found:
                rest += found
            case str() as text if _ENDLESS.search(text):
                raise _no_report(name, "it holds a number of more than a thousand digits")
            case int() as number if not _INT_MIN <= number <= _INT_MAX:
                raise _no_report(name, f"it holds a number of {number.bit_length()} bits")


def check_schema(found: object, name: str) -> None:
    """DataError where what a document says of its schema is not one that can be read."""
    match = _SCHEMA.fullmatch(found) if isinstance(found, str) else None
    if match is None:
        said = f'its "schema" is {found!r:.100}' if found is not None else 'it has no "schema"'
        raise _no_report(name, f"{said}; a report says {SCHEMA}")
    major, why = int(match[1]), f'its schema is "{found}"; this one reads {_MAJOR}.x'
    if major > _MAJOR:
        raise DataError(f'"{name}" was written by a newer fi-doctor', why=why, todo=NEWER)
    if major < _MAJOR:
        raise DataError(f'"{name}" was written by an older fi-doctor', why=why, todo=_rewrite(name))


def _rewrite(name: str) -> str:
    return _REWRITE.format("json" if name.endswith(".json") else "yaml")


def _no_report(name: str, why: str) -> DataError:
    return DataError(f'"{name}" is not a fi-doctor report', why=why, todo=_rewrite(name))


def _too_large(name: str, why: str) -> DataError:
    return DataError(f'"{name}" is too large for a report', why=why, todo=_rewrite(name))


def _too_deep(name: str) -> DataError:
    return _no_report(name, f"it is nested deeper than {MAX_DEPTH} levels")


def _located(message: str) -> str:
    """The message "Expected `str`, got `int` - at `$.facts.gpus`" of msgspec with the path first."""
    what, found, path = message.partition(" - at `$")
    return message if not found else f"{path.rstrip('`').lstrip('.')}: {what[:1].lower()}{what[1:]}".removeprefix(": ")


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "nothing"}.get(type(value), f"a {type(value).__name__}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
