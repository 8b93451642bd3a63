"""A --python that is a program which starts the interpreter: what it sets counts for all that is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from fi_doctor import acting
from fi_doctor.facts.packages import Survey, find_interpreter

# Shells, Python, the sandbox and the survey itself set these.
_NOT_TAKEN = frozenset(
    {
        acting.VARIABLE,  # no child decides whom the others run as
        "FI_DOCTOR_CHILD",
        "LC_CTYPE",
        "OLDPWD",
        "PWD",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONSAFEPATH",
        "SHLVL",
        "_",
    }
)


class Start(NamedTuple):
    """How the examined interpreter is started."""

    wrapper: str  # the program that starts it; "" where it is started itself
    environ: dict[str, str]


def start(python: str, survey: Survey, environ: Mapping[str, str]) -> Start:
    """The variables with which the interpreter itself sees what it saw behind the program that was named.

    Children are started without that program, which could put itself before the scratch folder or the GPU that a
    probe is given.
    """
    path = find_interpreter(python, environ)
    if not survey.executable or os.path.realpath(path) == os.path.realpath(survey.executable):
        return Start("", dict(environ))
    there = {_text(name): _text(value) for name, value in survey.environ.items()}
    kept = {name: value for name, value in environ.items() if name in _NOT_TAKEN}
    return Start(path, {**{name: value for name, value in there.items() if name not in _NOT_TAKEN}, **kept})


def _text(told: str) -> str:
    """What the survey tells byte for byte, as os.environ has it."""
    return os.fsdecode(told.encode("latin-1"))
