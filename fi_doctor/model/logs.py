"""What a log tells of the machine and the server, each with the line that says so."""

from __future__ import annotations

from fi_doctor.model.base import Data


class LogFact(Data, frozen=True):
    """One thing that a line says."""

    name: str  # a subject of fi_doctor.conditions.logs: "sm", "package", "env"
    value: str  # as text; a compute capability is "90", a version "0.6.9.post1"
    key: str = ""  # of a family of subjects: the distribution, the variable
    file: str = ""
    line: int = 0  # counted from 1; 0: from no line


class LogFacts(Data, frozen=True):
    """Everything that the logs and what was given with them say."""

    facts: tuple[LogFact, ...] = ()

    def of(self, name: str, key: str = "") -> tuple[LogFact, ...]:
        """What is said under a name, in the order in which it was read."""
        return tuple(fact for fact in self.facts if fact.name == name and fact.key == key)
