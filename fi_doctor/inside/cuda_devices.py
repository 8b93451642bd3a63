"""What CUDA itself sees, in CUDA's own numbering: asks the driver and prints one JSON line.

Standard library only, run as a script in a child process: CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER and MIG are applied
by the driver of that process, and what hangs or crashes there harms nobody. cuInit alone makes no context, so no GPU
memory is taken.

Prints {"library", "driver", "devices": [{"uuid", "parent", "sm", "name", "memory_mib", "pci_bus"}]}, or
{"library", "failed": "<function>", "code": <CUresult>, "text": "<name or reason>"}. Always exits with 0.
"""

import ctypes
import json
import uuid
from collections.abc import Callable

COMPUTE_CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR is the next
NO_SYMBOL = -1  # our own code: the library does not have the function


class CudaError(Exception):
    """A driver function that failed."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.function = function
        self.code = code
        self.text = text


class Cuda:
    """The CUDA driver library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def call(self, function: str, *arguments: object) -> None:
        """Call a function, or raise CudaError with its result's name."""
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise CudaError(function, NO_SYMBOL, f"this libcuda.so.1 has no {function}") from None
        if code:
            raise CudaError(function, code, self._name_of(code))

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        try:
            self._library.cuGetErrorName(code, ctypes.byref(name))
        except AttributeError:
            return f"CUresult {code}"
        return (name.value or f"CUresult {code}".encode()).decode()


def examine() -> dict[str, object]:
    """Everything the driver tells without a context."""
    try:
        cuda = Cuda()
    except OSError as error:
        return {"library": "", "failed": "dlopen", "code": NO_SYMBOL, "text": str(error)}
    library = library_path()
    try:
        cuda.call("cuInit", 0)
        return {"library": library, "driver": read_version(cuda), "devices": read_devices(cuda)}
    except CudaError as error:
        return {"library": library, "failed": error.function, "code": error.code, "text": error.text}


def read_version(cuda: Cuda) -> int:
    """The newest CUDA that this libcuda runs: 13000 means 13.0."""
    version = ctypes.c_int()
    cuda.call("cuDriverGetVersion", ctypes.byref(version))
    return version.value


def read_devices(cuda: Cuda) -> list[dict[str, object]]:
    """The devices in CUDA's order; one without a UUID makes the whole list useless and raises."""
    count = ctypes.c_int()
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    return [read_device(cuda, index) for index in range(count.value)]


def read_device(cuda: Cuda, index: int) -> dict[str, object]:
    """One device. A value that the driver does not give is null."""
    handle = ctypes.c_int()
    cuda.call("cuDeviceGet", ctypes.byref(handle), index)
    own, parent = read_uuids(cuda, handle)
    # Under MIG only _v2 names the instance; the first version still gives the GPU that it is a part of.
    device: dict[str, object] = {"uuid": f"{'GPU' if own == parent else 'MIG'}-{own}", "parent": f"GPU-{parent}"}
    device["sm"] = value_or_none(read_sm, cuda, handle)
    device["name"] = value_or_none(read_name, cuda, handle)
    device["memory_mib"] = value_or_none(read_memory, cuda, handle)
    device["pci_bus"] = value_or_none(read_pci_bus, cuda, handle)
    return device


def value_or_none(read: Callable[[Cuda, ctypes.c_int], object], cuda: Cuda, handle: ctypes.c_int) -> object:
    """What read gives, or None when the driver does not give it."""
    try:
        return read(cuda, handle)
    except CudaError:
        return None


def read_uuids(cuda: Cuda, handle: ctypes.c_int) -> tuple[str, str]:
    """A device's own UUID and that of the GPU it is a part of; drivers have had both functions since 11.4."""
    try:
        own = read_uuid(cuda, "cuDeviceGetUuid_v2", handle)
    except CudaError:
        own = read_uuid(cuda, "cuDeviceGetUuid", handle)
        return own, own
    try:
        return own, read_uuid(cuda, "cuDeviceGetUuid", handle)
    except CudaError:
        return own, own


def read_uuid(cuda: Cuda, function: str, handle: ctypes.c_int) -> str:
    """A UUID as NVML spells it, without its GPU- or MIG-."""
    octets = (ctypes.c_ubyte * 16)()
    cuda.call(function, ctypes.byref(octets), handle)
    return str(uuid.UUID(bytes=bytes(octets)))


def read_sm(cuda: Cuda, handle: ctypes.c_int) -> int:
    """Compute capability without the dot."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.call("cuDeviceGetAttribute", ctypes.byref(major), COMPUTE_CAPABILITY_MAJOR, handle)
    cuda.call("cuDeviceGetAttribute", ctypes.byref(minor), COMPUTE_CAPABILITY_MAJOR + 1, handle)
    return major.value * 10 + minor.value


def read_name(cuda: Cuda, handle: ctypes.c_int) -> str:
    """The product's name."""
    name = ctypes.create_string_buffer(256)
    cuda.call("cuDeviceGetName", name, len(name), handle)
    return name.value.decode(errors="replace")


def read_memory(cuda: Cuda, handle: ctypes.c_int) -> int:
    """Total memory in MiB; of a MIG instance its own share."""
    octets = ctypes.c_size_t()
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(octets), handle)
    return octets.value >> 20


def read_pci_bus(cuda: Cuda, handle: ctypes.c_int) -> str:
    """Where the GPU sits, "0000:3B:00.0"."""
    bus = ctypes.create_string_buffer(64)
    cuda.call("cuDeviceGetPCIBusId", bus, len(bus), handle)
    return bus.value.decode(errors="replace")


def library_path() -> str:
    """The file that libcuda.so.1 turned out to be; empty when /proc does not tell."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123  # pathlib is slow to import
            paths = [line.rstrip("\n").partition("/")[2] for line in maps]
    except OSError:
        return ""
    return next((f"/{path}" for path in paths if path.rpartition("/")[2].startswith("libcuda.so")), "")


if __name__ == "__main__":
    print(json.dumps(examine()))
