"""Expected failures: what happened, why, what to do, and the exit code that says so."""

from __future__ import annotations

NEWER = "install a newer fi-doctor, from where this one came"  # what to do about data that a newer one wrote


class DoctorError(Exception):
    """A failure that a user can understand and mend; everything else is a bug in fi-doctor.

    what: one sentence without a final stop.  why: the reason, values quoted, paths absolute.
    todo: what to do, a command ready to paste where there is one.
    """

    exit_code = 2

    def __init__(self, what: str, *, why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.todo = todo

    def __str__(self) -> str:
        lines = [f"error: {self.what}"]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.todo:
            lines.append(f"  try: {self.todo}")
        return "\n".join(lines)


class UsageError(DoctorError):
    """A command line or configuration that cannot mean anything."""


class DataError(DoctorError):
    """A file written by a person or a machine (knowledge, report) that cannot be read; all its errors at once."""


class TargetError(DoctorError):
    """The interpreter to examine is missing or does not run."""


class CannotTellError(DoctorError):
    """What was asked for cannot be done on this machine as it stands."""

    exit_code = 3


class BrokenDoctorError(DoctorError):
    """A file that ships with fi-doctor is broken: the fault is ours."""

    exit_code = 4
