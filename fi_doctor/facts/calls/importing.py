"""Modules that a Python file imports by a call: `importlib.import_module("flashinfer.norm")`, `__import__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fi_doctor.facts.calls.expressions import forgives
from fi_doctor.facts.calls.values import is_flashinfer, last_part

_BY_IMPORTLIB, _BUILT_IN = "import_module", "__import__"
_FROM_LIST = 3  # its place among the arguments of __import__


def imported_module(call: ast.Call) -> tuple[str, bool] | None:
    """The module of FlashInfer that a call imports, and whether it gives that one and not the package around it."""
    function = last_part(call.func)
    if function not in (_BY_IMPORTLIB, _BUILT_IN) or not call.args:
        return None
    keywords = {one.arg: one.value for one in call.keywords}
    module = _word(call.args[0])
    is_itself = True
    if function == _BUILT_IN:
        is_itself = len(call.args) > _FROM_LIST or "fromlist" in keywords
    elif module.startswith(".") and not module.startswith(".."):
        module = _word(call.args[1] if len(call.args) > 1 else keywords.get("package")) + module
    return (module, is_itself) if is_flashinfer(module) else None


def forgiven(tree: ast.Module, text: str) -> Iterator[ast.Call]:
    """The calls of these that stand where a module may be absent: in a `try` that catches it."""
    if _BY_IMPORTLIB not in text and _BUILT_IN not in text:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Try | ast.With) and forgives(node):
            for one in node.body:
                yield from (inner for inner in ast.walk(one) if isinstance(inner, ast.Call))


def _word(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
