"""The smallest change of versions that is known to mend what fails, and what else it would change."""

from __future__ import annotations

from fi_doctor.model.base import Data
from fi_doctor.model.words import Evidence


class Mended(Data, frozen=True):
    """A row that fails here, of whose problem the other version is known to be free. Nothing was measured of that."""

    row: str  # "sampling.top_k_top_p on SM90"
    rules: tuple[str, ...]  # ids of the problems that are known to be gone
    since: str  # the first release that is known here without them: "flashinfer-python 0.6.0"
    is_called: bool  # whether the installed vLLM calls it as this environment stands; without vLLM always


class Move(Data, frozen=True):
    """A package whose version changes with the upgrade."""

    package: str
    installed: str  # its version now; "" where it is not installed, or its version is not known
    wanted: str  # "==2.14.0", ">=1.31.0"
    why: str  # "vLLM 0.33.0 requires it"


class Change(Data, frozen=True):
    """What the other versions change beside: a row, a setting that is set here, or a problem that is known of them."""

    subject: str  # "attention.sinks on SM90", "VLLM_ATTENTION_BACKEND", the id of a problem
    before: str
    after: str  # never "works": nothing was run
    why: str
    evidence: Evidence  # declared or predicted


class Upgrade(Data, frozen=True):
    """One change of versions, looked for where no setting helps."""

    package: str  # what is to be upgraded: "flashinfer-python" where that alone will do, else "vllm"
    installed: str
    version: str
    line: str  # ready to paste
    is_needed: bool  # whether something fails that the installed vLLM calls as this environment stands
    why: str  # why it is this package and this version, one sentence
    mends: tuple[Mended, ...]
    moves: tuple[Move, ...]  # that package first
    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()  # what is not known of it
