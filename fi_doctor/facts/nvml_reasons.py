"""In words: what keeps NVML from telling, and what helps. Pure text from codes and versions."""

from __future__ import annotations

import os
import re

LIBRARY = "libnvidia-ml.so.1"
LIBCUDA = "libcuda.so.1"
GIVE_GPUS = (
    "start it with GPUs (docker run --gpus all; podman run --device nvidia.com/gpu=all; "
    "in Kubernetes the limit nvidia.com/gpu)"
)

_SEE_LOG = "see dmesg | grep -i -e nvrm -e xid"


def kernel_module_version(text: str) -> str | None:
    """The version of the loaded kernel driver, from the text of /proc/driver/nvidia/version."""
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+\.\d+(?:\.\d+)?)", text)
    return match[1] if match else None


def cuda_version(number: int) -> str:
    """The driver's way of writing a CUDA version in words: 12080 is 12.8."""
    return f"{number // 1000}.{number % 1000 // 10}"


def why_hung(doing: str, timeout_s: float) -> str:
    """Why there is no answer after the time limit."""
    if doing.endswith("was being opened"):
        return f"NVML was not asked: {doing}, and not within {timeout_s:g} s: its file system hangs"
    return (
        f"NVML did not answer within {timeout_s:g} s while {doing}: a GPU or the driver hangs; "
        f"{_SEE_LOG}, then reset the GPU or reboot"
    )


def why_not_loaded(text: str, *, kernel: str | None, container: bool) -> str:
    """Why the NVML library cannot be loaded. text: what the dynamic linker said; kernel: the loaded kernel driver."""
    if not text.startswith(f"{LIBRARY}: cannot open shared object file: No such file"):
        return f"the driver's NVML library is there but cannot be loaded: {text}"
    if kernel and container:
        return (
            f"the host runs the NVIDIA driver {kernel}, but this container was given no {LIBRARY}: {GIVE_GPUS}, "
            "with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        )
    if kernel:
        return (
            f"the NVIDIA kernel driver {kernel} is loaded, but {LIBRARY} is not found: install the driver's "
            "libraries of the same version (on Debian and Ubuntu libnvidia-compute-...), then run ldconfig"
        )
    if container:
        return (
            f"no NVIDIA driver reaches this container (no {LIBRARY}, no kernel driver): if the host has GPUs, "
            f"{GIVE_GPUS}"
        )
    return f"no NVIDIA driver on this machine: there is no {LIBRARY} and no kernel driver is loaded"


def why_stub(library: str) -> str:
    """Why the toolkit's stub library is not asked."""
    return f"{library} is the CUDA toolkit's stub for linking, not the driver's: take its folder out of LD_LIBRARY_PATH"


def why_not_started(code: int, text: str, *, library: str, kernel: str | None, container: bool) -> str:
    """Why NVML does not start. code, text: what nvmlInit returned; library: the file, named after its version."""
    if code == 18:  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
        return _mismatch(library, kernel, container=container)
    if code == 9:  # NVML_ERROR_DRIVER_NOT_LOADED
        if container:
            return f"{LIBRARY} is in this container, but no NVIDIA kernel driver or device answers: {GIVE_GPUS}"
        return (
            f"{LIBRARY} is there, but the NVIDIA kernel driver is not loaded: sudo modprobe nvidia; "
            "if that fails, see dmesg | grep -i nvidia"
        )
    if code == 4:  # NVML_ERROR_NO_PERMISSION
        return (
            f"permission denied: user {os.getuid()} may not use the NVIDIA driver; it must read and write "
            "/dev/nvidiactl and /dev/nvidia0, 1, ... (ls -l /dev/nvidia*; group video or render, "
            "or a container's device rules)"
        )
    if code == 12:  # NVML_ERROR_LIBRARY_NOT_FOUND, from a library that was loaded
        return f"{library or LIBRARY} does not find another library of the driver: reinstall the driver's libraries"
    if container and code in (17, 999):  # NVML_ERROR_OPERATING_SYSTEM, NVML_ERROR_UNKNOWN
        return (
            f"NVML does not start: {text} (code {code}); this container has probably lost its GPUs, as after "
            f"systemctl daemon-reload on the host: restart it; or {_SEE_LOG} on the host"
        )
    return f"NVML does not start: {text} (code {code}); {_SEE_LOG}"


def why_not_given(code: int, text: str, what: str) -> str:
    """Why one value is not given. what: the value in words, "memory"."""
    if code == 3:  # NVML_ERROR_NOT_SUPPORTED
        return f"NVML does not know the {what} of this GPU (not supported)"
    if code == 4:  # NVML_ERROR_NO_PERMISSION
        return f"NVML may not tell the {what} (permission denied)"
    if code == 13:  # NVML_ERROR_FUNCTION_NOT_FOUND
        return f"this driver's NVML is too old to tell the {what}"
    if code in (15, 16):  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
        return f"no {what}: {text}; {_SEE_LOG}, then reset the GPU (nvidia-smi --gpu-reset) or reboot"
    return f"no {what} from NVML: {text} (code {code})"


def _mismatch(library: str, kernel: str | None, *, container: bool) -> str:
    of_library = library.rpartition(".so.")[2]
    of_library = of_library if "." in of_library else "of another version"
    then = "restart this container, and if that does not help reboot the host" if container else "reboot"
    of_kernel = kernel or "version not known"
    return (
        f"the driver's libraries ({of_library}) do not match the loaded kernel driver ({of_kernel}), "
        f"as after a driver update without a reboot: {then}"
    )
