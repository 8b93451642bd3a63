"""The versions that a move changes: what is named, and what moves with it because releases require it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace
from packaging.requirements import Requirement

from fi_doctor import upgraded
from fi_doctor.conditions.compilers import SINCE, compiles_from, runs_from
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.ranges import parse_version, version_in
from fi_doctor.conditions.requirements import applicable
from fi_doctor.knowledge import pins
from fi_doctor.model import Facts, Missing, Package
from fi_doctor.model.numbers import whole
from fi_doctor.model.plans import Need, Pin

VLLM, FLASHINFER, TORCH = "vllm", "flashinfer-python", "torch"
COMPANIONS = ("flashinfer-cubin", "flashinfer-jit-cache")
_CALLED = {VLLM: "vLLM", FLASHINFER: "FlashInfer"}
_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_NOTES = "the release notes of the CUDA toolkits"


class Moved(NamedTuple):
    """The packages that a move changes."""

    pins: tuple[Pin, ...]
    versions: dict[str, str]  # distribution -> its version; "" where only a range of it is known


def packages(facts: Facts, asked: Mapping[str, str]) -> Moved:
    """Those that are named, and what the releases named require otherwise than is there.

    A version that is named and that a release at the end of the move does not admit is kept, and named as what it is.
    """
    found = {name: _asked(name, version, facts) for name, version in asked.items()}
    versions = dict(asked)
    for by in (VLLM, FLASHINFER):
        if by not in found or found[by].after == found[by].before:
            continue
        for line, wanted in _required(by, found[by].after, facts, is_moved=True):
            if wanted.name not in found and not _is_met(wanted, facts):
                exact = pins.exact(line)
                versions[wanted.name] = exact or ""
                to, told = exact or str(wanted.specifier), _said(by, found[by].after, wanted)
                found[wanted.name] = _pin(wanted.name, facts, to, told, _metadata(by, found[by].after))
    if versions.get(FLASHINFER, installed(FLASHINFER, facts)) != installed(FLASHINFER, facts):
        for name in COMPANIONS:
            if name not in found and isinstance(facts.packages.get(name), Package):
                versions[name] = versions[FLASHINFER]
                why = "it has to be of FlashInfer's version"
                found[name] = _pin(name, facts, versions[FLASHINFER], why, "flashinfer/jit/env.py")
    found = _with_overrides(found, facts)
    kept = {name: pin for name, pin in found.items() if pin.before != pin.after or pin.overrides}
    return Moved(tuple(kept.values()), {name: version for name, version in versions.items() if name in kept})


def _with_overrides(found: dict[str, Pin], facts: Facts) -> dict[str, Pin]:
    """The same with what either release at the end does not admit of it."""
    found = dict(found)
    for by in (VLLM, FLASHINFER):
        is_moved = by in found and found[by].after != found[by].before
        version = found[by].after if by in found else installed(by, facts)
        for line, wanted in _required(by, version, facts, is_moved=is_moved):
            pin = found.get(wanted.name)
            if pin is not None and not pin.overrides and not _admits(wanted, pins.exact(line), pin.after):
                found[wanted.name] = replace(pin, overrides=_said(by, version, wanted))
    return found


def _admits(wanted: Requirement, exact: str | None, after: str) -> bool:
    """Whether a requirement admits a version, or a range something of it as far as can be told."""
    if parse_version(after) is not None:
        return wanted.specifier.contains(after, prereleases=True)
    if after[:1].isdecimal():
        return not wanted.specifier  # it is a version that nobody can compare
    return exact is None or version_in(exact, after) is not False


def _said(by: str, version: str, wanted: Requirement) -> str:
    return f"{_CALLED[by]} {version} requires {wanted.name}{wanted.specifier}"


def machine(before: Facts, after: Facts, *, asks_torch: bool) -> Iterator[Pin]:
    """GPU, driver, toolkit and torch's CUDA, where they are others."""
    why, source = "it is asked for", "--to"
    for what, one, other in (
        ("GPU", gpus_told(before), gpus_told(after)),
        ("driver", driver_of(before), driver_of(after)),
        ("nvcc", nvcc_of(before), nvcc_of(after)),
    ):
        if one != other:
            yield Pin(what=what, before=one, after=other, is_asked=True, why=why, source=source)
    cuda, then = (_known(facts.toolkit.torch_cuda) for facts in (before, after))
    torch = after.version_of(TORCH)
    if cuda != then and then:
        line = next(iter(pins.load()[TORCH].get(torch, ())), "")
        yield Pin(
            what="torch's CUDA",
            before=cuda,
            after=then,
            is_asked=asks_torch,
            why=f"the wheel of torch {torch} on PyPI is for it",
            source=f"{_metadata(TORCH, torch)}: {Requirement(line).name if line else 'nothing known'}",
        )


def needs(after: Facts) -> tuple[Need, ...]:
    """What GPU and torch at the end of the move need of driver, toolkit and torch."""
    return (*_of_driver(after), *_of_gpu(after))


def installed(name: str, facts: Facts) -> str:
    """Its version; "" where it is not installed or not known."""
    if name == FLASHINFER and not isinstance(facts.flashinfer, Missing):
        return _known(facts.flashinfer.version)
    return facts.version_of(name)


