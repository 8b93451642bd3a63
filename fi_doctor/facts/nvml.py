"""NVML: every GPU of the machine and its driver, asked within a time limit."""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fi_doctor.facts import nvml_reasons as reasons
from fi_doctor.facts import openable
from fi_doctor.model import Driver, Gpu, Missing, PeerLink

TIMEOUT_S = 10.0

_NOT_ASKED = Missing(reason="NVML was not asked")


@dataclass
class Nvml:
    """What NVML answered, filled in as it answers so that a hang leaves what came before it."""

    container: bool  # whether advice about containers fits
    kernel: str | None  # version of the loaded kernel driver, as far as /proc tells
    driver: Driver | Missing = _NOT_ASKED
    gpus: tuple[Gpu, ...] | Missing = _NOT_ASKED  # cuda_index is not known here
    links: tuple[PeerLink, ...] | Missing = _NOT_ASKED
    unreadable: list[str] = field(default_factory=list)  # a sentence for each GPU that does not say who it is
    library: str = ""  # the file behind libnvidia-ml.so.1
    libcuda: str = ""  # why libcuda.so.1 must not be loaded here, which NVML does to tell its version
    hung: bool = False
    doing: str = "it was being loaded"


def read_nvml(*, container: bool, timeout_s: float = TIMEOUT_S) -> Nvml:
    """Everything NVML tells of GPUs and driver; never raises for what NVML does and never waits longer than the limit.

    NVML runs in a daemon thread: a call that a broken driver never returns from cannot be ended, only left behind.
    """
    answer = Nvml(container=container, kernel=read_kernel_module())
    errors: list[BaseException] = []

    def work() -> None:
        try:
            _ask(answer)
        except BaseException as error:  # noqa: BLE001  # handed to the waiting thread, which raises it
            errors.append(error)

    thread = threading.Thread(target=work, name="nvml", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:  # asked in this thread, a broken driver would hold the whole command
        answer.driver = answer.gpus = Missing(reason=f"NVML was not asked: {error}")
        return answer
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return _cut_off(answer, timeout_s) if thread.is_alive() else answer


def read_kernel_module(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The loaded kernel driver's version, which containers see too; None when none is loaded."""
    try:
        return reasons.kernel_module_version(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def _cut_off(answer: Nvml, timeout_s: float) -> Nvml:
    """A copy of what a hanging NVML has given so far, which its thread can no longer change."""
    why = Missing(reason=reasons.why_hung(answer.doing, timeout_s))
    driver = answer.driver if isinstance(answer.driver, Driver) else why
    return Nvml(
        container=answer.container, kernel=answer.kernel, driver=driver, gpus=why, library=answer.library, hung=True
    )


def _ask(answer: Nvml) -> None:
    why = _load(answer)
    if why:
        answer.driver = answer.gpus = Missing(reason=why)
        return
    # Here, because reading pynvml's 8000 lines costs more than all else on a machine without NVML.
    from fi_doctor.facts import nvml_queries  # noqa: PLC0415

    nvml_queries.ask(answer)


def _load(answer: Nvml) -> str:
    """Load the library and note its file; why it cannot be used, or an empty string."""
    held = openable.why_not_openable(reasons.LIBRARY, os.environ, partial(_looks_at, answer))
    if held:
        return f"the driver's NVML library was not loaded: {held}, and the loader would wait for it"
    answer.libcuda = openable.why_not_openable(reasons.LIBCUDA, os.environ, partial(_looks_at, answer))
    answer.doing = "it was being loaded"
    try:
        ctypes.CDLL(reasons.LIBRARY)
    except OSError as error:
        return reasons.why_not_loaded(str(error), kernel=answer.kernel, container=answer.container)
    answer.library = _file_behind("libnvidia-ml.so")
    # The toolkit's stub prints a banner on stdout, which is the report's, so it is not even called.
    return reasons.why_stub(answer.library) if "/stubs/" in answer.library else ""


def _looks_at(answer: Nvml, path: str) -> None:
    answer.doing = f"{path} was being opened"


def _file_behind(prefix: str) -> str:
    """The mapped file whose name begins so; empty when /proc does not tell."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    paths = ("/" + line.partition("/")[2] for line in lines)
    return next((path for path in paths if path.rpartition("/")[2].startswith(prefix)), "")
