"""What an example of a rule is: a machine on which it fires, and one close to it on which it stays silent."""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor.model import Facts, Outcome


class Example(NamedTuple):
    fires: Facts
    silent: Facts
    fires_outcomes: tuple[Outcome, ...] = ()
    silent_outcomes: tuple[Outcome, ...] = ()