def nvcc_of(facts: Facts) -> str:
    """The release of the toolkit that FlashInfer's JIT takes; "" where there is none."""
    jit = facts.toolkit.jit
    compiler = jit if isinstance(jit, Missing) else jit.compiler
    return "" if isinstance(compiler, Missing) else _known(compiler.version)


def driver_of(facts: Facts) -> str:
    """Its version, or the branch that was named; "" where it is not known."""
    driver = facts.gpus.driver
    return "" if isinstance(driver, Missing) else driver.version


def gpus_told(facts: Facts) -> str:
    """The GPUs in words, "2 x NVIDIA H200 (SM90)"; "" where there are none."""
    gpus = () if isinstance(facts.gpus.gpus, Missing) else facts.gpus.gpus
    kinds: dict[str, int] = {}
    for gpu in gpus:
        told = f"SM{gpu.sm}" if isinstance(gpu.sm, int) else "an SM that is not known"
        kinds[told if gpu.name == "GPU" else f"{gpu.name} ({told})"] = 0
    numbers = {told: sum(told.startswith(gpu.name) or gpu.name == "GPU" for gpu in gpus) for told in kinds}
    return ", ".join(f"{number} x {told}" if number > 1 else told for told, number in numbers.items())


def sms_of(facts: Facts) -> tuple[int, ...]:
    """The compute capabilities of the GPUs, without the dot."""
    gpus = () if isinstance(facts.gpus.gpus, Missing) else facts.gpus.gpus
    return tuple(sorted({gpu.sm for gpu in gpus if isinstance(gpu.sm, int)}))


def _of_driver(after: Facts) -> Iterator[Need]:
    found, torch = driver_of(after), after.version_of(TORCH)
    wanted = {f"torch {torch} is for CUDA {cuda}": cuda for cuda in [_known(after.toolkit.torch_cuda)] if cuda}
    wanted |= {f"nvcc {nvcc} compiles for CUDA {nvcc}": nvcc for nvcc in [nvcc_of(after)] if nvcc}
    said = "and a driver runs every release of its own CUDA major and of older ones"
    asked = [
        (_first_branch((whole(cuda.partition(".")[0]) or 0, 0)), f"{why}, {said}", _COMPATIBILITY)
        for why, cuda in wanted.items()
    ]
    asked += [
        (_first_branch(SINCE[sm]), f"it is the first whose CUDA knows SM{sm}", _NOTES)
        for sm in sms_of(after)
        if sm in SINCE
    ]
    if not asked:
        return
    least, why, source = max(asked, key=lambda one: one[0])
    is_met: bool | Missing = Missing(reason="the driver is not known")
    if (branch := whole(found.partition(".")[0])) is not None:
        is_met = branch >= least
    if not least:
        return
    yield Need(
        what="driver",
        least=str(least),
        found=found,
        is_met=is_met,
        why=why,
        source=source,
    )


def _first_branch(cuda: tuple[int, int]) -> int:
    """The oldest branch of the driver that runs this CUDA without help; 0 where none does."""
    runs = (branch for branch, newest in BRANCHES.items() if tuple(map(int, newest.split("."))) >= cuda)
    return min(map(int, runs), default=0)


def _of_gpu(after: Facts) -> Iterator[Need]:
    for sm in sms_of(after):
        if sm not in SINCE:
            continue
        yield _need("nvcc", compiles_from(sm), nvcc_of(after), f"the first that compiles for SM{sm}")
        found = _known(after.toolkit.torch_cuda)
        yield _need("torch's CUDA", runs_from(sm), found, f"the first with code that SM{sm} runs")


def _need(what: str, least: tuple[int, int], found: str, why: str) -> Need:
    version, bound = parse_version(found), ".".join(map(str, least))
    is_met: bool | Missing = Missing(reason=f"{what} is not known")
    if version is not None:
        is_met = version.release[:2] >= least
    return Need(what=what, least=bound, found=found, is_met=is_met, why=why, source=_NOTES)


def _asked(name: str, version: str, facts: Facts) -> Pin:
    return replace(_pin(name, facts, version, "it is asked for", "--to"), is_asked=True)


def _pin(name: str, facts: Facts, after: str, why: str, source: str) -> Pin:
    built_for = ""
    if name == TORCH and not isinstance(cuda := upgraded.cuda_of_torch(after), Missing):
        built_for = f"; its wheel on PyPI is for CUDA {cuda}"
    return Pin(
        what=name,
        before=installed(name, facts),
        after=after,
        is_asked=False,
        why=f"{why}{built_for}",
        source=source,
    )


def _required(by: str, version: str, facts: Facts, *, is_moved: bool) -> Iterator[tuple[str, Requirement]]:
    """What a package at the end of the move requires, by its release or as it is installed."""
    package = facts.packages.get(by)
    lines: Iterable[str] = pins.load()[by].get(version, ()) if is_moved else ()
    if not is_moved and isinstance(package, Package):
        lines = package.requires
    for line in lines:
        wanted = applicable(line, facts)
        if wanted is not None:
            yield line, wanted


def _is_met(wanted: Requirement, facts: Facts) -> bool:
    version = installed(wanted.name, facts)
    is_version = parse_version(version) is not None
    return is_version and (not wanted.specifier or wanted.specifier.contains(version, prereleases=True))


def _metadata(name: str, version: str) -> str:
    return f"Requires-Dist of {name} {version}"


def _known(value: str | Missing) -> str:
    return "" if isinstance(value, Missing) else value
