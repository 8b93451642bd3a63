"""Does what one GPU sends to another arrive, where the driver reports peer access?

Every pair of visible GPUs (eight at most), both directions, each in two ways: the sender writes into the receiver's
memory, and the receiver reads the sender's. A pattern goes out and is looked at by the receiver, through a copy to the
host of its own; another pattern comes back. Each is moved by the driver's memcpy and, up to 1 MiB + 4, by the loads and
stores of a kernel, which is how all-reduce kernels reach the other GPU (its PTX is below; the driver compiles it).

Variants: peer_copy has all GPUs in one process (cuCtxEnablePeerAccess, cuMemcpyPeerAsync). ipc has a process for each
GPU, which opens the others' memory through CUDA IPC handles, as FlashInfer's create_shared_buffer and vLLM's custom
all-reduce do. The processes talk to the driver (libcuda) only: neither torch nor FlashInfer is imported. No CUDA
multicast object is made. The link is not asked for here (NVML knows it); native_atomics says what the driver does: they
go over NVLink and not over PCIe.

Where the driver reports no peer access, peer_copy goes through host memory, and has to arrive all the same; ipc leaves
such pairs out and names them: vLLM's own all-reduce asks the driver the same and lets NCCL serve. A process that does
not come back is killed, its pair is named, and the other pairs are checked by new processes. Pairs for which no time is
left are no failure: nothing is said then (SkipTest), unless another pair fails.

Shapes: 4 bytes, 1 KiB, 1 MiB + 4 bytes and 64 MiB, with 4 KiB of guard before and behind. All four buffers of a pair
hold patterns that no other transfer has; what is not the target must stay as it is (up to 1 MiB + 4 of it).

Tolerance: none. Every byte is compared. gb_s is the largest of three copies of 64 MiB, and is not judged.

Upstream: flashinfer/comm/cuda_ipc.py
"""

import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROBE = {
    "id": "comm.peer_transfer",
    "feature": "comm.peer_transfer",
    "module": "",
    "requires": {},
    "variants": {"peer_copy": {}, "ipc": {"peer_access": True}},
    "gpus": 2,
    "most_gpus": 8,
    "timeout_s": 120,
    "checks": "numbers",
}

