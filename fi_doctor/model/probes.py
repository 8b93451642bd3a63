"""Probes and what happened to them: a specification, a plan, an outcome."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data, Missing, Strict


class Depth(Closed):
    """How much is done: read only, compile too, run too."""

    STATIC = "static"
    BUILD = "build"
    RUN = "run"


class Stage(Closed):
    """How far a probe came, in order."""

    NONE = "none"
    IMPORTED = "imported"
    BUILT = "built"
    RAN = "ran"
    VERIFIED = "verified"


class Ending(Closed):
    """How a probe, or one variant of it, ended."""

    NOT_RUN = "not-run"
    RETURNED = "returned"
    WRONG = "wrong-result"  # its own check failed: AssertionError
    RAISED = "raised"
    SIGNALLED = "signalled"  # killed by a signal that we did not send
    EXITED = "exited"  # left without finishing its record, or with a non-zero status
    TIMED_OUT = "timed-out"
    LOST = "lost"  # the record is cut or unreadable

    @property
    def is_bad(self) -> bool:
        """Whether something was tried and did not end well."""
        return self not in (Ending.RETURNED, Ending.NOT_RUN)


class Requires(Strict, frozen=True):
    """What a probe or a variant needs; an empty string asks for nothing."""

    sm: str = ""  # range of compute capability, ">=90,<100"
    flashinfer: str = ""  # version range of flashinfer-python
    nvcc: str = ""  # version range of the CUDA version that FlashInfer's gates compare
    symbols: tuple[str, ...] = ()  # dotted names that the installed package must have
    packages: dict[str, str] = {}  # distribution -> version range, "" for any
    peer_access: bool = False  # that at least two of the GPUs reach each other's memory
    gpus: int = 0  # of one kind, where a variant needs more than its probe


class Subset(Strict, frozen=True):
    """What part of its module a probe can do with, where the whole takes too long to compile."""

    units: str  # which part: fi_doctor/inside/units.py
    units_of: dict[str, str] = {}  # variant -> another part, of those that can do with less
    variants: tuple[str, ...] = ()  # those for which it suffices; empty: all
    if_short: bool = False  # only where the budget is too short for the whole
    without: str = ""  # regular expression of kernel instances to leave out: to see that a gap is noticed


OWN = "fi-doctor"  # the origin of our own probes
# What a probe may count of what it compared with a reference; the names are among what run() returns.
COUNTS = ("elements", "bytes", "scales", "rows", "draws", "selected", "transfers")


class ProbeSpec(Data, frozen=True):
    """One probe as its PROBE literal declares it; read with ast, never imported."""

    id: str
    feature: str
    path: str  # the file
    origin: str  # distribution that brought it
    question: str  # first sentence of its docstring
    module: str  # the FlashInfer JIT module that it builds, "" for none
    requires: Requires
    variants: dict[str, Requires]  # empty: run() takes no argument and the only cell is called ""
    gpus: int  # how many GPUs run() needs; 0 runs anywhere
    timeout_s: int  # for one run()
    build_timeout_s: int
    compiles: tuple[str, ...]  # nvcc, nvrtc, cute-dsl, cutile, triton, ptx
    has_build: bool
    checks_numbers: bool  # False: a return is `ran`, not `verified` (imports); True: where something was compared
    # It only asks whether FlashInfer's own checks let the call through: a return is `declared` and no more.
    gate_only: bool = False
    runs_by_hand: bool = True  # it has a __main__ block, which takes names of variants where there are any
    subset: Subset | None = None
    fault: str = ""  # why it cannot be used, with file and line; nothing else of it is known then
    most_gpus: int = 0  # how many it takes where there are more than it needs; 0: no more than it needs

    @property
    def worlds(self) -> tuple[int, ...]:
        """How many GPUs its variants take, where some take more than others; () where all take what there is."""
        more = {requires.gpus for requires in self.variants.values() if requires.gpus}
        return (self.gpus, *sorted(more)) if more else ()

    def takes(self, seen: int) -> int:
        """Of so many GPUs of a kind: none that no variant makes use of."""
        return max((one for one in self.worlds if one <= seen), default=max(self.gpus, self.most_gpus))


class PlannedProbe(Data, frozen=True):
    """A probe that will be tried on one SM, or why not."""

    spec: ProbeSpec
    sm: int | Missing  # of the GPU it runs on, or of the architecture it is built for
    gpu_uuids: tuple[str, ...]  # CUDA_VISIBLE_DEVICES of the run; empty without a GPU
    depth: Depth  # how far this probe goes; STATIC when it is skipped
    variants: tuple[str, ...]  # those to try; ("",) where the probe has none
    skipped_variants: dict[str, str]  # variant -> why not here
    skip: str  # why it is not tried, or why less deep than was asked for; "" = as deep as was asked for
    deciding: tuple[str, ...] = ()  # variants that decide the row for the installed vLLM; empty where that is not known
    served: tuple[str, ...] = ()  # variants that a server calls without being told to: diagnosis/serving.py
    caller: str = ""  # which server that is, in words

    @property
    def is_tried(self) -> bool:
        """Whether a process is started for it."""
        return self.depth is not Depth.STATIC

    @property
    def builds_module(self) -> bool:
        """Whether it is tried and says that it builds a module of FlashInfer."""
        return self.is_tried and self.spec.has_build and bool(self.spec.module)


class CellOutcome(Data, frozen=True):
    """What happened to one variant."""

    variant: str
    stage: Stage
    ending: Ending
    detail: str  # "SIGSEGV", "max error 0.5 over 0.01", why it was not run
    error: str = ""  # exception type, dotted
    traceback: str = ""  # last lines
    measurements: dict[str, float | int | str | bool] = {}
    seconds: float = 0.0
    # Where its JIT modules came from: "jit-cache" (that package), "cache" (up to date in the JIT cache), "built" (in
    # this check), "subset" (a part of it, of this check or kept); several words are joined with ", ". Empty: it was
    # not tried, needs none, or has none.
    module_from: str = ""
    modules: tuple[str, ...] = ()  # their names, where it was asked which; of a part that of the whole module

    @property
    def compares(self) -> bool:
        """Whether anything was compared with a reference: a count of it is above zero."""
        counts = (self.measurements.get(name, 0) for name in COUNTS)
        return any(not isinstance(count, (bool, str)) and count > 0 for count in counts)

    @property
    def refusal(self) -> str:
        """The words with which the package refused some or all of the calls; "" where it took them all."""
        before, said, words = str(self.measurements.get("answer", "")).partition("refused: ")
        return str(self.measurements.get("refusal", words if said and not before else ""))


class Outcome(Data, frozen=True):
    """What happened to a probe on one SM, mechanically."""

    probe: str
    feature: str
    sm: int | Missing
    depth: Depth  # how deep it was asked to go
    stage: Stage  # the furthest that the whole probe came; of the variants, the least
    ending: Ending  # the first bad ending, else returned
    detail: str
    cells: tuple[CellOutcome, ...]  # one for each variant, in declared order
    seconds: dict[str, float] = {}  # stage -> seconds spent reaching it
    output: str = ""  # last lines of its stdout and stderr
    reproduce: str = ""  # a shell line that runs the same probe by hand
    cached: bool = False  # whether the build stage found a finished module and compiled nothing
    whole_module: str = ""  # where only a part of its module was compiled: what is to be said of the whole
    started: str = ""  # "fresh": an interpreter of its own; "forked": from one that had imported torch and flashinfer
