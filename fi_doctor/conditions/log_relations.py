"""What facts of a log are to each other: which of two versions is newer, whether packages go together."""

from __future__ import annotations

import operator
from collections.abc import Callable

from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import LogFacts, Missing
from fi_doctor.model.numbers import whole

# The newest CUDA that each branch of the driver runs, from https://docs.nvidia.com/cuda/cuda-toolkit-release-notes;
# newer branches are not known here, and nvidia-smi says it of them.
_BRANCHES = {
    450: "11.0",
    455: "11.1",
    460: "11.2",
    465: "11.3",
    470: "11.4",
    495: "11.5",
    510: "11.6",
    515: "11.7",
    520: "11.8",
    525: "12.0",
    530: "12.1",
    535: "12.2",
    545: "12.3",
    550: "12.4",
    555: "12.5",
    560: "12.6",
    565: "12.7",
    570: "12.8",
    575: "12.9",
    580: "13.0",
    590: "13.1",
}
Flags = tuple[bool, ...] | Missing
_Fact = Callable[[LogFacts], Version | Missing]


def driver_cuda(facts: LogFacts) -> tuple[str, ...] | Missing:
    """The newest CUDA that the driver runs: by its branch, else as nvidia-smi says.

    In a container with a cuda-compat library nvidia-smi names what that would run, whether or not it does on this GPU.
    """
    drivers = facts.of("driver")
    branch = drivers[0].value.partition(".")[0] if drivers else ""
    if (number := whole(branch)) in _BRANCHES:
        return (_BRANCHES[number],)
    said = facts.of("driver_cuda")
    return (said[0].value,) if said else Missing(reason="the log does not tell what CUDA the driver runs")


def differs_from_flashinfer(facts: LogFacts, name: str) -> Flags:
    """Whether a companion is of another release than FlashInfer; the part after + is the CUDA that it is built for."""
    own, other = _package(facts, "flashinfer-python"), _package(facts, name)
    if isinstance(own, Missing) or isinstance(other, Missing):
        return next(one for one in (own, other) if isinstance(one, Missing))
    return (own.public != other.public,)


def _package(facts: LogFacts, name: str) -> Version | Missing:
    return _version(facts, "package", name)


def _version(facts: LogFacts, name: str, key: str = "") -> Version | Missing:
    said = facts.of(name, key)
    parsed = parse_version(said[0].value) if said else None
    return Missing(reason=f"the log does not tell the version of {key or name}") if parsed is None else parsed


def _driver(facts: LogFacts) -> Version | Missing:
    found = driver_cuda(facts)
    return found if isinstance(found, Missing) else Version(found[0])


def _compared(
    one: _Fact, holds: Callable[[tuple[int, ...], tuple[int, ...]], bool], other: _Fact, parts: int
) -> Callable[[LogFacts], Flags]:
    """A comparison of the first one or two numbers of two versions."""

    def of(facts: LogFacts) -> Flags:
        left, right = one(facts), other(facts)
        if isinstance(left, Missing) or isinstance(right, Missing):
            return next(side for side in (left, right) if isinstance(side, Missing))
        return (holds(left.release[:parts], right.release[:parts]),)

    return of


def _nvcc(facts: LogFacts) -> Version | Missing:
    return _version(facts, "nvcc")


def _torch(facts: LogFacts) -> Version | Missing:
    return _version(facts, "torch_cuda")


RELATIONS: dict[str, Callable[[LogFacts], Flags]] = {
    "nvcc_newer_than_driver": _compared(_nvcc, operator.gt, _driver, 2),
    "nvcc_major_newer_than_driver": _compared(_nvcc, operator.gt, _driver, 1),
    "torch_cuda_newer_than_driver": _compared(_torch, operator.gt, _driver, 2),
    "torch_cuda_major_newer_than_driver": _compared(_torch, operator.gt, _driver, 1),
    "nvcc_differs_from_torch": _compared(_nvcc, operator.ne, _torch, 2),
    "nvcc_major_differs_from_torch": _compared(_nvcc, operator.ne, _torch, 1),
    "nvcc_newer_than_torch": _compared(_nvcc, operator.gt, _torch, 2),
}
