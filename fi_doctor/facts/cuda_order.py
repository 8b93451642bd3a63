"""What CUDA itself sees, in its own order: asks the driver in a child process and puts its failures into words."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fi_doctor import sandbox
from fi_doctor.facts.files import read_whole
from fi_doctor.model import Data, Missing

TIMEOUT_S = 30.0  # cuInit takes about a second for each GPU that no other process keeps awake

_SCRIPT = Path(__file__).resolve().parents[1] / "inside" / "cuda_devices.py"
_LIBRARY = "libcuda.so.1"
_SYSTEM_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64")
_NO_DEVICE = 100
_REASONS = {
    34: "{library} is the CUDA toolkit's stub for linking, not the driver's: take its folder out of LD_LIBRARY_PATH",
    46: "a process has asked for a GPU alone, or its compute mode prohibits CUDA (nvidia-smi -q -d COMPUTE)",
    802: "the GPUs are not ready; on a machine with NVSwitch this means that nvidia-fabricmanager is not running",
    803: "{library} does not match the loaded kernel driver: after a driver update reboot; where it lies in a compat "
    "folder, take that out of LD_LIBRARY_PATH or update the driver",
    804: "{library} is a CUDA compatibility library, which works on data-centre GPUs only: take its folder out of "
    "LD_LIBRARY_PATH and /etc/ld.so.conf.d, or update the driver",
    805: "the CUDA MPS daemon does not answer: start it (nvidia-cuda-mps-control -d) or unset CUDA_MPS_PIPE_DIRECTORY",
    999: "the driver tells no more; often /dev/nvidia-uvm is missing (nvidia-modprobe -u -c 0) or the machine slept",
}


class CudaDevice(Data, frozen=True):
    """One device as CUDA numbers it. What the driver does not give is None."""

    uuid: str  # as NVML spells it; MIG-... for a MIG instance
    parent: str  # UUID of the whole GPU
    sm: int | None = None
    name: str | None = None
    memory_mib: int | None = None
    pci_bus: str | None = None


class CudaView(Data, frozen=True):
    """What CUDA sees."""

    library: str = ""  # the file behind libcuda.so.1
    driver: int = 0  # 13000 means CUDA 13.0
    devices: tuple[CudaDevice, ...] = ()
    failed: str = ""  # the function that failed, "" when none did
    code: int = 0
    text: str = ""


def read_cuda(environ: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> CudaView | Missing:
    """What a process with these variables would see; no devices when CUDA says that there are none.

    Source: cuInit, cuDeviceGetCount, cuDeviceGetUuid_v2 in a child process.
    """
    if not sys.executable:
        return Missing(reason="CUDA was not asked: this Python does not know its own executable")
    # -I -S: nothing but the standard library is wanted, and the examined PYTHONPATH must not slow or break this.
    argv = [sys.executable, "-I", "-S", str(_SCRIPT)]
    return view_of(sandbox.run(argv, timeout_s=timeout_s, env=environ), timeout_s)


def may_have_libcuda(environ: Mapping[str, str], root: Path = Path("/")) -> bool:
    """Whether a process with these variables may find libcuda.so.1; False is certain as far as files tell.

    Looks where the dynamic linker looks, and costs less than a millisecond.
    """
    listed = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [Path(folder) for folder in listed] + [root / folder[1:] for folder in _SYSTEM_FOLDERS]
    if any(os.path.lexists(folder / _LIBRARY) for folder in folders):
        return True
    try:
        return f"{_LIBRARY}\0".encode() in read_whole(root / "etc/ld.so.cache")
    except OSError:
        return False


def view_of(result: sandbox.Result, timeout_s: float) -> CudaView | Missing:
    """The child's answer, or why there is none."""
    if result.error:
        return Missing(reason=f"CUDA was not asked: {result.error}")
    if result.timed_out:
        return Missing(reason=f"CUDA did not answer within {timeout_s:g} s (cuInit): a GPU or the driver hangs")
    if result.signal is not None:
        return Missing(reason=f"the CUDA driver crashed when asked for its devices ({_signal_name(result.signal)})")
    try:
        view = msgspec.json.decode(result.stdout.strip().rpartition(b"\n")[2], type=CudaView)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        tail = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return Missing(reason=f"the child that asks CUDA gave no answer (exit code {result.returncode}): {tail}")
    if not view.failed or (view.failed == "cuInit" and view.code == _NO_DEVICE):
        return view
    return Missing(reason=why_failed(view))


def why_failed(view: CudaView) -> str:
    """A driver's failure in words."""
    if view.failed == "dlopen":
        if "No such file" in view.text:
            return f"there is no {_LIBRARY}: no NVIDIA driver, or a container without the capability compute"
        return f"the CUDA driver's library cannot be loaded: {view.text}"
    known = _REASONS.get(view.code, "").format(library=view.library or _LIBRARY)
    return f"CUDA does not start: {view.failed} gives {view.text}{': ' if known else ''}{known}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
