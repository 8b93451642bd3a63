"""Filling the JIT cache: which modules, what came of each and what it cost. `fi-doctor warm --json` writes these."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing

WARMING_SCHEMA = "fi-doctor.warm/1.0"


class Place(Closed):
    """How a module stands in the cache."""

    NOT_BEGUN = "not begun"
    CUT_OFF = "cut off"
    FAILED = "failed"
    TO_COMPILE = "to compile"  # in a dry run
    BUILT = "built"
    UP_TO_DATE = "up to date"
    IN_JIT_CACHE = "in jit-cache"

    @property
    def is_there(self) -> bool:
        """Whether a server loads it and compiles nothing."""
        return self in (Place.BUILT, Place.UP_TO_DATE, Place.IN_JIT_CACHE)


class WarmModule(Data, frozen=True):
    """One JIT module, which is always compiled as a whole."""

    name: str
    place: Place
    why: str = ""  # of one that is not there: the first error line, or what it would have taken
    features: tuple[str, ...] = ()  # rows that need it
    objects: int = 0  # to compile when it was looked at
    seconds: float = 0.0  # that it took here; 0 where nothing was compiled
    cpu_seconds: float = 0.0
    estimated_seconds: float = 0.0  # by itself with all jobs; 0 where nothing is to be compiled
    peak_job_mib: int = 0  # the most that one compile command takes: an estimate until it was compiled, then measured
    # What it will add to the disk, by the size of modules that were measured.
    disk_mib: float | Missing = Missing(reason="nothing is to be compiled")


class Warming(Data, frozen=True):
    """What `fi-doctor warm` did, or with dry_run would do. Fields are only added within a major version of the schema.

    Every field named seconds, peak and disk is measured or estimated, and differs between runs.
    """

    schema: str
    dry_run: bool
    folder: str  # the cache that is filled
    jobs: int  # as asked for; in a dry run those that estimates are for, no more than there are CPUs
    memory_mib: int  # for all compilers together; in a dry run no more than there is; 0: any amount
    modules: tuple[WarmModule, ...]  # by name
    skipped: dict[str, str] = {}  # probe -> why its modules are not asked for here
    unasked: dict[str, str] = {}  # "probe variant" -> what it raised instead of asking for modules; counts as failed
    without_module: tuple[str, ...] = ()  # "probe variant" that asked for nothing to compile
    seconds: float = 0.0  # from the beginning to the end
    estimated_seconds: float = 0.0  # in a dry run: what all that is to be compiled takes with these jobs
    build_seconds: float = 0.0  # of `seconds`, those in which compilers ran
    cpu_seconds: float = 0.0  # of all compilers
    least_seconds: float = 0.0  # what nobody can do better: the longest module alone, or CPU seconds / jobs
    longest: str = ""  # that module
    peak_mib: int = 0  # the most that all compilers together held
    disk_mib: float | Missing = 0.0  # added; in a dry run: what will be
    command: str = ""  # that compiles what was not begun or cut off, or would be compiled; "" where there is no such
    look: str = ""  # the command that says why rows failed, of which the one above would compile no more
    caller: str = ""  # which vLLM calls these rows, in words; "" where that does not matter
    toolkit: str = ""  # what compiles: "nvcc 13.0 (/usr/local/cuda/bin/nvcc)"
    bounds: tuple[str, ...] = ()  # what it was held to beside others
    # Exit code: 0 all is there, or would be; 1 something failed, was not begun or is not known; 3 nothing is known.
    code: int = 0
