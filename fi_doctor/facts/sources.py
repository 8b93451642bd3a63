"""The readers of Python sources, which are imported when there is something to read: a tenth of a second by itself."""

# ruff: noqa: PLC0415 - as said

from __future__ import annotations

from pathlib import Path

from fi_doctor.facts.packages import Survey
from fi_doctor.model import Calls, Missing, Named, Vllm


def read_vllm(survey: Survey) -> Vllm | Missing:
    """As vllm.read_vllm."""
    from fi_doctor.facts import vllm

    return vllm.read_vllm(survey)


def read_calls(survey: Survey) -> Calls | Missing:
    """As calls.read_calls."""
    from fi_doctor.facts import calls

    return calls.read_calls(survey)


def unread(_: Survey) -> Missing:
    """In place of read_calls where nothing is to be made of them, and half a second matters."""
    return Missing(reason="the calls were not looked at")


def read_named(root: Path, version: str, symbols: tuple[str, ...]) -> Named:
    """As named.read_named."""
    from fi_doctor.facts import named

    return named.read_named(root, version, symbols)
