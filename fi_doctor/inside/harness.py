"""Runs one probe file in the examined interpreter and writes down how far each variant came.

    python harness.py --record-fd N --depth build|run --variant V ... PROBEFILE

The record is JSON lines in an inherited file, each one write(2), so that a crash leaves every line before it:
{"stage": "importing"}, {"stage": "imported", "seconds": 6.1}, {"versions": {...}}; {"variant": "", "stage": "waiting"}
(for --build-lock); for each variant "building" and "built", then for each "running" and "ran" and {"variant": "",
"ending": ...}; at last {"end": true}. A build() that returns False has compiled nothing, because its kernel is compiled
by the first call: then there is no "built" before. With --record-fd 1 it is printed. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import fcntl
import functools
import importlib
import json
import math
import os
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MESSAGE_LIMIT = 32 * 1024  # a failed ninja puts the whole of its output into the message
TRACEBACK_LIMIT = 4 * 1024
CHECKERS = ("/torch/testing/", "/numpy/testing/")


def main(argv: list[str] | None = None) -> int:
    """Run the variants one after the other; 0 when the record is complete, whatever it says."""
    drop_own_folder()
    if "FI_DOCTOR_CHILD" in os.environ:  # it ends with the thread of fi-doctor that waits for it: PR_SET_PDEATHSIG
        with contextlib.suppress(Exception):
            importlib.import_module("ctypes").CDLL(None).prctl(1, 9)
    Harness(parse(argv)).run()
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line; limits are in seconds and only serve to print where a hang hangs."""
    parser = argparse.ArgumentParser(description="Run one probe and record how far it comes.")
    parser.add_argument("--record-fd", type=int, required=True)
    parser.add_argument("--depth", choices=("build", "run"), required=True)
    parser.add_argument("--variant", action="append", dest="variants", required=True)
    parser.add_argument("--build-lock", default="", help="folder to hold while building")
    parser.add_argument("--use", action="append", default=[], metavar="NAME=FILE", help="load this as that module")
    parser.add_argument("--build-limit", type=float, default=0.0)
    parser.add_argument("--run-limit", type=float, default=0.0)
    parser.add_argument("probe")
    return parser.parse_args(argv)


def drop_own_folder() -> None:
    """Take this script's folder off sys.path, where Python before 3.11 puts it; PYTHONPATH is kept."""
    own = Path(__file__).absolute().parent
    if not getattr(sys.flags, "safe_path", False) and sys.path and Path(sys.path[0]).absolute() == own:
        del sys.path[0]
    sys.path[:] = [entry for entry in sys.path if entry]