SIZES = (4, 1 << 10, (1 << 20) + 4, 64 << 20)
MOST_BY_KERNEL = (1 << 20) + 4  # bytes; also of what must stay as it is
GUARD = 4096
SLACK = 2 << 20  # of the source of all patterns, at the offsets of which they begin
STEP = 53 * 4  # bytes from one pattern to the next
BOXES = ("in", "out")
START_S = 45.0  # for drivers and contexts
STALL_S = 10.0  # for one step, which takes a tenth of a second at most
MOST_STALLS = 2  # after which the other pairs are not checked
DEADLINE_S = 95.0  # for all steps of a variant, the start of drivers among them
KILLED_S = 5.0  # for a killed process to go away
TIMED_COPIES = 3
MOST_COUNTED = 1 << 20  # words that are wrong, which takes a second
BLOCKS, THREADS = 64, 256
COPY_WORDS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry copy_words(.param .u64 to_, .param .u64 from_, .param .u64 words_)
{
    .reg .pred %done;
    .reg .b32 %block, %size, %thread, %blocks, %stride, %word;
    .reg .b64 %to, %from, %words, %at, %step, %offset, %address;
    ld.param.u64 %to, [to_];
    ld.param.u64 %from, [from_];
    ld.param.u64 %words, [words_];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.lo.u32 %stride, %blocks, %size;
    cvt.u64.u32 %step, %stride;
    mad.lo.u32 %stride, %block, %size, %thread;
    cvt.u64.u32 %at, %stride;
NEXT:
    setp.ge.u64 %done, %at, %words;
    @%done bra END;
    shl.b64 %offset, %at, 2;
    add.u64 %address, %from, %offset;
    ld.volatile.global.u32 %word, [%address];
    add.u64 %address, %to, %offset;
    st.volatile.global.u32 [%address], %word;
    add.u64 %at, %at, %step;
    bra.uni NEXT;
END:
    membar.sys;
    ret;
}
"""


def run(variant):
    team = _Team(variant)
    try:
        failures, checked, speeds = _check_pairs(team)
    finally:
        team.close()
    verdict = _verdict(failures, team.names)
    if verdict is not None:
        raise verdict
    if not speeds:
        raise unittest.SkipTest("the driver reports no peer access between any two GPUs")
    slowest, fastest = min(speeds, key=speeds.get), max(speeds, key=speeds.get)
    return {
        "gpus": ", ".join(f"{gpu} {name}" for gpu, name in enumerate(team.names)),
        "peer_access": team.said_of("access"),
        "left_out": " ".join(f"{one}-{other}" for one, other in team.left_out),
        "native_atomics": team.said_of("atomics"),
        "pairs": len(team.pairs),
        "transfers": checked,
        "sizes": " ".join(map(str, SIZES)),
        "moved_by": "memcpy and kernel" if not team.no_kernel else f"memcpy only: {team.no_kernel}",
        "slowest": slowest,
        "slowest_gb_s": speeds[slowest],
        "fastest": fastest,
        "fastest_gb_s": speeds[fastest],
        "gb_s": ", ".join(f"{way} {speed}" for way, speed in speeds.items()),
    }


# The parent: says what is to be moved, and what became of it.


class _FailedError(Exception):
    """What a pair failed at."""

    def __init__(self, kind, sentence):
        super().__init__(sentence)
        self.kind = kind


def _check_pairs(team):
    """Failures (kind, sentence), how many transfers were right, and GB/s by "0>1"."""
    failures, checked, speeds = [], 0, {}
    for done, (one, other) in enumerate(team.pairs):
        if sum(kind != "wrong" for kind, _ in failures) >= MOST_STALLS or team.seconds_left() <= 0:
            failures.append(("unchecked", _unchecked(team.pairs[done:])))
            break
        try:
            team.join(one, other)
            for transfer in _transfers(team, one, other):
                wrong = _carry_out(team, transfer)
                checked += not wrong
                failures += [("wrong", sentence) for sentence in wrong]
            speeds.update({f"{a}>{b}": team.speed(a, b) for a, b in ((one, other), (other, one))})
        except _FailedError as exc:
            # Of a step that was cut short at the end of the time nobody knows whether it hangs.
            late = exc.kind == "stalls" and team.seconds_left() <= 0
            failures.append(("unchecked", _unchecked([(one, other)])) if late else (exc.kind, str(exc)))
            team.close()
    return failures, checked, speeds


def _unchecked(pairs):
    return f"not checked any more: pairs {' '.join(f'{one}-{other}' for one, other in pairs)}"


def _transfers(team, one, other):
    """(sender, receiver, which of them moves it, by what, bytes): out and back, first by the one, then by the other."""
    for size in SIZES:
        for by in ("memcpy", "kernel"):
            if by == "kernel" and (size > MOST_BY_KERNEL or team.no_kernel or not team.has_access(one, other)):
                continue
            yield one, other, one, by, size
            yield other, one, one, by, size
            yield other, one, other, by, size
            yield one, other, other, by, size


def _carry_out(team, transfer):
    """Everything that is wrong with one transfer, a sentence each."""
    sender, receiver, mover, by, size = transfer
    team.doing = _words(*transfer)
    whole, watched = size + 2 * GUARD, min(size, MOST_BY_KERNEL) + 2 * GUARD
    patterns = {(gpu, box): team.next_pattern() for gpu in (sender, receiver) for box in BOXES}
    for (gpu, box), at in patterns.items():
        ends = (sender, "out"), (receiver, "in")
        team.ask(gpu, "fill", gpu=gpu, box=box, at=at, length=whole if (gpu, box) in ends else watched)
    team.ask(mover, "copy", mover=mover, source=[sender, "out"], target=[receiver, "in"], length=size, by=by)
    at, sent = patterns.pop((receiver, "in")), patterns[sender, "out"] + GUARD
    asked = {"gpu": receiver, "box": "in", "at": at, "length": whole, "sent": sent}
    wrong = team.ask(receiver, "check", **asked)["wrong"]
    sentences = [f"{team.doing}: {wrong}{team.although(mover, sender, receiver)}"] if wrong else []
    for (gpu, box), kept in patterns.items():
        changed = team.ask(gpu, "check", gpu=gpu, box=box, at=kept, length=watched, sent=None)["wrong"]
        if changed:
            sentences.append(f"{team.doing}: another buffer, of GPU {gpu}, was changed: {changed}")
    return sentences


def _words(sender, receiver, mover, by, size):
    how = "written by GPU" if mover == sender else "read by GPU"
    return f"GPU {sender} -> GPU {receiver}, {size} bytes, {how} {mover} ({by})"


def _verdict(failures, names):
    """The exception that says what went wrong, and which GPUs are meant; None when nothing did."""
    if not failures:
        return None
    order = ("wrong", "stalls", "died", "raised", "unchecked")
    failures = sorted(failures, key=lambda failure: order.index(failure[0]))
    shown = [sentence for kind, sentence in failures if kind != "wrong"]
    wrong = [sentence for kind, sentence in failures if kind == "wrong"]
    shown = wrong[:6] + ([f"{len(wrong) - 6} more like these"] if len(wrong) > 6 else []) + shown
    meant = ", ".join(f"GPU {gpu}: {name}" for gpu, name in enumerate(names))
    late = all(kind == "unchecked" for kind, _ in failures)
    kind = AssertionError if wrong else unittest.SkipTest if late else RuntimeError
    return kind(f"{f'no time was left ({DEADLINE_S:g} s): ' if late else ''}{'; '.join(shown)} ({meant})")


class _Team:
    """The processes that have the GPUs: one for all of them, or one for each. They are started anew when one fails."""

    def __init__(self, variant):
        self.variant, self.doing, self.patterns, self.no_kernel = variant, "starting", itertools.count(1), ""
        self.end = time.monotonic() + DEADLINE_S
        self.workers, asking = {}, _Worker(())
        try:
            said = asking.ask("report", self.limit(START_S), "asking the driver")
        except _FailedError as exc:
            raise RuntimeError(str(exc)) from None
        finally:
            asking.close()
        self.names, self.access, self.atomics = said["names"], said["access"], said["atomics"]
        if len(self.names) < PROBE["gpus"]:
            raise RuntimeError(f"{PROBE['gpus']} GPUs are needed, {len(self.names)} are visible")
        del self.names[PROBE["most_gpus"] :]
        pairs = list(itertools.combinations(range(len(self.names)), 2))
        self.left_out = [pair for pair in pairs if variant == "ipc" and not self.has_access(*pair)]
        self.pairs = [pair for pair in pairs if pair not in self.left_out]

    def seconds_left(self):
        return self.end - time.monotonic()

    def limit(self, most_s):
        """Seconds for a step: no more than are left for all."""
        return max(0.1, min(most_s, self.seconds_left()))

    def start(self):
        gpus = range(len(self.names))
        groups = [tuple(gpus)] if self.variant == "peer_copy" else [(gpu,) for gpu in gpus]
        for group in groups:
            worker = _Worker(group)
            self.workers.update(dict.fromkeys(group, worker))
        self.handles, self.doing = {}, "taking the GPUs and their memory"
        for worker in self._each():
            worker.tell("start", gpus=worker.gpus, largest=SIZES[-1])
        for worker in self._each():  # together, because a context takes a while
            said = worker.answer(self.limit(START_S), f"GPU {', '.join(map(str, worker.gpus))}: {self.doing}")
            self.no_kernel = self.no_kernel or said["no_kernel"]
            self.handles.update({(worker.gpus[0], box): handle for box, handle in said["handles"].items()})

    def _each(self):
        return list(dict.fromkeys(self.workers.values()))

    def join(self, one, other):
        """Give each of the two the other's memory."""
        self.doing = f"GPU {one} and GPU {other}"
        if not self.workers:
            self.start()
        for gpu, owner in ((one, other), (other, one)):
            if not self.access[gpu][owner]:
                continue
            if self.variant == "peer_copy":
                self.doing = f"GPU {gpu} is given access to GPU {owner}"
                self.ask(gpu, "enable", gpu=gpu, owner=owner)
                continue
            for box in BOXES:
                self.doing = f"GPU {gpu} opens memory of GPU {owner} (CUDA IPC)"
                self.ask(gpu, "open", gpu=gpu, owner=owner, box=box, handle=self.handles[owner, box])

    def ask(self, place, step, **words):
        return self.workers[place].ask(step, self.limit(STALL_S), self.doing, **words)

    def speed(self, sender, receiver):
        """GB/s of the largest copy, written by the sender."""
        self.doing = f"{_words(sender, receiver, sender, 'memcpy', SIZES[-1])}, timed"
        said = self.ask(sender, "time", mover=sender, source=[sender, "out"], target=[receiver, "in"], length=SIZES[-1])
        return round(SIZES[-1] / max(said["seconds"], 1e-9) / 1e9, 1)

    def next_pattern(self):
        return next(self.patterns) * STEP % SLACK

    def has_access(self, one, other):
        return bool(self.access[one][other] and self.access[other][one])

    def although(self, mover, sender, receiver):
        other = receiver if mover == sender else sender
        return ", although the driver reports peer access" if self.access[mover][other] else " (through host memory)"

    def said_of(self, table):
        """What the driver says of all directions in one word, or of each."""
        rows = getattr(self, table)
        said = {f"{a}>{b}": bool(rows[a][b]) for a, b in itertools.permutations(range(len(self.names)), 2)}
        if len(set(said.values())) == 1:
            return "yes" if all(said.values()) else "no"
        return "not " + " ".join(way for way, yes in said.items() if not yes)

    def close(self):
        """End all; one that the driver does not let go is left behind."""
        for worker in self._each():
            worker.process.kill()
        deadline = time.monotonic() + KILLED_S
        for worker in self._each():
            worker.close(max(0.1, deadline - time.monotonic()))
        self.workers = {}


