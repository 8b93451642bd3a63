"""Imports torch and flashinfer once in the examined interpreter, and forks a process for each script that is asked for.

    python template.py --control-fd N --harness FILE --architectures "90a"

Over the control socket (SOCK_SEQPACKET, JSON) it says {"unfit": why, "seconds": {package: seconds}} once, why is ""
when it can fork. Then, for each request {"script", "argv", "option", "set", "unset"} with the descriptors of a file or
socket for the script (its number is told with `option`), of the output and of a pipe to wait at, it answers {"pid": N}
or {"unfit": why}, and ends with the socket. What it forks is nobody's child but fi-doctor's, which adopts orphans: the
process in between is gone before the answer. It goes on as a fresh interpreter would that runs the script: the harness,
which is compiled beforehand, or another one. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import socket
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, Optional

MARKER = "FI_DOCTOR_CHILD"
OUTPUT_LIMIT = 16 * 1024
HARMLESS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm/")  # noqa: S108
BAD_FORK, NO_MARK = 3, 4  # statuses of the rehearsal


def main() -> None:
    """Prepare, then serve; in a forked process it goes on to run the script."""
    args = parse()
    with contextlib.suppress(Exception):  # it ends with the thread of fi-doctor that waits for it: PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(1, 9)
    control = socket.socket(fileno=args.control_fd)
    template = Template(control, set(args.architectures.split()), args.gpus, args.capability)
    compiled(args.harness)
    tell(control, {"unfit": template.prepare(args.harness), "seconds": template.seconds})
    run_script(*template.serve())


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Import torch and flashinfer once, then fork.")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--harness", required=True)
    parser.add_argument("--architectures", default="", help="what FlashInfer must build for, such as 90a")
    parser.add_argument("--gpus", type=int, default=-1, help="how many CUDA sees; -1: not known")
    parser.add_argument("--capability", default="", help="of all of them, such as 9.0; empty: not known")
    return parser.parse_args()


def tell(control: socket.socket, message: dict[str, object]) -> None:
    """Send one message; who is gone is not told."""
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode("ascii"))


@functools.cache
def compiled(path: str) -> types.CodeType:
    """The code of a script; what was compiled before a fork is there after it."""
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)


def run_script(path: str, argv: list[str]) -> NoReturn:
    """Run it as the script of this process, and leave as the interpreter would.

    All but one thing: what the imports made is not taken apart object by object, which takes longer than many a probe.
    """
    script = types.ModuleType("__main__")
    script.__file__ = path
    sys.modules["__main__"] = script
    sys.argv[:] = [path, *argv]
    status = 1
    try:
        exec(compiled(path), script.__dict__)  # noqa: S102
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException as exc:
        sys.excepthook(type(exc), exc, exc.__traceback__)
    for step in (getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)):
        with contextlib.suppress(Exception):
            step()  # type: ignore[misc]  # None has no such thing done
    flush()
    os._exit(status & 0xFF)


class Template:
    """The process that forks."""

    def __init__(self, control: socket.socket, architectures: set[str], gpus: int = -1, capability: str = "") -> None:
        self.control = control
        self.architectures = architectures
        self.gpus = gpus
        self.capability = capability
        self.seconds: dict[str, float] = {}  # package -> what its import took
        self.said = b""  # what was printed while importing: a fresh interpreter prints it, too
        self.marker = find_marker()

    def prepare(self, harness: str) -> str:
        """Import, then see whether a fork of this process is as good as a fresh interpreter; why not, or ""."""
        inside = str(Path(harness).absolute().parent)
        if not getattr(sys.flags, "safe_path", False) and sys.path and str(Path(sys.path[0]).absolute()) == inside:
            del sys.path[0]
        sys.path[:] = [entry for entry in sys.path if entry]
        try:
            with self.captured():
                torch = self.imported("torch")
                with answered(torch.cuda, self.gpus, self.capability):
                    self.imported("flashinfer")
        except BaseException as exc:
            return f"the import failed: {traceback.format_exception_only(type(exc), exc)[-1].strip()}"
        gc.freeze()  # a collection in a forked process would copy every page that it looks at
        return cuda_in_use() or self.other_architectures() or self.rehearsed() or unfit()

    def imported(self, name: str) -> Any:
        """The package, with the time that its import takes noted."""
        begun = time.monotonic()
        module = importlib.import_module(name)
        self.seconds[name] = round(time.monotonic() - begun, 3)
        return module

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Keep what is printed in a file in memory; where there is none, it goes where it would."""
        try:
            file = os.memfd_create("fi-doctor-import")
        except (OSError, AttributeError):
            yield
            return
        kept = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(file, number)
        try:
            yield
        finally:
            flush()
            for number in (1, 2):
                os.dup2(kept[number - 1], number)
                os.close(kept[number - 1])
            self.said = os.pread(file, OUTPUT_LIMIT, max(os.fstat(file).st_size - OUTPUT_LIMIT, 0))
            os.close(file)

    def other_architectures(self) -> str:
        """That FlashInfer builds for other GPUs than it would in a fresh interpreter."""
        core = sys.modules.get("flashinfer.jit.core")
        context = getattr(core, "current_compilation_context", None)
        targets = getattr(context, "TARGET_CUDA_ARCHS", None)
        if targets is None:
            return "this FlashInfer does not say what it builds for"
        found = {f"{major}{minor}" for major, minor in targets}
        if found == self.architectures:
            return ""
        named = [" ".join(sorted(one)) or "nothing" for one in (found, self.architectures)]
        return f"FlashInfer builds for {named[0]} where {named[1]} was expected"

    def rehearsed(self) -> str:
        """Fork once. Pools that are fork-safe (OpenBLAS) end their threads for that, and torch says if CUDA is lost."""
        try:
            pid = fork()
        except OSError as exc:
            return f"it cannot fork: {exc.strerror}"
        if pid == 0:
            status = 1
            try:
                status = self.rehearse()
            finally:
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        return {
            0: "",
            BAD_FORK << 8: "torch says that CUDA cannot be used after a fork",
            NO_MARK << 8: "a forked process cannot be marked",
        }.get(ended, f"a forked process ended with wait status {ended}")

    def rehearse(self) -> int:
        """In the forked process: whether it could go on."""
        is_lost = getattr(sys.modules["torch"].cuda, "_is_in_bad_fork", None)
        if is_lost is not None and is_lost():
            return BAD_FORK
        other = os.environ.get(MARKER, "")[::-1]
        self.mark(other)
        return 0 if os.fsencode(f"{MARKER}={other}\0") in Path("/proc/self/environ").read_bytes() else NO_MARK

    def mark(self, marker: str) -> None:
        """Write the marker over the template's own, where /proc/PID/environ shows it, for this process and its forks.

        The kernel shows the memory that the environment was in when the interpreter was started.
        """
        address, length = self.marker
        raw = os.fsencode(marker)
        if address and len(raw) == length:
            ctypes.memmove(address, raw, length)

    def serve(self) -> tuple[str, list[str]]:
        """Answer requests until fi-doctor closes the socket; in a forked process, return its script and arguments."""
        while True:
            flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            data, fds, _, _ = socket.recv_fds(self.control, 1 << 20, 3, flags)
            if not data:
                os._exit(0)
            why = unfit()
            pid = 0 if why else self.fork_away()
            if pid is None:
                return self.go_on(json.loads(data), *fds)
            tell(self.control, {"pid": pid} if pid > 0 else {"unfit": why or "it could not fork"})
            for fd in fds:
                os.close(fd)

    def fork_away(self) -> Optional[int]:  # noqa: UP045 - Python 3.9
        """Fork a process that is not a child of this one. Its number; 0 when there is none; None in that process."""
        reading, self.announce = os.pipe()
        try:
            between = fork()
        except OSError:
            between = -1
        if between == 0:
            with contextlib.suppress(OSError):
                if fork() == 0:
                    os.close(reading)
                    return None
            os._exit(0)
        os.close(self.announce)
        told = os.read(reading, 20)
        os.close(reading)
        if between > 0:
            os.waitpid(between, 0)  # after which the forked process is fi-doctor's
        return int(told or b"0")

    def go_on(self, request: dict[str, Any], channel: int, output: int, wait: int) -> tuple[str, list[str]]:
        """Become what fi-doctor asked for: a session, streams and variables of its own."""
        os.setsid()
        self.mark(request["set"].get(MARKER, ""))
        self.control.close()
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        for name in request["unset"]:
            os.environ.pop(name, None)
        os.environ.update(request["set"])
        os.write(self.announce, b"%d" % os.getpid())
        os.close(self.announce)
        if not os.read(wait, 1):  # fi-doctor is gone, or does not know of this process
            os._exit(0)
        os.close(wait)
        os.write(1, self.said)
        return request["script"], [*request["argv"], f"{request['option']}={channel}"]