class Harness:
    """One probe in one process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        if args.record_fd > 2:  # a compiler that is started without a stdout writes into the next file that it opens
            os.set_inheritable(args.record_fd, False)  # noqa: FBT003 - positional only
        self.spent: dict[str, float] = {}
        self.stopped = ""
        self.thread_errors: list[threading.ExceptHookArgs] = []
        self.gpu_known = False

    def write(self, **line: object) -> None:
        """Add one line to the record, which outlives this process; a single write, so that a line is there or not."""
        os.write(self.args.record_fd, (json.dumps(sayable(line)) + "\n").encode("ascii"))

    def run(self) -> None:
        """Import, build every variant, then run those that were built until the CUDA context is dead."""
        threading.excepthook = self.thread_errors.append
        sys.argv[:] = [self.args.probe]
        probe = self.imported()
        for variant in self.built(probe) if probe is not None else ():
            if not self.stopped:
                self.settles(variant, functools.partial(self.measure, probe, variant))
        self.write(versions=versions())
        self.write(end=True, stopped=self.stopped)

    def imported(self) -> Any:
        """The probe's module, with what it needs imported first; None when that failed."""
        begun = time.monotonic()
        self.write(stage="importing")
        try:
            probe = load(self.args.probe)
            for name in packages_of(probe.PROBE):
                importlib.import_module(name)
        except BaseException as exc:
            self.write(ending="raised", seconds=time.monotonic() - begun, **describe(exc))
            return None
        if self.args.use:
            libraries = dict(word.split("=", 1) for word in self.args.use)
            using = load(str(Path(__file__).with_name("using.py")))
            using.use(libraries, functools.partial(held, self.args.build_lock))
        self.write(stage="imported", seconds=time.monotonic() - begun)
        self.write(versions=versions())
        return probe

    def built(self, probe: Any) -> list[str]:
        """The variants that are to be run, all built before the first of them runs: the lock is taken once."""
        names = list(self.args.variants)
        if hasattr(probe, "build"):
            lock = "" if self.args.use else self.args.build_lock
            if lock:
                self.write(variant=names[0], stage="waiting")
            with held(lock):
                names = [name for name in names if not self.settles(name, functools.partial(self.build, probe, name))]
        if self.args.depth == "run":
            return names
        for name in names:
            self.settles(name, dict)
        return []

    def settles(self, variant: str, step: Callable[[], dict[str, object] | None]) -> bool:
        """Take one step of a variant and write down its ending, unless it returned None and others follow."""
        begun = time.monotonic()
        self.thread_errors.clear()
        try:
            measured = step()
            ending: dict[str, object] = {"ending": "returned", "measurements": measured}
            if self.thread_errors:
                ending = {"ending": "raised", **describe_thread(self.thread_errors[0])}
        except SystemExit as exc:
            ending = {"ending": "exited", **describe(exc), "message": f"called sys.exit({describe(exc)['message']})"}
        except WrongNumbers as exc:
            ending = {"ending": "wrong-result", **describe(exc.__cause__ or exc)}
        except BaseException as exc:
            ending = {"ending": "raised", **describe(exc)}
        faulthandler.cancel_dump_traceback_later()
        self.spent[variant] = self.spent.get(variant, 0.0) + time.monotonic() - begun
        if ending.get("measurements", ending) is None:
            return False
        self.write(variant=variant, seconds=self.spent[variant], **ending)
        self.stopped = "" if ending["ending"] == "returned" else dead_context()
        return True

    def build(self, probe: Any, variant: str) -> None:
        """Compile and load what nvcc compiles, if that is what the variant calls."""
        begun = self.enter(variant, "building", self.args.build_limit)
        if probe.build(*arguments(probe, variant)) is False:
            return
        self.write(variant=variant, stage="built", seconds=time.monotonic() - begun)

    def measure(self, probe: Any, variant: str) -> dict[str, object]:
        """Call. What nvcc does not compile is compiled by the first call, which belongs to the build."""
        args = arguments(probe, variant)
        if set(probe.PROBE.get("compiles", ("nvcc",))) - {"nvcc"}:
            begun = self.enter(variant, "building", self.args.build_limit)
            call(probe, args)
            self.write(variant=variant, stage="built", seconds=time.monotonic() - begun)
        begun = self.enter(variant, "running", self.args.run_limit)
        measured = call(probe, args)
        self.write(variant=variant, stage="ran", seconds=time.monotonic() - begun)
        self.name_gpu()
        return measured

    def enter(self, variant: str, stage: str, limit_s: float) -> float:
        """Say which stage begins, and have Python print all stacks shortly before its time is up."""
        self.write(variant=variant, stage=stage)
        faulthandler.cancel_dump_traceback_later()
        with contextlib.suppress(RuntimeError, ValueError):  # no thread is to be had, or there is no limit
            faulthandler.dump_traceback_later(max(limit_s - 1.0, limit_s * 0.8))
        return time.monotonic()

    def name_gpu(self) -> None:
        """Write down once which GPU it was."""
        torch = cuda_in_use()
        if torch is None or self.gpu_known:
            return
        self.gpu_known = True
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        told = {"name": gpu.name, "sm": gpu.major * 10 + gpu.minor, "uuid": str(getattr(gpu, "uuid", ""))}
        self.write(gpu=told)


@contextlib.contextmanager
def held(lock: str) -> Iterator[None]:
    """Hold this folder ("": none), without a file in it; the kernel frees it when this process dies."""
    with contextlib.ExitStack() as stack:
        # Without the lock (a folder or file system that does not let us), it is built as FlashInfer itself would.
        with contextlib.suppress(OSError):
            if lock:
                Path(lock).mkdir(parents=True, exist_ok=True)
                fd = os.open(lock, os.O_RDONLY)
                stack.callback(os.close, fd)
                fcntl.flock(fd, fcntl.LOCK_EX)
        yield


class WrongNumbers(Exception):  # noqa: N818  # the numbers are wrong, nothing else is
    """The probe's own check failed with the AssertionError that is the cause of this."""


def arguments(probe: Any, variant: str) -> tuple[str, ...]:
    """What build() and run() take."""
    return (variant,) if probe.PROBE.get("variants") else ()