class _Worker:
    """One process that carries out steps: JSON lines to its stdin, one answer to each from its stdout."""

    def __init__(self, gpus):
        self.gpus, self.buffer = list(gpus), b""
        words = [sys.executable, "-I", str(Path(__file__).absolute()), "worker"]
        self.log = tempfile.TemporaryFile(dir=os.environ.get("FI_DOCTOR_SCRATCH"))  # noqa: SIM115 - until it is closed
        pipe = subprocess.PIPE
        surroundings = {**os.environ, "CUDA_CACHE_DISABLE": "1"}  # the driver would keep the kernel in ~/.nv
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=self.log, env=surroundings)

    def ask(self, step, limit_s, doing, **words):
        self.tell(step, **words)
        return self.answer(limit_s, doing)

    def tell(self, step, **words):
        with contextlib.suppress(BrokenPipeError):  # it is dead, which is seen at the answer
            self.process.stdin.write(json.dumps({"step": step, **words}).encode() + b"\n")
            self.process.stdin.flush()

    def answer(self, limit_s, doing):
        """What it says; _FailedError when it says an error, dies or says nothing."""
        deadline = time.monotonic() + limit_s
        while not self.buffer.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise _FailedError("stalls", f"{doing}: hangs: nothing came back within {limit_s:g} s")
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise _FailedError("died", f"{doing}: its process {self._ending()}{self._last_words()}")
            self.buffer += piece
        said, self.buffer = json.loads(self.buffer), b""
        if "error" in said:
            raise _FailedError("raised", f"{doing}: {said['error']}")
        return said

    def _ending(self):
        try:
            status = self.process.wait(KILLED_S)
        except subprocess.TimeoutExpired:  # its files are closed one after the other, those of the GPUs may take long
            return f"says no more and does not end within {KILLED_S:g} s"
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    def _last_words(self):
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").splitlines()
        return f": {lines[-1]}" if lines else ""

    def close(self, limit_s=KILLED_S):
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(limit_s)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


