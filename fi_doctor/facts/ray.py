"""Which variables the installed vLLM hands to Ray workers, read from its file and never imported."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.facts.files import NOT_PYTHON, read_text, why_not_python
from fi_doctor.facts.packages import Survey
from fi_doctor.model import Missing, RayCopies

_PREFIXES, _NAMES = "DEFAULT_ENV_VAR_PREFIXES", "DEFAULT_EXTRA_ENV_VARS"
_FUNCTION = "get_env_vars_to_copy"
_PATH = "ray/ray_env.py"
# Every release names these beside, in v1/executor/ray_executor.py (0.14.1:75, 0.33.0).
_ALWAYS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


def read_ray_copies(survey: Survey, environ: Mapping[str, str]) -> RayCopies | Missing:
    """Of the vllm that an import would get; Missing when there is none, or its file is not as we know it."""
    origin = survey.modules.get("vllm", Missing(reason="vllm was not looked for"))
    if isinstance(origin, Missing):
        return origin
    path = Path(origin).parent / _PATH
    text = read_text(path)
    if isinstance(text, Missing):
        return text
    try:
        found = parse(text)
    except NOT_PYTHON as error:
        return Missing(reason=f"{path} is not Python: {why_not_python(error)}")
    if isinstance(found, Missing):
        return found
    return replace(found, kept_back=read_kept_back(environ))


def read_kept_back(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The names in the user's own list; as vLLM takes it, one that is no JSON holds nothing back.

    Source: vllm/ray/ray_env.py and envs.py (VLLM_CONFIG_ROOT), 0.10.2 to 0.33.0.
    """
    home = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", "/"), ".config"))
    root = Path(environ.get("VLLM_CONFIG_ROOT") or home / "vllm").expanduser()
    text = read_text(root / "ray_non_carry_over_env_vars.json")
    if isinstance(text, Missing):
        return ()
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(sorted({str(name) for name in names})) if isinstance(names, list | dict) else ()


def parse(text: str) -> RayCopies | Missing:
    """The two tables of ray_env.py. Up to 0.14.1 it has none, and only registered variables are copied.

    Raises one of NOT_PYTHON.
    """
    tree = ast.parse(text)
    tables: dict[str, tuple[tuple[str, ...], int]] = {}
    line = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION:
            line = node.lineno
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(target, ast.Name) and target.id in (_PREFIXES, _NAMES):
            if not isinstance(value, ast.Set):
                return Missing(reason=f"{_PATH}:{node.lineno} is not a set of strings")
            items = [item.value for item in value.elts if isinstance(item, ast.Constant)]
            tables[target.id] = (tuple(sorted(item for item in items if isinstance(item, str))), node.lineno)
    if not line:
        return Missing(reason=f"{_PATH} has no {_FUNCTION}")
    if not tables and "prefix" in text:
        return Missing(reason=f"{_PATH} copies by prefixes that cannot be read")
    prefixes, first = tables.get(_PREFIXES, ((), line))
    names, _ = tables.get(_NAMES, ((), line))
    return RayCopies(prefixes=prefixes, names=tuple(sorted({*names, *_ALWAYS})), source=f"{_PATH}:{first}")
