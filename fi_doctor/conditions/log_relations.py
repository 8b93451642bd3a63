"""What facts of a log are to each other: which of two versions is newer, whether packages go together."""

from __future__ import annotations

import operator
from collections.abc import Callable

from packaging.version import Version

from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import LogFacts, Missing

Flags = tuple[bool, ...] | Missing
_Fact = Callable[[LogFacts], Version | Missing]


def driver_cuda(facts: LogFacts) -> tuple[str, ...] | Missing:
    """The newest CUDA that the driver runs: by its branch, else as nvidia-smi says.

    In a container with a cuda-compat library nvidia-smi names what that would run, whether or not it does on this GPU.
    """
    drivers = facts.of("driver")
    branch = drivers[0].value.partition(".")[0] if drivers else ""
    if branch in BRANCHES:
        return (BRANCHES[branch],)
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
    if isinstance(found, Missing):
        return found
    return parse_version(found[0]) or Missing(reason=f"{found[0]!r} is no version")


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
