"""`fi-doctor schema`: the JSON Schema of what fi-doctor writes and reads, generated from the types."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from typing import Any

from fi_doctor.cli import emit, parse

# What has a schema -> the module that has its schema(); each is imported only when it is asked for.
_MODULES = {
    "report": "fi_doctor.reports.document",
    "difference": "fi_doctor.reports.changes",
    "policy": "fi_doctor.knowledge.policy_schema",
    "lock": "fi_doctor.locking.document",
    "coverage": "fi_doctor.reports.coverage",
    "cache": "fi_doctor.reports.caching",
    "explain": "fi_doctor.reports.explained",
    "fleet": "fi_doctor.fleet.rendering",
}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def offered() -> tuple[str, ...]:
    """The names of the schemas; a document that this installation has no package for is not among them."""
    return tuple(name for name, module in _MODULES.items() if importlib.util.find_spec(module.rpartition(".")[0]))


def schema(name: str) -> int:
    """Print one of them."""
    emit.write(text(parse.choice(name, offered(), "fi-doctor schema")), None)
    return 0


def text(name: str) -> str:
    """The schema as its published copy in fi_doctor/schemas has it: indented by two, a newline at the end."""
    generated: dict[str, Any] = importlib.import_module(_MODULES[name]).schema()
    return json.dumps({"$schema": _DIALECT, **_told(generated)}, indent=2, ensure_ascii=False) + "\n"


def _told(schema: Any) -> Any:
    """The same with docstrings as they are meant: some releases of msgspec leave the indentation of the source."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(one) if key == "description" and isinstance(one, str) else _told(one)
            for key, one in schema.items()
        }
    return [_told(one) for one in schema] if isinstance(schema, list) else schema
