"""What a machine that was read tells, in the words of logs; and what of FlashInfer works there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from fi_doctor.explaining.readers import VARIABLES
from fi_doctor.explaining.usage import ROWS, is_other
from fi_doctor.model import Facts, LogFact, Missing, Package, Report, Used, Verdict


def told(facts: Facts, name: str) -> tuple[LogFact, ...]:
    """The facts of a machine; what could not be read is not told. name: where they are from, "this machine"."""
    return tuple(_named(fact, name) for fact in _told(facts))


def compared(used: Iterable[Used], report: Report) -> tuple[Used, ...]:
    """The same, with what of FlashInfer works there by measurement, where the server uses something else."""
    works = [row.name for row in report.features if row.verdict is Verdict.WORKS]
    return tuple(
        replace(one, instead=", ".join(name for name in works if name.startswith(ROWS[one.part])))
        if is_other(one)
        else one
        for one in used
    )


def _named(fact: LogFact, name: str) -> LogFact:
    return replace(fact, file=name)


def _told(facts: Facts) -> Iterator[LogFact]:
    yield from _of_gpus(facts)
    jit = facts.toolkit.jit
    if not isinstance(jit, Missing):
        yield from _one("cuda_home", jit.cuda_home)
        if not isinstance(jit.nvcc, Missing):
            yield from _one("nvcc", jit.nvcc.version)
    yield from _one("torch_cuda", facts.toolkit.torch_cuda)
    for name, package in facts.packages.items():
        if isinstance(package, Package):
            yield from _one("package", package.version, name)
        elif package.absent:
            yield LogFact(name="installed", key=name, value="no")
    for name, value in facts.environment.items():
        if name.startswith(VARIABLES):
            yield LogFact(name="env", key=name, value=value)


def _of_gpus(facts: Facts) -> Iterator[LogFact]:
    if not isinstance(facts.gpus.gpus, Missing):
        for gpu in facts.gpus.gpus:
            yield LogFact(name="gpu", value=gpu.name)
            yield from _one("sm", gpu.sm)
    if not isinstance(facts.gpus.driver, Missing):
        yield from _one("driver", facts.gpus.driver.version)
        yield from _one("driver_cuda", facts.gpus.driver.cuda)


def _one(name: str, value: object, key: str = "") -> Iterator[LogFact]:
    if not isinstance(value, Missing):
        yield LogFact(name=name, key=key, value=str(value))
