"""What became of a recommended change when it was tried here: each probe that failed, before and with it."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.words import Evidence, Verdict


class Proven(Closed):
    """Whether a change does what it is recommended for. Declared so that an unknown word reads as not proven."""

    NOT_PROVEN = "not-proven"
    DID_NOT_HELP = "did-not-help"
    IN_PART = "turned-in-part"
    TURNED = "turned"


class Tried(Data, frozen=True):
    """What a probe said of one variant, once."""

    verdict: Verdict
    evidence: Evidence
    why: str
    seconds: float = 0.0  # of the probe's own processes; the modules that it shares are built before them


class Trial(Data, frozen=True):
    """One variant of a probe that failed, and what came of it with the change, all else equal."""

    feature: str
    sm: int | Missing
    probe: str
    variant: str
    before: Tried
    after: Tried
    turned: bool


class Proof(Data, frozen=True):
    """The answer for one recommendation."""

    result: Proven
    why: str = ""  # of what is not proven, or could not even be started: one sentence
    trials: tuple[Trial, ...] = ()
    seconds: float = 0.0  # of the whole trial, its builds included
