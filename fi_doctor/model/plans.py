"""What a move would change: to other versions, another toolkit, driver or GPU. Nothing of it was measured."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing
from fi_doctor.model.expected import FirstStarts
from fi_doctor.model.policy import Holds
from fi_doctor.model.report import Doctor
from fi_doctor.model.words import Evidence

PLAN_SCHEMA = "fi-doctor.plan/1.0"


class Standing(Closed):
    """How a row stands on one side of a move, by what is known of it."""

    UNKNOWN = "unknown"  # of that release nothing is known, or only that it failed elsewhere
    ABSENT = "no row"
    UNSUPPORTED = "unsupported"
    BROKEN = "broken"
    WRONG_RESULT = "wrong-result"
    OPEN = "nothing against it"  # it is offered, and nothing that is known stands against it
    EXPECTED = "expected to work"  # by machines of its kind that showed it
    WORKS = "works"  # measured, in a report

    @property
    def is_against(self) -> bool:
        """Whether something that is known stands against the row."""
        return self in (Standing.UNSUPPORTED, Standing.BROKEN, Standing.WRONG_RESULT)


class Side(Data, frozen=True):
    """One of the two ends of a move."""

    words: str  # as typed: "b200,vllm=0.33.0", a file; "" for what is examined as it is
    told: tuple[str, ...]  # GPU, driver, nvcc and packages, in words


class Pin(Data, frozen=True):
    """A version that changes with the move."""

    what: str  # "vllm", "flashinfer-python", "nvcc", "driver", "GPU"
    before: str  # "" where it is not installed, or not known
    after: str  # "0.33.0", or a range: ">=1.31.0"
    is_asked: bool  # False: nobody asked for it, and it moves all the same
    why: str
    source: str
    overrides: str = ""  # the requirement that this violates, in words; "" where it violates none


class Need(Data, frozen=True):
    """What the end of the move needs of driver, toolkit and torch."""

    what: str  # "driver", "nvcc", "torch's CUDA"
    least: str
    found: str  # "" where it is not known
    is_met: bool | Missing
    why: str
    source: str


class RowMove(Data, frozen=True):
    """A row that stands otherwise after the move, or that vLLM calls otherwise."""

    feature: str
    sms: tuple[int | Missing | None, int | Missing | None]  # None: that side has no such row
    before: Standing
    after: Standing
    why: str  # of the side that something stands against; of both the one after
    evidence: Evidence  # how `why` is known
    calls: tuple[str, str]  # what vLLM does with it, in words; the same twice where that does not change


class SettingMove(Data, frozen=True):
    """A setting that the other release reads otherwise, or no more."""

    name: str
    before: str  # "read", "default 0"
    after: str  # "not known", "read by nothing", "default 1", "refused"
    instead: tuple[str, ...]  # the settings that stand for it; none where nothing does, or that is not known
    remark: str  # what became of it, in words
    is_set: bool  # whether it is set where the move begins
    source: str


class Kept(Data, frozen=True):
    """A required row: whether it is still there after the move."""

    feature: str
    holds: Holds
    before: Standing
    after: Standing
    why: str
    line: str = ""  # what turns it on where vLLM does not call it by itself any more
    mends: tuple[str, ...] = ()  # where it does not hold: lines that are known to mend what stands against it


class Alternative(Data, frozen=True):
    """A smaller or other move, after which nothing that is known stands against any required row."""

    words: str  # for --to; "" where nothing moves
    changes: tuple[Pin, ...]  # against the move that was asked for: its version, then the other one
    overrides: tuple[str, ...]  # requirements that it violates
    distance: int  # how many releases further than the nearest, of all changes together
    costs: tuple[str, ...]  # rows that stand open after the move that was asked for, and not after this one
    problems: tuple[str, ...]  # findings that are not there before the move, "id: title"


class Search(Data, frozen=True):
    """What was looked at to keep the required rows."""

    tried: int  # combinations that were judged
    untold: int  # values that were not tried, since the shipped data say nothing of that release
    dimensions: tuple[str, ...]  # what was varied, with how many values
    bound: str  # why not everything was tried; "" where everything was
    # With the fewest changes that will do: those that violate no requirement first, then with the fewest problems.
    found: tuple[Alternative, ...]
    why_none: tuple[str, ...] = ()  # for each row that is lost, what stands against it


class Plan(Data, frozen=True):
    """The whole answer."""

    schema: str
    doctor: Doctor
    created: str  # ISO 8601, UTC
    before: Side
    after: Side
    code: int  # 0 nothing required is lost, 1 something is, 3 it cannot be told
    reason: str
    pins: tuple[Pin, ...]
    needs: tuple[Need, ...]
    rows: tuple[RowMove, ...]
    rows_compared: int
    problems_new: tuple[str, ...]  # "id: title" of findings that hold after the move alone
    problems_gone: tuple[str, ...]
    settings: tuple[SettingMove, ...]
    starts: tuple[FirstStarts, FirstStarts]  # of what vLLM calls without a flag, before and after
    required: tuple[Kept, ...]
    search: Search | None  # where something required is lost
    notes: tuple[str, ...] = ()  # what is not known
