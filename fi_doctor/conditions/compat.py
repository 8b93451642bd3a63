"""Forward compatibility: a libcuda.so.1 of a cuda-compat package against the driver in the kernel and the GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath

from fi_doctor.conditions.compilers import SINCE
from fi_doctor.conditions.drivers import BRANCHES
from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.ranges import parse_version
from fi_doctor.conditions.relations import Relation, release_of
from fi_doctor.model import Facts, Gpu, Missing

_VERSION = re.compile(r"libcuda\.so\.(\d{3,4})\.[\d.]+$")
_FOLDERS = frozenset({"compat", "cuda-compat"})
# Forward compatibility is for data-centre GPUs, some RTX cards of certified servers, and Jetson: of these it is known.
_CONSUMER = re.compile(r"\b(GeForce|TITAN)\b", re.IGNORECASE)
_DATA_CENTRE = re.compile(
    r"\b(Tesla|T4|V100|A2|A10G?|A16|A30|A40|A100|A800|H20|H100|H200|H800|GH200|L4|L20|L40S?|B100|B200|B300|GB200|GB300)\b"
)
# The first driver branch of each CUDA major (https://docs.nvidia.com/deploy/cuda-compatibility).
_FIRST_BRANCHES = ((580, 13), (525, 12), (450, 11))
# The oldest driver in the kernel for which NVIDIA's table has the compat package of a CUDA major
# (https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html).
_OLDEST_KERNEL_DRIVERS = {13: 535}


def compat_older(facts: Facts) -> Relation:
    """The compat library in use, where it is of an older branch than the driver in the kernel."""
    return _in_use(facts, lambda compat, driver: compat < driver)


def compat_newer(facts: Facts) -> Relation:
    """The compat library in use, where it is of a newer branch: forward compatibility proper."""
    return _in_use(facts, lambda compat, driver: compat > driver)


def consumer_gpus(facts: Facts) -> Relation:
    """GPUs for which there is no forward compatibility, as NVML names them."""
    gpus = facts.gpus.gpus
    return gpus if isinstance(gpus, Missing) else _names(gpus, _CONSUMER)


def driver_folder(facts: Facts) -> Relation:
    """Where the driver's own libcuda.so.1 lies, to be named before the compat library's."""
    machine = facts.machine
    if isinstance(machine, Missing):
        return machine
    return (machine.driver_files.own_folder,) if machine.driver_files.own_folder else Missing(reason="it was not found")


def compat_for_torch(facts: Facts) -> Relation:
    """The folder of a compat library of this machine that runs torch's CUDA on these GPUs and this driver."""
    torch, branch, machine = release_of(facts.toolkit.torch_cuda), _driver_branch(facts), facts.machine
    package = compat_package(facts)
    if isinstance(torch, Missing) or isinstance(branch, Missing) or isinstance(package, Missing):
        return next(one for one in (torch, branch, package) if isinstance(one, Missing))
    if isinstance(machine, Missing):
        return machine
    fitting = [
        path
        for path in machine.driver_files.compat
        if (found := _branch(path)) and found > branch and _major(found) >= torch.major
    ]
    if not fitting:
        return Missing(reason="no cuda-compat of this machine runs it")
    return (str(PurePosixPath(fitting[0]).parent),)


def compat_package(facts: Facts) -> Relation:
    """NVIDIA's package for torch's CUDA, on GPUs that forward compatibility is for: "cuda-compat-13-0"."""
    cuda, gpus = facts.toolkit.torch_cuda, compat_gpus(facts)
    if isinstance(cuda, Missing) or isinstance(gpus, Missing):
        return cuda if isinstance(cuda, Missing) else gpus
    return (f"cuda-compat-{cuda.replace('.', '-')}",)


def compat_gpus(facts: Facts) -> Relation:
    """The GPUs here, where forward compatibility is for all of them and for the driver in the kernel."""
    gpus = facts.gpus.gpus
    if isinstance(gpus, Missing):
        return gpus
    if len(_names(gpus, _DATA_CENTRE)) < len({gpu.name for gpu in gpus}) or _names(gpus, _CONSUMER):
        return Missing(reason="forward compatibility is not known to be for these GPUs")
    if why := _unhelped(facts):
        return Missing(reason=why)
    return _names(gpus, _DATA_CENTRE)


def _unhelped(facts: Facts) -> str:
    """Why no compat package helps the driver in the kernel; "" where one may."""
    branch, cuda = _driver_branch(facts), release_of(facts.toolkit.torch_cuda)
    gpus = () if isinstance(facts.gpus.gpus, Missing) else facts.gpus.gpus
    if isinstance(branch, Missing):
        return ""
    runs = parse_version(BRANCHES.get(str(branch), ""))
    unknown = [
        gpu.sm for gpu in gpus if runs and isinstance(gpu.sm, int) and runs.release[:2] < SINCE.get(gpu.sm, (0, 0))
    ]
    if unknown:
        return f"the driver in the kernel does not know SM{unknown[0]}"
    if isinstance(cuda, Missing) or branch >= _OLDEST_KERNEL_DRIVERS.get(cuda.major, 0):
        return ""
    return f"NVIDIA's table has no driver {branch} for CUDA {cuda.major}"


def _in_use(facts: Facts, is_meant: Callable[[int, int], bool]) -> Relation:
    branch, machine = _driver_branch(facts), facts.machine
    if isinstance(branch, Missing):
        return branch
    libcuda = machine if isinstance(machine, Missing) else machine.driver_files.libcuda
    if isinstance(libcuda, Missing):
        return () if libcuda.absent else libcuda
    found = _branch(libcuda)
    return (libcuda,) if found and _is_compat(libcuda) and is_meant(found, branch) else ()


def _driver_branch(facts: Facts) -> int | Missing:
    """580 of 580.95.05, the driver in the kernel as NVML tells it."""
    driver = facts.gpus.driver
    if isinstance(driver, Missing):
        return driver
    found = re.match(r"\d{1,9}(?!\d)", driver.version)
    return int(found[0]) if found else Missing(reason=f"{driver.version!r} is no version of a driver")


def _branch(path: str) -> int:
    """That of a library, by its name; 0 where it does not tell."""
    found = _VERSION.search(path)
    return int(found[1]) if found else 0


def _is_compat(path: str) -> bool:
    return not _FOLDERS.isdisjoint(PurePosixPath(path).parts)


def _major(branch: int) -> int:
    return next((major for first, major in _FIRST_BRANCHES if branch >= first), 0)


def _names(gpus: tuple[Gpu, ...], meant: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gpu.name for gpu in gpus if meant.search(gpu.name)))


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "compat_older": (Kind.TEXT, compat_older),
    "compat_newer": (Kind.TEXT, compat_newer),
    "consumer_gpus": (Kind.TEXT, consumer_gpus),
    "driver_folder": (Kind.TEXT, driver_folder),
    "compat_for_torch": (Kind.TEXT, compat_for_torch),
    "compat_gpus": (Kind.TEXT, compat_gpus),
    "compat_package": (Kind.TEXT, compat_package),
}
