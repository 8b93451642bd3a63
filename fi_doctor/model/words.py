"""The closed sets of words in which everything is judged."""

from __future__ import annotations

from fi_doctor.model.base import Closed


class Verdict(Closed):
    """What is to be said of a row or a cell. Declared so that an unknown word reads as unknown."""

    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"
    WRONG_RESULT = "wrong-result"
    WORKS = "works"

    @property
    def is_failure(self) -> bool:
        """Whether something was asked of the kernel here and it failed, or would: broken, or wrong numbers."""
        return self in (Verdict.BROKEN, Verdict.WRONG_RESULT)


class Evidence(Closed):
    """How a verdict is known, weakest first.

    For a failure it is the step that was tried here and failed: a compile error is `built`, a crash is `ran`,
    wrong numbers are `verified`.
    """

    NONE = "none"
    DECLARED = "declared"
    PREDICTED = "predicted"
    BUILT = "built"
    RAN = "ran"
    VERIFIED = "verified"


class Scope(Closed):
    """How much of a module the evidence covers."""

    SUBSET = "subset"
    FULL = "full"


class Severity(Closed):
    """How much a finding matters."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