# A process that has GPUs.


class _CudaError(Exception):
    """A driver function that failed."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


_POINTER, _INT, _UNSIGNED, _SIZE, _ADDRESS = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_uint64,
)
SIGNATURES = {
    "cuInit": (_UNSIGNED,),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDeviceGetPCIBusId": (_POINTER, _INT, _INT),
    "cuDeviceCanAccessPeer": (_POINTER, _INT, _INT),
    "cuDeviceGetP2PAttribute": (_POINTER, _INT, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxSetCurrent": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (_POINTER, _UNSIGNED),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemcpyHtoD_v2": (_ADDRESS, _POINTER, _SIZE),
    "cuMemcpyDtoH_v2": (_POINTER, _ADDRESS, _SIZE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyPeerAsync": (_ADDRESS, _POINTER, _ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuEventCreate": (_POINTER, _UNSIGNED),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
    "cuIpcGetMemHandle": (_POINTER, _ADDRESS),
    "cuIpcOpenMemHandle_v2": (_POINTER, _IpcHandle, _UNSIGNED),
    "cuModuleLoadData": (_POINTER, ctypes.c_char_p),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuLaunchKernel": (_POINTER, *[_UNSIGNED] * 7, _POINTER, _POINTER, _POINTER),
    "cuGetErrorName": (_INT, _POINTER),
}
NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, as FlashInfer asks for
ALREADY_ENABLED = "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"


class _Driver:
    """libcuda, the functions of SIGNATURES as methods; each raises _CudaError."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        function = getattr(self.library, name)
        function.argtypes, function.restype = SIGNATURES[name], ctypes.c_int
        code = function(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorName(code, ctypes.byref(text))
            raise _CudaError(f"{name}: {(text.value or b'CUresult %d' % code).decode()}")

    def get(self, name, *arguments, kind=ctypes.c_int):
        """The value that the function puts where its first argument points."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def text(self, name, *arguments):
        text = ctypes.create_string_buffer(256)
        self.call(name, text, len(text), *arguments)
        return text.value.decode(errors="replace")


def _work():
    """Carry out the steps on stdin until it ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: it does not outlive its parent
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    holder = _Holder()
    for line in sys.stdin:
        words = json.loads(line)
        try:
            said = getattr(holder, words.pop("step"))(**words) or {}
        except (_CudaError, OSError) as exc:
            said = {"error": str(exc)}
        os.write(answers, json.dumps(said).encode() + b"\n")
    os._exit(0)


class _Holder:
    """The GPUs of one process, their boxes, and those of other processes that were opened."""

    def __init__(self):
        self.driver = None
        self.contexts, self.kernels, self.boxes = {}, {}, {}

    def report(self):
        """What the driver says before anything is done."""
        driver = self._begun()
        gpus = [driver.get("cuDeviceGet", index) for index in range(driver.get("cuDeviceGetCount"))]
        ask = "cuDeviceCanAccessPeer"
        access = [[a != b and driver.get(ask, a, b) for b in gpus] for a in gpus]
        atomics = [[a != b and self._atomics(a, b) for b in gpus] for a in gpus]
        names = [f"{driver.text('cuDeviceGetName', g)} at {self._bus(g)}" for g in gpus]
        return {"names": names, "access": access, "atomics": atomics}

    def _begun(self):
        if self.driver is None:
            self.driver = _Driver()
            self.driver.call("cuInit", 0)
        return self.driver

    def _atomics(self, one, other):
        return self.driver.get("cuDeviceGetP2PAttribute", NATIVE_ATOMICS, one, other)

    def _bus(self, gpu):
        return self.driver.text("cuDeviceGetPCIBusId", gpu)

    def start(self, gpus, largest):
        """Contexts, memory, the kernel, the source of all patterns and a place to look at what came."""
        driver, size = self._begun(), largest + 2 * GUARD
        self.patterns = ctypes.create_string_buffer(hashlib.shake_128(b"fi-doctor").digest(size + SLACK), size + SLACK)
        self.seen = ctypes.create_string_buffer(size)
        self.wanted = ctypes.create_string_buffer(size)
        why = ""
        for gpu in gpus:
            device = driver.get("cuDeviceGet", gpu)
            self.contexts[gpu] = driver.get("cuDevicePrimaryCtxRetain", device, kind=ctypes.c_void_p)
            self._enter(gpu)
            for box in BOXES:
                self.boxes[gpu, box] = driver.get("cuMemAlloc_v2", size, kind=ctypes.c_uint64)
            why = why or self._load(gpu)
        handles = {box: self._handle(self.boxes[gpus[0], box]) for box in BOXES} if len(gpus) == 1 else {}
        return {"handles": handles, "no_kernel": why}

    def _enter(self, gpu):
        self.driver.call("cuCtxSetCurrent", self.contexts[gpu])

    def _load(self, gpu):
        """Why the driver does not compile the kernel; "" when it does."""
        try:
            module = self.driver.get("cuModuleLoadData", COPY_WORDS, kind=ctypes.c_void_p)
            name = "cuModuleGetFunction"
            self.kernels[gpu] = self.driver.get(name, module, b"copy_words", kind=ctypes.c_void_p)
        except _CudaError as exc:
            return str(exc)
        return ""

    def _handle(self, address):
        handle = _IpcHandle()
        self.driver.call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle.reserved).hex()

    def enable(self, gpu, owner):
        self._enter(gpu)
        try:
            self.driver.call("cuCtxEnablePeerAccess", self.contexts[owner], 0)
        except _CudaError as exc:
            if ALREADY_ENABLED not in str(exc):
                raise

    def open(self, gpu, owner, box, handle):
        """Once for each handle, which the driver opens only once in a context."""
        if (owner, box) in self.boxes:
            return
        self._enter(gpu)
        given = _IpcHandle((ctypes.c_ubyte * 64).from_buffer_copy(bytes.fromhex(handle)))
        asked = (given, LAZY_PEER_ACCESS)
        self.boxes[owner, box] = self.driver.get("cuIpcOpenMemHandle_v2", *asked, kind=ctypes.c_uint64)

    def fill(self, gpu, box, at, length):
        self._enter(gpu)
        self.driver.call("cuMemcpyHtoD_v2", self.boxes[gpu, box], ctypes.addressof(self.patterns) + at, length)
        self.driver.call("cuCtxSynchronize")  # the copy from pageable memory returns before its end

    def copy(self, mover, source, target, length, by):
        self._enter(mover)
        self._launch(mover, source, target, length, by)
        self.driver.call("cuCtxSynchronize")

    def _launch(self, mover, source, target, length, by):
        sent, received = (self.boxes[tuple(end)] + GUARD for end in (source, target))
        if by == "kernel":
            values = [ctypes.c_uint64(value) for value in (received, sent, length // 4)]
            pointers = (ctypes.c_void_p * 3)(*[ctypes.addressof(value) for value in values])
            sizes = (BLOCKS, 1, 1, THREADS, 1, 1)
            self.driver.call("cuLaunchKernel", self.kernels[mover], *sizes, 0, None, pointers, None)
        elif target[0] in self.contexts and source[0] in self.contexts:
            ends = (received, self.contexts[target[0]], sent, self.contexts[source[0]])
            self.driver.call("cuMemcpyPeerAsync", *ends, length, None)
        else:
            self.driver.call("cuMemcpyDtoDAsync_v2", received, sent, length, None)

    def time(self, mover, source, target, length):
        """Seconds of the fastest of some copies."""
        self._enter(mover)
        events = [self.driver.get("cuEventCreate", 0, kind=ctypes.c_void_p) for _ in range(TIMED_COPIES + 1)]
        for event in events:
            if event is not events[0]:
                self._launch(mover, source, target, length, "memcpy")
            self.driver.call("cuEventRecord", event, None)
        self.driver.call("cuCtxSynchronize")
        elapsed = "cuEventElapsedTime"
        spans = [self.driver.get(elapsed, a, b, kind=ctypes.c_float) for a, b in itertools.pairwise(events)]
        return {"seconds": min(spans) / 1000}

    def check(self, gpu, box, at, length, sent):
        """What is wrong with the box in words: it should hold its own pattern, inside the guards the one sent."""
        self._enter(gpu)
        ctypes.memset(self.seen, 0, length)
        self.driver.call("cuMemcpyDtoH_v2", self.seen, self.boxes[gpu, box], length)
        own, wanted = ctypes.addressof(self.patterns) + at, ctypes.addressof(self.wanted)
        ctypes.memmove(wanted, own, length)
        if sent is not None:
            ctypes.memmove(wanted + GUARD, ctypes.addressof(self.patterns) + sent, length - 2 * GUARD)
        if _same(self.seen, wanted, length):
            return {"wrong": ""}
        if sent is not None and _same(self.seen, own, length):
            return {"wrong": "nothing arrived: the buffer holds what it held before"}
        return {"wrong": _difference(self.seen, self.wanted, length)}


def _same(one, other, length):
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return compare(one, other, length) == 0


def _difference(seen, wanted, length):
    """How many words differ, and the first of them; before word 0 and behind the last are the guards."""
    got, expected = (memoryview(buffer)[:length].cast("B").cast("I") for buffer in (seen, wanted))
    differ = (word for word in range(length // 4) if got[word] != expected[word])
    at = list(itertools.islice(differ, MOST_COUNTED))
    count = f"{len(at)}{' or more' * (len(at) == MOST_COUNTED)} of {(length - 2 * GUARD) // 4}"
    first = f"got 0x{got[at[0]]:08x}, expected 0x{expected[at[0]]:08x}"
    return f"{count} words are wrong, the first at {at[0] - GUARD // 4}: {first}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        _work()
    try:
        _Team("")
    except RuntimeError as error:  # no driver, or too few GPUs
        sys.exit(f"{PROBE['id']}: {error}")
    for name in sys.argv[1:] or PROBE["variants"]:
        print(name, run(name))
