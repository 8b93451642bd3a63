"""Conditions over what is known of a machine; fi_doctor.conditions.language has the grammar."""

from __future__ import annotations

from fi_doctor.conditions.leaves import Truth
from fi_doctor.conditions.subjects import MACHINE, View

__all__ = ["Truth", "View", "check", "check_text", "fill", "holds", "parts", "unknowns"]

check = MACHINE.check
check_text = MACHINE.check_text
fill = MACHINE.fill
holds = MACHINE.holds
parts = MACHINE.parts
unknowns = MACHINE.unknowns