def fork() -> int:
    """os.fork without the warning that Python 3.12 gives for threads: they are counted before."""
    flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def flush() -> None:
    """Leave nothing in a buffer that a forked process would write again."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


@contextlib.contextmanager
def answered(cuda: Any, gpus: int, capability: str) -> Iterator[None]:
    """Answer what modules ask of torch.cuda while they are imported, as it would, but without touching CUDA.

    Asking CUDA itself, if only for the number of GPUs, spoils every fork. tvm_ffi and some of FlashInfer's modules ask.
    Whoever keeps one of these functions asks CUDA once the imports are over.
    """
    answers: dict[str, Any] = {}
    if gpus >= 0:
        answers = {"is_available": gpus > 0, "device_count": gpus}
    if capability:
        major, minor = capability.split(".")
        answers["get_device_capability"] = (int(major), int(minor))
    importing = [True]
    originals = {name: getattr(cuda, name) for name in answers if hasattr(cuda, name)}

    def stand_in(name: str) -> Any:
        @functools.wraps(originals[name])
        def answer(*args: Any, **kwargs: Any) -> Any:
            return answers[name] if importing[0] else originals[name](*args, **kwargs)

        return answer

    for name in originals:
        setattr(cuda, name, stand_in(name))
    try:
        yield
    finally:
        importing[0] = False
        for name, original in originals.items():
            setattr(cuda, name, original)


def find_marker() -> tuple[int, int]:
    """Address and length of the marker's value in the memory that the process was started with; (0, 0) without one."""
    prefix = os.fsencode(f"{MARKER}=")
    with contextlib.suppress(Exception):
        variables = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
        number = 0
        while variables[number]:
            text = ctypes.string_at(variables[number])
            if text.startswith(prefix):
                return variables[number] + len(prefix), len(text) - len(prefix)
            number += 1
    return 0, 0


def unfit() -> str:
    """Why a fork of this process would not be as good as a fresh interpreter, or ""."""
    return cuda_in_use() or open_device() or other_threads()


def cuda_in_use() -> str:
    """That CUDA is initialised, which a forked process could not use."""
    return "CUDA is initialised" if sys.modules["torch"].cuda.is_initialized() else ""


def open_device() -> str:
    """That a device is open, whose state a forked process would share."""
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            path = os.readlink(fd)  # noqa: PTH115 - Path.readlink would change "pipe:[1]"
            if path.startswith("/dev/") and not path.startswith(HARMLESS):
                return f"{path} is open"
    return ""


def other_threads() -> str:
    """That other threads run, which a forked process would lack while their locks are held."""
    more = len(list(Path("/proc/self/task").iterdir())) - 1
    return f"{more} other thread{'s run' if more > 1 else ' runs'} in it" if more else ""


if __name__ == "__main__":
    main()