def call(probe: Any, args: tuple[str, ...]) -> dict[str, object]:
    """The measurements of one run(), as plain values, with the GPU's own errors waited for."""
    try:
        returned = probe.run(*args)
    except AssertionError as exc:
        if raised_by(exc, probe.__file__):
            raise WrongNumbers from exc
        raise
    if isinstance(returned, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
        raise importlib.import_module("unittest").SkipTest(f"nothing was run: run() gave {type(returned).__name__}")
    torch = cuda_in_use()
    if torch is not None:
        torch.cuda.synchronize()
    # The kernel is not to blame for a run() that returns something else: it says of nothing that it was compared.
    return {str(key): plain(value) for key, value in returned.items()} if isinstance(returned, dict) else {}


def raised_by(exc: AssertionError, path: str) -> bool:
    """Whether an assertion stands in the probe itself, or in a comparison function that the probe called."""
    files = [frame.filename for frame in traceback.extract_tb(exc.__traceback__)]
    asking = [file for file in files if not any(checker in file for checker in CHECKERS)]
    return bool(asking) and Path(asking[-1]).absolute() == Path(path).absolute()


def load(path: str, code: types.CodeType | None = None) -> Any:
    """The probe file (or what it compiled to) as a module, under a name that no installed package has."""
    module = types.ModuleType(f"fi_probe_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(code or compiled(path), module.__dict__)  # noqa: S102
    return module


def compiled(path: str) -> types.CodeType:
    """The import system would leave a cache beside it, and PYTHONOPTIMIZE strip assertions, which are its checks."""
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True, optimize=0)


def packages_of(declared: dict[str, Any]) -> tuple[str, ...]:
    """What a probe of FlashInfer imports inside its functions, so that importing is a stage of its own."""
    requires = declared.get("requires", {})
    symbols = any(symbol.split(".")[0] == "flashinfer" for symbol in requires.get("symbols", ()))
    return ("torch", "flashinfer") if symbols or declared.get("module") else ()


def plain(value: Any) -> bool | int | float | str:
    """A number, text or truth; what JSON cannot say (NaN, infinity, a huge integer, a whole tensor) becomes text."""
    if not isinstance(value, (bool, int, float, str)) and callable(getattr(value, "item", None)):
        with contextlib.suppress(ValueError, RuntimeError):  # it has more than one element
            value = value.item()
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return str(value)[:1000]


def sayable(value: Any) -> Any:
    """The same with lone surrogates (a path that is not UTF-8) spelled out, for which JSON has no word."""
    if isinstance(value, dict):
        return {sayable(key): sayable(one) for key, one in value.items()}
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def describe(exc: BaseException) -> dict[str, object]:
    """Type, message and the last of the traceback."""
    kind = type(exc)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = "".join(traceback.format_exception(kind, exc, exc.__traceback__))
    message = repr(kind)
    with contextlib.suppress(BaseException):  # an exception may fail to say what it is
        message = str(exc) or traceback.extract_tb(exc.__traceback__)[-1].line or message  # a bare assert says itself
    return {"error": name, "message": shortened(message), "traceback": text[-TRACEBACK_LIMIT:]}


def describe_thread(args: threading.ExceptHookArgs) -> dict[str, object]:
    """The same of an exception that ended a thread."""
    told = describe(args.exc_value if args.exc_value is not None else args.exc_type())
    name = args.thread.name if args.thread is not None else "?"
    return {**told, "message": f"in thread {name}: {told['message']}"}


def shortened(text: str) -> str:
    """Both ends of a long message: the command that failed stands first, the reason often last."""
    if len(text) <= MESSAGE_LIMIT:
        return text
    half = MESSAGE_LIMIT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def versions() -> dict[str, dict[str, str]]:
    """Version and file of the packages in question that this process has imported."""
    there = ((name, sys.modules.get(name)) for name in ("torch", "flashinfer"))
    return {
        name: {"version": str(getattr(one, "__version__", "")), "path": str(one.__file__)} for name, one in there if one
    }


def cuda_in_use() -> Any:
    """torch, when it was imported and has a CUDA context."""
    torch = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() else None
    except AttributeError:  # half imported
        return None


def dead_context() -> str:
    """Why the CUDA context cannot be used any more, or ""."""
    torch = cuda_in_use()
    if torch is None:
        return ""
    try:
        torch.cuda.synchronize()
    except Exception as exc:
        return f"the CUDA context is dead: {str(exc).splitlines()[0] if str(exc) else type(exc).__name__}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
