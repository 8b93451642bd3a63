"""The lock: its fields are the wire format of fi-doctor.lock.

Inputs are named (`driver`, `cache:norm`, `package:flashinfer-python:norm/__init__.py`), and each name has one value.
A row lists the names that it rests on, so that what a change touches is a matter of sets.
"""

from __future__ import annotations

from typing import NamedTuple

from fi_doctor.model import Data, Doctor, Evidence, Missing, Outcome, Scope, Verdict

LOCK_SCHEMA = "fi-doctor.lock/1.1"
LOCK_NAME = "fi-doctor.lock"
ABSENT = "absent"  # the value of an input that is not there
NOT_KNOWN = "not known to this fi-doctor"  # the value of an input that a newer version named; never as it was
UNREADABLE = "unreadable: "  # begins the value of what could not be read, of which nobody knows whether it changed


class Key(NamedTuple):
    """Which row: a feature and the compute capability, None where the row needs no GPU."""

    feature: str
    sm: int | None

    def __str__(self) -> str:
        return self.feature if self.sm is None else f"{self.feature} on SM{self.sm}"


class LockedRow(Data, frozen=True):
    """A row that was measured: works, or fails, by trying."""

    feature: str
    sm: int | Missing
    verdict: Verdict
    evidence: Evidence
    scope: Scope
    why: str
    measured: (
        str  # ISO 8601, UTC: when the report was made that it is from; the day alone where that took it from a lock
    )
    deciding: tuple[str, ...]  # the variants that decide it for the installed vLLM; ("",) where the probe has none
    inputs: tuple[str, ...]  # names in Lock.inputs, sorted
    groups: tuple[str, ...] = ()  # names in Lock.groups: it rests on their inputs too

    @property
    def key(self) -> Key:
        """Which row it is."""
        return key_of(self.feature, self.sm)


class Lock(Data, frozen=True):
    """What was proved and what that rests on. Fields are only added within a major version of the schema."""

    schema: str
    doctor: Doctor  # who judged
    rows: tuple[LockedRow, ...]  # by feature and compute capability
    inputs: dict[str, str]  # name -> a version, or "sha256:..." of what is in a file, or "absent"
    # "module:norm" -> the inputs that this JIT module is compiled from, "python:norm.rmsnorm" -> the Python files that
    # a row of this feature goes through.
    groups: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - msgspec copies it
    # "torch:numpy" -> what `import torch` loads of numpy: modules as sys.path leads to them, and files that it does not
    # lead to ("./" is below an entry of sys.path); what was looked for and is not there is in it, too.
    loads: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - msgspec copies it
    outcomes: tuple[Outcome, ...] = ()  # of the rows above: what the verdicts are made of, without paths and times
    # "feature" or "feature on SM90" -> why it is not in here as proved.
    left_out: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it


def key_of(feature: str, sm: int | Missing) -> Key:
    """The key of a row, a planned probe or an outcome."""
    return Key(feature, None if isinstance(sm, Missing) else sm)


def rests_on(row: LockedRow, lock: Lock) -> frozenset[str]:
    """Every input of a row: its own and those of its groups; a group that is missing is an input that is missing."""
    named = (lock.groups.get(name, (name,)) for name in row.groups)
    return frozenset(row.inputs).union(*named)
