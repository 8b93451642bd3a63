"""One use of a FlashInfer name in a file of vLLM."""

from __future__ import annotations

import ast
from typing import NamedTuple

from fi_doctor.facts.calls.arguments import Given
from fi_doctor.facts.calls.values import last_part

CALLED, NAMED, HANDED_ON, COMPUTED = "called", "named", "handed on", "computed"


class Use(NamedTuple):
    """One use; several names where it is one of them, depending on what the file does before."""

    names: tuple[str, ...]
    line: int
    how: str
    lookup: str
    given: tuple[Given, ...] = ()  # for each name, of a call; a partial's arguments are among them
    may_differ: bool = False  # whether it may be something that is not FlashInfer's
    is_partial: bool = False  # what functools.partial holds: more may follow
    doubt: str = ""  # why it may do no harm where it does not fit
    sure: frozenset[str] = frozenset()  # names without which it is not run
    lacking: frozenset[str] = frozenset()  # names with which it is not run
    is_held: bool = False  # by a variable: whether it is there was seen where the variable was set


def is_held(node: ast.AST, dotted: str) -> bool:
    """Whether a call or an argument names a variable, and not the member of FlashInfer itself."""
    named = node.func if isinstance(node, ast.Call) else node
    return isinstance(named, ast.Name) or (
        isinstance(named, ast.Attribute) and last_part(named) != dotted.rpartition(".")[2]
    )
