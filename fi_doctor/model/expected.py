"""What is expected of a row on a machine that is not here."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing


class Start(Closed):
    """What comes before the first result of a row there."""

    FROM_IMAGE = "from the image"  # its modules are compiled: flashinfer-jit-cache or FlashInfer's cache has them
    COMPILES = "compiles"
    FIRST_CALL = "compiled at its first call"  # by something else than nvcc, which nothing here estimates
    NOTHING = "nothing to compile"
    CANNOT = "cannot"  # it is not offered there, or what compiles it is missing
    UNKNOWN = "unknown"  # which modules it takes there is not known


class Expected(Data, frozen=True):
    """How a row starts there, and what its verdict leans on; times and sizes are estimates."""

    feature: str
    sm: int | Missing
    start: Start
    modules: tuple[str, ...] = ()  # JIT modules that are to be compiled; "name*": one or more whose names begin so
    objects: int = 0
    cpu_seconds: float = 0.0  # of all compilers together
    memory_mib: int = 0  # the most that one compiler takes
    measured: tuple[str, ...] = ()  # machines by which that is known: "h200-... (nvcc 13.0)"; empty: by estimates
    leans_on: tuple[str, ...] = ()  # rules that foretell its verdict, and machines that showed it
    why: str = ""  # where it cannot, or nothing like it was measured
    doubt: str = ""  # why it is not known how it starts

    def in_image(self) -> Expected:
        """The same row where all of its modules are compiled."""
        return Expected(feature=self.feature, sm=self.sm, start=Start.FROM_IMAGE, leans_on=self.leans_on, why=self.why)


class FirstStarts(Data, frozen=True):
    """What a server's first start compiles there, of the rows that were asked for or that vLLM calls."""

    rows: tuple[str, ...] = ()  # that have something to compile
    modules: tuple[str, ...] = ()
    objects: int = 0
    seconds: float = 0.0  # with that many jobs
    jobs: int = 0
    memory_mib: int = 0  # the most that one compiler takes
    unknown: tuple[str, ...] = ()  # rows of which it is not known
    cannot: tuple[str, ...] = ()  # rows that FlashInfer has for that GPU, and that cannot be compiled
    unwarmed: tuple[str, ...] = ()  # of the rows those that no probe compiles for that GPU, so that `warm` cannot
    is_asked: bool = False  # the rows were asked for; else they are all that vLLM calls, of which a model takes a part


class Expectations(Data, frozen=True):
    """All of it; the verdicts that belong to it stand in the rows."""

    rows: tuple[Expected, ...]  # in the order of the report's
    first_start: FirstStarts
