"""Facts to which a message gives the lie: a build that ended for what the stated nvcc can do took another one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fi_doctor.conditions import Truth
from fi_doctor.conditions.compilers import SINCE, takes_from
from fi_doctor.conditions.log_relations import driver_cuda
from fi_doctor.conditions.logs import LOG, LogView
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import Match
from fi_doctor.model import Condition, Fault, LogFact, LogFacts, Missing

# Release of the toolkit from which nvcc takes an architecture: those of the GPUs that have a name, and others.
# Sources: the release notes of CUDA 10.0 to 13.0, nvcc --list-gpu-arch.
_SINCE = {**SINCE, 88: (13, 0), 101: (12, 8), **dict.fromkeys((50, 52, 53, 60, 61, 62, 72), (9, 0))}
_GONE, _GONE_WITH = frozenset({50, 52, 53, 60, 61, 62, 70, 72, 101}), (13, 0)
_OPTIONS = {"-static-global-template-stub": (12, 8)}
_OLDEST = "9.0"
_LISTS = ("FLASHINFER_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST")
# cause -> what speaks against it where it is given with a log, and what that means.
_AGAINST = {
    "nvcc-not-found": (("nvcc", ""), "which the process that compiles does not find"),
    "flashinfer-not-installed": (("package", "flashinfer-python"), "which the Python that failed does not see"),
    "gpu-not-visible": (("gpu", ""), "which this process does not see"),
}
_TOO_OLD = "driver-too-old-for-toolkit"  # the cause that a driver may be too new for
_TOOLS = ("nvcc", "driver", "driver_cuda", "torch_cuda", "cuda_home", "sm")
_TOGETHER = {"driver": ("driver", "driver_cuda"), "driver_cuda": ("driver", "driver_cuda"), "sm": ("sm", "gpu")}
_FIND = {
    "nvcc": (
        "see which nvcc it took: grep -rhE '^(nvcc|cuda_home) =' ~/.cache/flashinfer --include=build.ninja | sort -u, "
        "then --version of that one; in the environment of the server: echo $CUDA_HOME $FLASHINFER_NVCC; which -a nvcc"
    ),
    "driver": (
        "see which libcuda it loads, in the container of the server: ldconfig -p | grep libcuda.so; echo "
        "$LD_LIBRARY_PATH (a cuda-compat or a stub before the driver's own); pip list | grep -E 'cu1[23]'"
    ),
    "torch_cuda": "see which torch it loads: python -c 'import torch; print(torch.__file__, torch.version.cuda)'",
    "package": "see which Python it is: python -c 'import sys; print(sys.executable)' where the server is started",
    "sm": (
        "see for which GPUs it compiles and which it has: echo $FLASHINFER_CUDA_ARCH_LIST $TORCH_CUDA_ARCH_LIST and "
        "nvidia-smi -L in the container of the server"
    ),
    "gpu": "see what it may use: nvidia-smi -L and echo $CUDA_VISIBLE_DEVICES in the container of the server",
}


class Belied(NamedTuple):
    """A fact that does not agree with a message."""

    fact: LogFact
    means: str  # "which knows compute_120a: the build took another one"

    @property
    def said(self) -> str:
        """What is stated where, and what that means."""
        where = f"line {self.fact.line} of {self.fact.file}" if self.fact.line else self.fact.file
        return f"{where} states {self.fact.key or self.fact.name.replace('_', ' ')} {self.fact.value}, {self.means}"

    @property
    def find(self) -> str:
        """How to find what it was instead."""
        return _FIND.get(self.fact.name, _FIND["driver" if self.fact.name.startswith("driver") else "nvcc"])


def belied(fault: Fault, matches: Iterable[Match], facts: LogFacts, given: tuple[LogFact, ...]) -> Belied | None:
    """The fact that cannot be, where a message of this fault is right. given: facts that are not the log's own."""
    for architecture in _refused(matches):
        if knowing := [fact for fact in facts.of("nvcc") if _knows(fact.value, architecture)]:
            return Belied(knowing[0], f"which knows compute_{architecture}: the build took another one")
    if fault.cause == _TOO_OLD:
        return _too_new(facts)
    (name, key), means = _AGAINST.get(fault.cause, (("", ""), ""))
    against = next((fact for fact in given if (fact.name, fact.key) == (name, key)), None)
    return Belied(against, means) if against is not None else None


