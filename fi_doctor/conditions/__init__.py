"""Conditions over what is known of a machine; fi_doctor.conditions.language has the grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fi_doctor.conditions.leaves import Truth

if TYPE_CHECKING:
    from fi_doctor.conditions.subjects import View, check, check_text, fill, holds, parts, unknowns

__all__ = ["Truth", "View", "check", "check_text", "fill", "holds", "parts", "unknowns"]


def __getattr__(name: str) -> object:
    """What conditions over machines take is loaded where it is asked for: to explain a log does without."""
    if name not in __all__:
        raise AttributeError(name)
    from fi_doctor.conditions import subjects  # noqa: PLC0415

    found: object = getattr(subjects, name)
    globals()[name] = found  # it is asked once
    return found
