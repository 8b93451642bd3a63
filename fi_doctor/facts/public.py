"""Which public names of the installed FlashInfer match a pattern, for operators whose name is not known."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.facts.files import is_folder, read_text
from fi_doctor.facts.symbols import Symbols
from fi_doctor.model import Missing

MOST_MATCHES = 8
# They build, trace and test; what they define is no operator.
_INTERNAL = {"aot", "data", "jit", "testing", "tests", "trace", "tuning_configs", "experimental", "compilation_context"}
_DEFINED = re.compile(r"^(?:async def|def|class) ([A-Za-z]\w*)", re.MULTILINE)
_IMPORTED = re.compile(r"\bas ([A-Za-z]\w*)|^\s+([A-Za-z]\w*),$|import ([A-Za-z]\w*)$", re.MULTILINE)


def read_public(root: Path, symbols: Symbols, patterns: Iterable[str]) -> dict[str, dict[str, str]]:
    """Pattern, "*awq*" -> the names that match, "flashinfer.quantization.awq_gemm" -> "quantization/awq.py:12".

    Looked at: what the modules of the package itself define and what its packages' __init__ files bind; deeper names
    are nobody's to call. Letters are compared without their case.
    """
    wanted = sorted(set(patterns))
    names = sorted(set(_names(root))) if wanted else []
    return {pattern: _matching(pattern, names, symbols) for pattern in wanted}


def _matching(pattern: str, names: list[str], symbols: Symbols) -> dict[str, str]:
    found: dict[str, str] = {}
    for dotted in names:
        if fnmatch.fnmatchcase(dotted.rpartition(".")[2].lower(), pattern):
            place = symbols.where(dotted)
            if not isinstance(place, Missing) and place not in found.values():
                found[dotted] = place
        if len(found) == MOST_MATCHES:
            break
    return found


def _names(root: Path) -> Iterable[str]:
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        stem = entry.name.removesuffix(".py")
        if stem in _INTERNAL or stem[0] in "_.":
            continue
        if entry.name.endswith(".py"):
            yield from (f"{root.name}.{stem}.{name}" for name in _found(_DEFINED, Path(entry.path)))
        elif is_folder(entry.path):
            init = Path(entry.path, "__init__.py")
            for pattern in (_DEFINED, _IMPORTED):
                yield from (f"{root.name}.{stem}.{name}" for name in _found(pattern, init))


def _found(pattern: re.Pattern[str], path: Path) -> Iterable[str]:
    text = read_text(path)
    if isinstance(text, str):
        for match in pattern.finditer(text):
            name = next(group for group in match.groups() if group)
            if not name.startswith("gen_"):
                yield name
