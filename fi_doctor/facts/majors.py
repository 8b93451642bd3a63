"""For which GPUs FlashInfer compiles a module: `supported_major_versions` in the function that describes its build."""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path

from fi_doctor.facts.files import NOT_PYTHON, read_text, why_not_python
from fi_doctor.model import Majors, Missing

_KEYWORD = "supported_major_versions"
_PLACE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def read_majors(root: Path, place: str | Missing) -> Majors | Missing:
    """What the generator at `place` ("jit/comm.py:58", below the package folder) says; no list at all means any GPU.

    Where it names several lists, for several branches, any of them counts.
    """
    found = None if isinstance(place, Missing) else _PLACE.fullmatch(place)
    if isinstance(place, Missing) or found is None:
        return place if isinstance(place, Missing) else Missing(reason=f"{place} is no place in a file")
    path, first = root / found["file"], int(found["line"])
    text = read_text(path)
    if isinstance(text, Missing):
        return text
    try:
        function = ast.parse(_function(text, first))
    except NOT_PYTHON as error:
        return Missing(reason=f"{path}: {why_not_python(error)}")
    said = [keyword for keyword in ast.walk(function) if isinstance(keyword, ast.keyword) and keyword.arg == _KEYWORD]
    majors: set[int] = set()
    for keyword in said:
        listed = _listed(keyword.value, text)
        if isinstance(listed, Missing):
            return Missing(reason=f"{place}: {listed.reason}")
        if listed is None:
            return Majors(majors=(), source=f"{found['file']}:{first}")
        majors |= set(listed)
    line = first + said[0].value.lineno - 1 if said else first
    return Majors(majors=tuple(sorted(majors)), source=f"{found['file']}:{line}")


def _function(text: str, first: int) -> str:
    """The lines of the function that begins on line `first`: to the next line that is not indented and closes nothing.

    Only these are parsed; some of FlashInfer's files hold half a megabyte.
    """
    lines = text.splitlines()[first - 1 :]
    body = itertools.takewhile(lambda line: not line[:1] or line[0] in " \t)]}#", lines[1:])
    return "\n".join([*lines[:1], *body])


def _listed(value: ast.expr, text: str) -> tuple[int, ...] | Missing | None:
    """The majors of a literal list, or of a constant of the module; None for None, which asks for no majors."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("list", "tuple") and len(value.args) == 1:
        value = value.args[0]
    source = ast.unparse(value)
    if isinstance(value, ast.Name):
        match = re.search(rf"^{re.escape(value.id)}\s*(?::[^=\n]*)?=\s*([\[(][\d\s,]*[\])])", text, re.MULTILINE)
        source = match[1] if match else source
    try:
        literal = ast.literal_eval(source)
    except NOT_PYTHON:
        literal = source
    if literal is None:
        return None
    if isinstance(literal, (list, tuple)) and all(type(major) is int for major in literal):
        return tuple(literal)
    return Missing(reason=f"{_KEYWORD}={ast.unparse(value)[:200]} cannot be read without running it")
