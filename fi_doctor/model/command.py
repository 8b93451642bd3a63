"""Command lines of fi-doctor that are printed to be pasted."""

from __future__ import annotations

import shlex

from fi_doctor.model.facts import Interpreter

_WITH_SERVING = ("check", "report")


def line(interpreter: Interpreter, name: str, *rest: str) -> str:
    """One on the same interpreter, which need not be the one that runs fi-doctor, quoted for a shell."""
    python = () if interpreter.is_own else ("--python", interpreter.named)
    serving = interpreter.serving if name in _WITH_SERVING else ()
    return shlex.join(["fi-doctor", name, *python, *serving, *rest])