def fitting(matches: Iterable[Match], facts: LogFacts) -> LogFacts:
    """The facts, of several nvcc only those that do not know what was refused."""
    for architecture in _refused(matches):
        fit = [fact for fact in facts.of("nvcc") if not _knows(fact.value, architecture)]
        if fit:
            return LogFacts(facts=tuple(fact for fact in facts.facts if fact.name != "nvcc" or fact in fit))
    return facts


def is_implied(condition: Condition, matches: Iterable[Match], view: LogView) -> bool:
    """Whether a condition that the log's facts leave open holds by what a compiler's own line tells."""
    fuller = _implied(matches, view.facts)
    return bool(fuller) and all(LOG.holds(condition, view._replace(facts=facts)) is Truth.YES for facts in fuller)


def _implied(matches: Iterable[Match], facts: LogFacts) -> tuple[LogFacts, ...]:
    """The facts with what a compiler's own line tells, at both ends: "it is older than 12.9" has no release.

    The GPU is one of the architecture that was refused where a build names no other, and no list names any.
    """
    every = list(matches)
    found = [_since(architecture) for architecture in _refused(every)]
    found += [_OPTIONS.get(match.captured.get("option", "")) for match in every]
    since = [one for one in found if one is not None]
    if not since or facts.of("nvcc"):
        return ()
    place = every[0].line
    major, minor = min(since)
    numbers = {said.value.rstrip("af") for said in facts.of("architectures")}
    refused = {architecture.rstrip("af") for architecture in _refused(every)}
    is_listed = any(facts.of("env", name) for name in _LISTS)
    gpus = numbers if numbers == refused and len(numbers) == 1 and not is_listed else set()
    said = [("sm", number) for number in gpus if not facts.of("sm")]
    return tuple(
        LogFacts((*facts.facts, *(_told(place, name, value) for name, value in (*said, ("nvcc", nvcc)))))
        for nvcc in (f"{major}.{minor - 1}" if minor else f"{major - 1}.9", _OLDEST)
    )


def without(facts: LogFacts, one: Belied) -> LogFacts:
    """The facts less those of the same kind: nothing is claimed of them."""
    names = _TOGETHER.get(one.fact.name, (one.fact.name,)) if one.fact.name in _TOOLS else ()
    return LogFacts(facts=tuple(fact for fact in facts.facts if fact.name not in names))


def tools(facts: LogFacts, given: tuple[LogFact, ...]) -> tuple[Belied, ...]:
    """The given facts about toolkits, driver and GPU, each as if it were another, for a message that they rule out."""
    first = {fact.name: fact for fact in reversed(given) if fact.name in _TOOLS and fact in facts.facts}
    means = "with which this message does not come about: another one brought it"
    return tuple(Belied(first[name], means) for name in _TOOLS if name in first)


def _refused(matches: Iterable[Match]) -> list[str]:
    """The architectures that an nvcc refused: "120a"."""
    found = (match.captured.get("architecture", "") for match in matches if match.sign.source == "nvcc")
    return [architecture for architecture in found if architecture]


def _too_new(facts: LogFacts) -> Belied | None:
    """A driver that runs the CUDA of torch."""
    runs, torch = driver_cuda(facts), facts.of("torch_cuda")
    if isinstance(runs, Missing) or not torch:
        return None
    limit, built = parse_version(runs[0]), parse_version(torch[0].value)
    if limit is None or built is None or limit < built:
        return None
    fact = (*facts.of("driver"), *facts.of("driver_cuda"))[0]
    means = f"which runs CUDA {runs[0]}, and torch is of {torch[0].value}: another driver or a newer library was loaded"
    return Belied(fact, means)


def _told(line: Line, name: str, value: str) -> LogFact:
    return LogFact(name=name, value=value, file=line.file, line=line.number)


def _since(architecture: str) -> tuple[int, int] | None:
    """The release from which nvcc takes an architecture, "90a"; None where that is not known, or was taken away."""
    return None if int(architecture.rstrip("af")) in _GONE else takes_from(architecture, _SINCE)


def _knows(nvcc: str, architecture: str) -> bool:
    """Whether an nvcc takes an architecture, "90a"; one that is not in the table is not known."""
    version, number = parse_version(nvcc), int(architecture.rstrip("af"))
    since = takes_from(architecture, _SINCE)
    if version is None or since is None:
        return False
    release = (version.major, version.minor)
    return since <= release and (number not in _GONE or release < _GONE_WITH)
