"""The template process seen from fi-doctor: it has imported torch and flashinfer, and forks whoever needs them.

Paid once, start-up is most of what a warm check takes. A forked process is used only where it is as good as a fresh
interpreter: inside/template.py looks at itself before each fork, and here it is decided who may come from it.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fi_doctor import sandbox
from fi_doctor.model import Data, Facts, Missing, PlannedProbe, ProbeSpec
from fi_doctor.probing import surroundings

IMPORT_LIMIT_S = 180.0
ANSWER_LIMIT_S = 20.0  # a fork takes milliseconds; a machine that swaps takes longer
WORTH_IT = 2  # processes: for one alone nothing is saved

ARCHITECTURES = "FLASHINFER_CUDA_ARCH_LIST"
# Rows that are about the imports themselves: feature -> packages. Where the template could import both, so can they.
IMPORTS = {"import.torch": ("torch",), "import.flashinfer": ("torch", "flashinfer")}
# What is read only when it is used. All else is the same for all, or the interpreter is a fresh one.
_READ_LATER = frozenset({"MAX_JOBS", "CUDA_VISIBLE_DEVICES", ARCHITECTURES})
_TAG = re.compile(r"(\d+)(\d[a-z]?)")


@contextlib.contextmanager
def started(
    planned: Sequence[PlannedProbe], facts: Facts, environ: Mapping[str, str], base: Path | None
) -> Iterator[Template | None]:
    """A template for the probes that are to be tried, which ends with the block; None where it would save nothing.

    It imports while the block goes on. environ and base are those of surroundings.environment. A template that turns
    out to be unfit is no error: everything is started in fresh interpreters. So are probes of the imports alone.
    """
    suited = [probe for probe in planned if probe.is_tried and imports_both(probe.spec)]
    processes = len(suited) + any(probe.builds_module for probe in suited)  # that builds come first in one of their own
    if processes < WORTH_IT or isinstance(facts.flashinfer, Missing) or ambiguous(facts):
        yield None
        return
    try:
        template = Template(facts, environ, base)
    except (OSError, RuntimeError):  # out of descriptors or threads
        yield None
        return
    try:
        yield template
    finally:
        template.end()


def imports_both(spec: ProbeSpec) -> bool:
    """Whether the harness imports torch and flashinfer for a probe before anything else (its packages_of)."""
    of_flashinfer = any(symbol.split(".")[0] == "flashinfer" for symbol in spec.requires.symbols)
    return (bool(spec.module) or of_flashinfer) and not spec.feature.startswith("import.")


def ambiguous(facts: Facts) -> bool:
    """Whether a process that sees one of the GPUs builds for others than a process that sees all of them."""
    flashinfer = facts.flashinfer
    if isinstance(flashinfer, Missing) or isinstance(flashinfer.architectures, Missing):
        return False
    return flashinfer.architectures_from != ARCHITECTURES and len(set(flashinfer.architectures)) > 1


def arch_list(tags: Sequence[str]) -> str:
    """The value of FLASHINFER_CUDA_ARCH_LIST that gives these tags: "9.0a" for "90a".

    0.5 takes an entry as it is, later versions complete those without a letter, as they do for a GPU; so a complete
    tag stays what it is in all of them. Source: flashinfer/compilation_context.py.
    """
    found = [_TAG.fullmatch(tag) for tag in tags]
    return " ".join(f"{one[1]}.{one[2]}" for one in found if one is not None)


def touches_environment(source: str) -> bool:
    """Whether a probe names os.environ or os.putenv outside its functions: that is meant to precede the imports."""
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in ("environ", "environb", "putenv", "unsetenv"):
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False


class _Answer(Data, frozen=True):
    """What it says."""

    pid: int = 0
    unfit: str = ""
    seconds: dict[str, float] = {}  # noqa: RUF012 - msgspec copies it


class Template:
    """The process and the socket to it. Safe in several threads at once."""

    def __init__(self, facts: Facts, environ: Mapping[str, str], base: Path | None) -> None:
        self._environ = surroundings.shared_environment(facts, environ, base)
        tags = _tags(facts)
        if tags and ARCHITECTURES not in self._environ:
            self._environ[ARCHITECTURES] = arch_list(tags)
        self._why = ""  # why it is of no use
        self._settled = threading.Event()  # it has said whether it can fork
        self._complained = False
        self._lock = threading.Lock()  # of the socket
        self._result: sandbox.Result | None = None
        self._stop = threading.Event()
        self._begun = time.monotonic()
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_LIMIT_S)
        self.import_s: Mapping[str, float] = {}  # package -> what its import took
        argv = [facts.interpreter.executable, "-u", str(surroundings.TEMPLATE), f"--control-fd={self._theirs.fileno()}"]
        argv += [f"--harness={surroundings.HARNESS}", f"--architectures={' '.join(tags)}", *_gpus(facts)]
        # The kernel kills it when the thread ends that started it, so that thread waits for it as well.
        self._thread = threading.Thread(target=self._live, args=(argv,), name="template")
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._theirs.close()
            self._give_up(f"no thread can be had to wait for it: {error}")

    def takes(self, child: Mapping[str, str], *later: str) -> bool:
        """Whether a forked process may have these variables; those named are read after the fork, too."""
        names = self._environ.keys() | child.keys()
        return {name for name in names if self._environ.get(name) != child.get(name)} <= _READ_LATER.union(later)

    def suits(self, spec: ProbeSpec, child: Mapping[str, str]) -> bool:
        """Whether a forked process with these variables is what a fresh one would be for the probe."""
        if not (imports_both(spec) or spec.feature in IMPORTS) or not self.takes(child):
            return False
        try:
            return not touches_environment(Path(spec.path).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def is_ready(self, gives_up: Callable[[], bool]) -> bool:
        """Wait until it can fork; False when it cannot, or when gives_up (asked all the time) says so or raises."""
        while not self._settled.is_set():
            if gives_up():
                return False
            if self._lock.acquire(timeout=0.1):
                try:
                    self._hear()
                finally:
                    self._lock.release()
        return not self._why

    def complain(self) -> str:
        """What is wrong with it, in words, the first time that it is asked; "" otherwise."""
        if not self._why or self._complained:
            return ""
        self._complained = True
        return f"each probe imports torch and flashinfer by itself, the process to fork from is unfit: {self._why}"

    def forking(
        self, argv: Sequence[str], channel: int, *, script: Path = surroundings.HARNESS, option: str = "--record-fd"
    ) -> sandbox.Fork:
        """How to fork a process that runs the script with these arguments, and with a descriptor as that option's."""
        words = {"script": str(script), "argv": list(argv), "option": option}

        def fork(environ: Mapping[str, str], output: int) -> tuple[int, int]:
            wait, go = os.pipe()
            try:
                pid = self._ask(words, environ, (channel, output, wait))
            except BaseException:
                os.close(go)
                raise
            finally:
                os.close(wait)
            return pid, go

        return fork

    def end(self) -> None:
        """End it: it leaves when the socket is closed, and is killed otherwise."""
        with self._lock:
            self._socket.close()
            self._give_up("it was ended")
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _live(self, argv: Sequence[str]) -> None:
        """Its whole life, in a thread of its own."""
        with self._theirs:
            self._result = sandbox.run(
                argv,
                timeout_s=float("inf"),
                env=self._environ,
                pass_fds=(self._theirs.fileno(),),
                merge=True,
                on_poll=self._stop.is_set,
                leaves_orphans=False,
            )

    def _hear(self) -> None:
        """Take its first message if it is there."""
        if self._settled.is_set():
            return
        if time.monotonic() - self._begun > IMPORT_LIMIT_S:
            self._stop.set()
            self._give_up(f"it was still importing them after {IMPORT_LIMIT_S:g} s")
        elif select.select([self._socket], [], [], 0.05)[0]:
            answer = self._answer()
            self.import_s = answer.seconds
            self._theirs.close()  # it has one of its own, with which the connection has to end
            if answer.unfit:
                self._give_up(answer.unfit)
            self._settled.set()

    def _ask(self, words: Mapping[str, object], environ: Mapping[str, str], fds: Sequence[int]) -> int:
        """The number of the process that it forks. Raises NotForked, after which it is asked no more."""
        changed = {name: value for name, value in environ.items() if self._environ.get(name) != value}
        request = {**words, "set": changed, "unset": sorted(self._environ.keys() - environ.keys())}
        with self._lock:
            if not self._why:
                try:
                    socket.send_fds(self._socket, [json.dumps(request).encode("ascii")], list(fds))
                    answer = self._answer()
                except ConnectionError:
                    answer = _Answer(unfit=_ended(self._result))
                except OSError as exc:
                    answer = _Answer(unfit=f"it cannot be asked: {exc}")
                if answer.pid:
                    return answer.pid
                self._give_up(answer.unfit)
            raise sandbox.NotForked(self._why)

    def _answer(self) -> _Answer:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as exc:
            return _Answer(unfit=f"it does not answer: {exc}")
        if not data:
            return _Answer(unfit=_ended(self._result))
        try:
            return msgspec.json.decode(data, type=_Answer)
        except (
            msgspec.DecodeError,
            UnicodeDecodeError,
            RecursionError,
        ):  # something that it imports writes into its socket
            return _Answer(unfit="its answer cannot be read")

    def _give_up(self, why: str) -> None:
        self._why = self._why or why
        self._settled.set()


def _tags(facts: Facts) -> tuple[str, ...]:
    flashinfer = facts.flashinfer
    if isinstance(flashinfer, Missing) or isinstance(flashinfer.architectures, Missing):
        return ()
    return flashinfer.architectures


def _gpus(facts: Facts) -> list[str]:
    """How many GPUs CUDA sees, and of which capability all of them are, as far as that is known."""
    order, gpus = facts.gpus.cuda_order, facts.gpus.gpus
    if isinstance(order, Missing):
        return []
    sms = set() if isinstance(gpus, Missing) else {gpu.sm for gpu in gpus if gpu.uuid in order}
    words = [f"--gpus={len(order)}"]
    if len(sms) == 1 and not isinstance(sm := sms.pop(), Missing):
        words.append(f"--capability={sm // 10}.{sm % 10}")
    return words


def _ended(result: sandbox.Result | None) -> str:
    if result is None:
        return "it ended"
    if result.error:
        return f"it could not be started: {result.error}"
    how = f"signal {result.signal}" if result.signal is not None else f"status {result.returncode}"
    return f"it ended with {how}"
