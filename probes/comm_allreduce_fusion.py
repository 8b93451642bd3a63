"""Does trtllm_allreduce_fusion add up two ranks, add the residual and normalise the sum, through plain CUDA IPC memory?

Two processes, one GPU each, make the calls of vLLM's fusion pass (pattern kARResidualRMSNorm, fp32_acc, launched with
PDL, completion triggered at the end): residual_out holds input 0 + input 1 + residual, norm_out holds residual_out /
sqrt(mean(residual_out^2) + eps) * gamma, the same on both ranks. Three forms: outputs of their own (poisoned with NaN;
the inputs must stay), vLLM's "in_place" (norm_out is the input, residual_out is the residual), and vLLM's "first_norm"
(the residual is zero, residual_out is the input).

No CUDA multicast object is made: the workspace is FlashInfer's create_shared_buffer (cudaMalloc and CUDA IPC handles,
exchanged through gloo and a file) in the layout of trtllm_create_ipc_workspace_for_all_reduce_fusion up to 0.6.9. vLLM
may use another workspace (symmetric memory, or multicast) with the same kernels.

Shapes: 9 calls one after the other, without waiting, on one workspace: 1 to 520 tokens of 4096 or 1536 elements, sizes
up and down, inputs new each time, so that what an earlier call left in one of the three Lamport buffers comes out.
Rows differ in scale (0.001, 1 and 30), so that eps = 1e-5 decides the result of every third row; some inputs are -0.0,
which the one-shot kernels use as "not yet there". two-shot: 3 to 520 tokens, also odd numbers, which the ranks share
unevenly. oneshot_bf16_h2880: 2880 elements (gpt-oss), for which a block ends with an incomplete warp: before 0.6.15 the
kernel adds up lanes there that do not exist, which is undefined (fixed by pull request 3880).

Tolerance: u is half a unit in the last place of the dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11: 2^-11).
residual_out: a kernel may round the sum of the ranks to the dtype and then the sum with the residual, u * |in0 + in1| *
(1 + u) + u * |expected|. norm_out, against the norm of the residual_out that the kernel returned: 3 * u * |expected|,
one for its own rounding and two because it may normalise the sum before that is rounded (the element and the mean).
Plus 2^-16, relative, for the float32 arithmetic of kernel and reference; for fp16 plus 2^-24, one smallest subnormal,
and what the normalisation makes of it. Each rank computes the reference in float32 from the same seeds.

Upstream: include/flashinfer/comm/trtllm_allreduce_fusion.cuh, flashinfer/comm/trtllm_ar.py, flashinfer/comm/cuda_ipc.py
"""

import atexit
import contextlib
import ctypes
import faulthandler
import functools
import gc
import io
import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

PROBE = {
    "id": "comm.allreduce_fusion",
    "feature": "comm.allreduce_fusion",
    "module": "trtllm_comm",
    "requires": {
        "sm": ">=90",
        "flashinfer": ">=0.5",
        "symbols": [
            "flashinfer.comm.create_shared_buffer",
            "flashinfer.comm.trtllm_allreduce_fusion",
            "flashinfer.comm.trtllm_lamport_initialize",
        ],
        "peer_access": True,
    },
    "variants": {"oneshot_bf16": {}, "twoshot_bf16": {}, "oneshot_fp16": {}, "oneshot_bf16_h2880": {}},
    "gpus": 2,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

WORLD = 2
EPS = 1e-5
ROW_SCALES = (1e-3, 1.0, 30.0)
GUARD = 64  # elements before and after a tensor; keeps it aligned to 128 bytes
DEADLINE_S = 60.0  # for one variant; the first one starts the ranks as well
FORKED_DEADLINE_S = 35.0  # the same for forked ranks, after which fresh ones are asked
REHEARSAL_S = 5.0  # for a forked process that only ends
GRACE_S = 10.0  # for the other rank, once one has failed
KILLED_S = 5.0  # for killed processes to go away
PAGE = 1 << 21  # FlashInfer rounds its shared buffers up to 2 MiB
BARRIER_FLAGS = 256  # per rank
CALLS = (  # tokens, hidden size, form
    (7, 4096, "in_place"),
    (1, 4096, "separate"),
    (520, 1536, "separate"),
    (128, 4096, "first_norm"),
    (1, 1536, "in_place"),
    (520, 4096, "in_place"),
    (7, 1536, "first_norm"),
    (129, 4096, "separate"),
    (1, 4096, "in_place"),
)
INCOMPLETE_WARP = 2880  # the hidden size of oneshot_bf16_h2880
FEWEST_TWOSHOT_TOKENS = 3  # FlashInfer asks for more tokens than ranks
# What faulthandler prints besides a rank's own stack: the parent's, from which it was forked, and names of modules.
BESIDE_THE_POINT = re.compile(r"(?<= in _serve\n)(  File .*\n)+|^Extension modules: .*\n", re.MULTILINE)
_FRESH = []  # why ranks are not forked any more
# No multicast objects, whatever a library would like to do: they are a resource of the whole host; ranks get killed.
RANK_ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTHONFAULTHANDLER": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}


def build(variant):  # noqa: ARG001 - one module serves every variant
    _fork_early()
    import flashinfer.comm.trtllm_ar

    flashinfer.comm.trtllm_ar.get_trtllm_comm_module()


def run(variant):
    calls = _calls(variant)
    pair = _pair()
    results = pair.ask(variant, calls)
    verdict = _verdict(results)
    if pair.started == "forked" and verdict is not None and not isinstance(verdict, AssertionError):
        # What forking alone might have done is no verdict: fresh ranks say whether it is the kernel.
        _end_pair()
        _FRESH.append(f"forked ranks failed: {verdict}"[:200])
        pair = _pair()
        results = pair.ask(variant, calls)
        verdict = _verdict(results)
    if verdict is not None:  # flags, buffers or the CUDA context may be in any state: the next variant gets new ranks
        _end_pair()
        raise verdict
    shares = {key: max(result[key] for result in results) for key in results[0] if key.endswith("share")}
    return {
        "world_size": WORLD,
        "ranks": pair.started,
        "workspace": "CUDA IPC",
        "pattern": "kARResidualRMSNorm",
        "kernel": variant.partition("_")[0],
        "eps": EPS,
        "calls": len(calls),
        "shapes": " ".join(f"{tokens}x{hidden}/{form}" for tokens, hidden, form in calls),
        "gpus": ", ".join(result["gpu"] for result in results),
        "elements": sum(result["elements"] for result in results),
        **shares,
    }


def _calls(variant):
    fewest = FEWEST_TWOSHOT_TOKENS if variant.startswith("twoshot") else 1
    hidden = INCOMPLETE_WARP if variant.endswith("_h2880") else None
    return [(max(tokens, fewest), hidden or usual, form) for tokens, usual, form in CALLS]


# The parent: starts the ranks, waits for them and says what became of them.


class _Ranks:
    """Two processes that carry out one variant after the other: of this file, or forked from this process."""

    def __init__(self):
        # fi-doctor removes its folder also when this process is killed.
        self.folder = tempfile.TemporaryDirectory(prefix="fi-doctor-ranks-", dir=os.environ.get("FI_DOCTOR_SCRATCH"))
        self.path = Path(self.folder.name)
        self.asked = 0
        self.processes = []
        elements = max(tokens * hidden for variant in PROBE["variants"] for tokens, hidden, _ in _calls(variant))
        with _forking() as obstacle:
            self.started = f"fresh: {obstacle}" if obstacle else "forked"
            for rank in range(WORLD):
                with self._log(rank).open("wb") as log:
                    self.processes.append((self._start if obstacle else self._fork)(rank, elements, log))

    def _start(self, rank, elements, log):
        words = [sys.executable, str(Path(__file__).absolute()), "rank", *map(str, (rank, self.path, elements))]
        environment = {**os.environ, **RANK_ENVIRONMENT}
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def _fork(self, rank, elements, log):
        """The same without a new interpreter, which would import torch and flashinfer again."""

        def work():
            for process in self.processes:  # else the earlier rank would not see the end of its commands
                process.stdin.close()
            gc.freeze()  # a collection would copy every page that it looks at, and finalise what is the parent's
            _serve(rank, self.path, elements)

        return _Forked(work, log.fileno())

    def ask(self, variant, calls):
        """What each rank says of the variant, or what is to be said of a rank that does not answer."""
        self.asked += 1
        command = json.dumps({"variant": variant, "calls": calls, "number": self.asked}) + "\n"
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which is seen below
                process.stdin.write(command.encode())
                process.stdin.flush()
        results = [None] * WORLD
        begun = time.monotonic()
        deadline = begun + (FORKED_DEADLINE_S if self.started == "forked" else DEADLINE_S)
        while None in results and time.monotonic() < deadline:
            time.sleep(0.01)
            for rank in range(WORLD):
                results[rank] = results[rank] or self._result(rank)
            if any(result and "error" in result for result in results):
                deadline = min(deadline, time.monotonic() + GRACE_S)
        silent = [rank for rank in range(WORLD) if results[rank] is None]
        self._print_stacks(silent)
        for rank in silent:
            message = f"did not come back from '{self._step(rank)}' within {deadline - begun:.0f} s"
            results[rank] = {"error": "hangs", "message": message, "more": self._last_lines(rank)}
        return results

    def _result(self, rank):
        ended = self.processes[rank].poll()
        path = self.path / f"result.{self.asked}.{rank}"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        if ended is None:
            return None
        how = f"was killed by {_signal_name(-ended)}" if ended < 0 else f"ended with status {ended}"
        return {"error": "died", "message": f"{how} at '{self._step(rank)}'", "more": self._last_lines(rank)}

    def _print_stacks(self, ranks):
        for rank in ranks:
            self.processes[rank].send_signal(signal.SIGUSR1)
        if ranks:
            time.sleep(0.5)

    def _step(self, rank):
        path = self.path / f"step.{rank}"
        return path.read_text(encoding="utf-8") if path.exists() else "starting"

    def _last_lines(self, rank):
        text = self._log(rank).read_text(encoding="utf-8", errors="replace")
        return "\n".join(BESIDE_THE_POINT.sub("", text).splitlines()[-25:])[-3000:]

    def _log(self, rank):
        return self.path / f"log.{rank}"

    def close(self):
        """End both; a kernel that waits for the other rank ends with its process."""
        for process in self.processes:
            process.kill()
        end = time.monotonic() + KILLED_S
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that the driver does not let go is left behind
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        self.folder.cleanup()


class _Forked:
    """A forked process that does its work and ends; what is used here of a subprocess.Popen."""

    def __init__(self, work, log=None):
        """With a log (descriptor), it reads a pipe as its stdin and writes into the log as its stdout and stderr."""
        reading, writing = os.pipe()
        _flush()
        with warnings.catch_warnings():  # Python 3.12 warns if there are threads; they are counted in _forking
            warnings.simplefilter("ignore")
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(writing)
                if log is not None:
                    _take_streams(reading, log)
                status = int(work() or 0)
            except BaseException as exc:  # noqa: BLE001 - nothing may go on into the parent's code
                traceback.print_exc()
                status = exc.code if isinstance(exc, SystemExit) and isinstance(exc.code, int) else 1
            finally:
                _flush()
                os._exit(status & 0xFF)
        os.close(reading)
        self.stdin = open(writing, "wb")  # noqa: PTH123, SIM115 - a descriptor
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout):
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(0.001)
        return self.returncode

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number):
        if self.poll() is None:  # else the number may be another process's by now
            os.kill(self.pid, number)


def _take_streams(reading, log):
    """The streams of a new interpreter: sys.stdout may be anything in the parent, where nothing of it is lost."""
    for number, source in enumerate((reading, log, log)):
        os.dup2(source, number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - a descriptor
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True))


def _flush():
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be None, broken or closed
            stream.flush()


@contextlib.contextmanager
def _forking():
    """Why a fork of this process is not as good as a fresh interpreter that has imported torch and flashinfer; or "".

    It is only when they are there, nothing has used CUDA, and there is one thread. The harness has faulthandler print
    the stacks of a hang, and its timer is a thread, which is stopped meanwhile.
    """
    # The rehearsal first: pools that are fork-safe (OpenBLAS) end their threads for it.
    obstacle = next(iter(_FRESH), "") or _cuda_used() or _not_rehearsed()
    stopped = not obstacle and _stop_timer()
    try:
        yield obstacle or ("" if _threads() == 1 else f"{_threads()} threads")
    finally:
        if stopped:
            faulthandler.dump_traceback_later(PROBE["timeout_s"] - 1)  # as the harness does, a moment later


def _cuda_used():
    """By torch, or by somebody who went past torch: the driver opens this device, NVML does not."""
    torch = sys.modules.get("torch")
    if torch is None or "flashinfer" not in sys.modules:
        return "torch and flashinfer are not imported"
    if torch.cuda.is_initialized():
        return "CUDA is initialised"
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(link) == "/dev/nvidia-uvm":  # noqa: PTH115 - Path.readlink would change "pipe:[1]"
                return "/dev/nvidia-uvm is open"
    return ""


def _not_rehearsed():
    """Why a fork does not work, or torch would not use CUDA in it."""
    try:
        process = _Forked(sys.modules["torch"].cuda._is_in_bad_fork)  # noqa: SLF001 - there is no other way to know
        process.stdin.close()
        deadline = time.monotonic() + REHEARSAL_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        status = process.wait(KILLED_S)
    except (
        AttributeError,
        OSError,
        subprocess.TimeoutExpired,
    ) as exc:  # no such question, no fork, or somebody else takes notice of its end
        return f"{type(exc).__name__}: {exc}"
    return f"a forked process ended with status {status}" if status else ""


def _stop_timer():
    """Stop faulthandler's timer; whether there was one. Its thread ends a moment after it says so."""
    before = _threads()
    faulthandler.cancel_dump_traceback_later()
    deadline = time.monotonic() + 0.1
    while before > 1 and _threads() == before and time.monotonic() < deadline:
        time.sleep(0.001)
    return _threads() < before


def _threads():
    return len(list(Path("/proc/self/task").iterdir()))


@functools.cache
def _fork_early():
    """Fork the ranks while nothing is loaded that could spoil a fork; they wait for their first command.

    Only where the GPUs are named that they will run on: else this process may have been started to compile.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "").count(",") + 1 < WORLD:
        return
    with _forking() as obstacle:
        pass
    if not obstacle:
        _pair()


@functools.cache
def _pair():
    pair = _Ranks()
    atexit.register(pair.close)
    return pair


def _end_pair():
    pair = _pair()
    _pair.cache_clear()
    atexit.unregister(pair.close)
    pair.close()


def _verdict(results):
    """The exception that says what went wrong; None when nothing did.

    A rank that died or raised explains one that hangs or has wrong numbers, hence the order.
    """
    order = ("died", "raised", "wrong", "hangs")
    failed = sorted((order.index(r["error"]), rank, r) for rank, r in enumerate(results) if "error" in r)
    if not failed:
        return None
    sentences = "; ".join(f"rank {rank}{': ' if kind in {1, 2} else ' '}{r['message']}" for kind, rank, r in failed)
    if order[failed[0][0]] == "wrong":
        return AssertionError(sentences)
    more = "".join(f"\nLast lines of rank {rank}:\n{r['more']}" for _, rank, r in failed if r.get("more"))
    return RuntimeError(sentences + more)


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The ranks.


class _WrongNumbersError(Exception):
    """FlashInfer's numbers are wrong, or it changed what it must not change."""


def _serve(rank, folder, elements):
    """Carry out the commands on stdin until it ends; the result of each is a file. elements: of the largest tensor."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: a rank does not outlive its parent
    os.environ.update(RANK_ENVIRONMENT)
    steps = Path(folder) / f"step.{rank}"
    team = None
    for line in sys.stdin:
        team = team or _Team(rank, Path(folder), elements, steps.write_text)
        command = json.loads(line)
        result = _carried_out(team, command["variant"], command["calls"])
        path = Path(folder) / f"result.{command['number']}.{rank}"
        draft = path.with_name(f"draft.{rank}")
        draft.write_text(json.dumps(result), encoding="utf-8")
        draft.replace(path)
    os._exit(0)  # without the teardown of gloo and CUDA, which the other rank may not live to see


def _carried_out(team, variant, calls):
    try:
        team.join()
        return _measured(team, variant, calls)
    except _WrongNumbersError as exc:
        return {"error": "wrong", "message": str(exc)}
    except Exception as exc:  # noqa: BLE001 - the parent is to know of every kind
        kind = type(exc)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return {"error": "raised", "message": f"{name}: {exc}", "more": traceback.format_exc()[-3000:]}


class _Team:
    """One rank's place among the ranks: its device, and the workspace that they share."""

    def __init__(self, rank, folder, elements, step):
        self.rank, self.folder, self.elements, self.step = rank, folder, elements, step
        self.device = None

    def join(self):
        """Once: import, take the GPU, meet the other ranks and make the workspace."""
        if self.device is not None:
            return
        self.step("importing torch and flashinfer.comm")
        import flashinfer.comm
        import torch
        import torch.distributed

        self.step("taking its GPU")
        name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
        self.device = torch.device(name, self.rank) if name == "cuda" else torch.device(name)
        if self.device.type == "cuda":
            if torch.cuda.device_count() < WORLD:
                raise RuntimeError(f"{WORLD} GPUs are needed, {torch.cuda.device_count()} are visible")
            torch.cuda.set_device(self.device)
        self.step("meeting the other rank (gloo)")
        store = torch.distributed.FileStore(str(self.folder / "store"), WORLD)
        torch.distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=WORLD)
        self.step("making the workspace (CUDA IPC)")
        self.workspace = self._workspace(flashinfer.comm.CudaRTLibrary())

    def _workspace(self, runtime):
        """int64 pointers: each rank's buffer, flags and Lamport buffers, and this rank's own counters.

        A buffer takes two tensors (two-shot: input and sum). A Lamport buffer, of which there are three in one piece,
        takes one tensor of each rank.
        """
        import flashinfer.comm
        import torch

        lamport = WORLD * self.elements * 2
        sizes = [_rounded_up(size) for size in (2 * self.elements * 2, WORLD * BARRIER_FLAGS * 4, 3 * lamport)]
        shared = [flashinfer.comm.create_shared_buffer(size, group=None) for size in sizes]
        runtime.cudaMemset(ctypes.c_void_p(shared[1][self.rank]), 0, sizes[1])
        flashinfer.comm.trtllm_lamport_initialize(shared[2][self.rank], sizes[2] // 2, torch.float16)
        # blocks that have read the flags, two-shot flag, which Lamport buffer, size of one in bytes, what to clear
        self.counters = torch.tensor([0, 0, 0, lamport, 0], dtype=torch.int32, device=self.device)
        pointers = [pointer for ranks in shared for pointer in ranks] + [self.counters.data_ptr()]
        table = torch.tensor(pointers, dtype=torch.int64, device=self.device)
        self.wait()
        torch.distributed.barrier()
        return table

    def wait(self):
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _rounded_up(size):
    return -(-size // PAGE) * PAGE


def _measured(team, variant, calls):
    """Make the calls, then look at what each has written."""
    import torch

    made = []
    for number, (tokens, hidden, form) in enumerate(calls, 1):
        label = f"{variant}: call {number} of {len(calls)}, {tokens}x{hidden}, {form}"
        team.step(f"{label}: preparing")
        made.append(_Call(team, variant, number, tokens, hidden, form, label))
    team.wait()
    for call in made:
        team.step(f"{call.label}: launching")
        call.launch(team)
    for call in made:
        team.step(f"{call.label}: waiting for the kernel")
        call.wait()
    rounding, smallest = _rounding(made[0].dtype)
    sums, norms = _Errors(), _Errors()
    for call in made:
        team.step(f"{call.label}: comparing")
        call.check(rounding, smallest, sums, norms)
    name = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else "CPU"
    return {
        "gpu": name,
        "elements": sums.elements + norms.elements,
        "residual_max_share": sums.max_share,
        "norm_max_share": norms.max_share,
    }


class _Call:
    """One call of trtllm_allreduce_fusion: its tensors, and what must be in them afterwards."""

    def __init__(self, team, variant, number, tokens, hidden, form, label):  # noqa: PLR0913, PLR0917 - what a call is
        import torch

        self.label, self.form, self.shape, self.event = label, form, (tokens, hidden), None
        self.oneshot = variant.startswith("oneshot")
        self.dtype = torch.float16 if "fp16" in variant else torch.bfloat16
        seed = 100 * list(PROBE["variants"]).index(variant) + 10 * number
        # On the CPU: what a GPU draws from a seed depends on its number of multiprocessors.
        self.inputs = [self._values(seed + rank, number) for rank in range(WORLD)]
        residual = torch.zeros(self.shape) if form == "first_norm" else self._values(seed + WORLD, number)
        self.given_residual = residual.to(self.dtype)
        draw = torch.Generator().manual_seed(seed + WORLD + 1)
        self.given_gamma = torch.randn(hidden, generator=draw).to(self.dtype)
        self.given = self.inputs[team.rank]
        self.buffers = []
        self.input = self._placed(self.given, team.device)
        self.residual = self._placed(self.given_residual, team.device)
        self.gamma = self.given_gamma.to(team.device, copy=True)
        nothing = torch.full(self.shape, math.nan, dtype=self.dtype)
        self.norm_out = self.input if form == "in_place" else self._placed(nothing, team.device)
        own = {"in_place": self.residual, "first_norm": self.input}
        self.residual_out = own[form] if form in own else self._placed(nothing, team.device)

    def _values(self, seed, number):
        """Normal random numbers, each row in its own scale, with -0.0 in one column and in one whole vector."""
        import torch

        values = torch.randn(self.shape, generator=torch.Generator().manual_seed(seed))
        scales = torch.tensor(ROW_SCALES)[(torch.arange(self.shape[0]) + number) % len(ROW_SCALES)]
        values *= scales[:, None]
        values[:, 3] = -0.0
        values[-1, 8:16] = -0.0
        return values.to(self.dtype)

    def _placed(self, values, device):
        """A copy on the device with NaN before and behind it."""
        import torch

        buffer = torch.full((GUARD + values.numel() + GUARD,), math.nan, dtype=self.dtype, device=device)
        self.buffers.append(buffer)
        return buffer[GUARD:-GUARD].view(self.shape).copy_(values)

    def launch(self, team):
        import flashinfer.comm
        import torch

        patterns, layouts = flashinfer.comm.AllReduceFusionPattern, flashinfer.comm.QuantizationSFLayout
        returned = flashinfer.comm.trtllm_allreduce_fusion(
            allreduce_in=self.input,
            world_size=WORLD,
            world_rank=team.rank,
            token_num=self.shape[0],
            hidden_dim=self.shape[1],
            workspace_ptrs=team.workspace,
            launch_with_pdl=True,
            trigger_completion_at_end=True,
            fp32_acc=True,
            pattern_code=patterns.kARResidualRMSNorm,
            use_oneshot=self.oneshot,
            allreduce_out=None,
            residual_in=self.residual,
            residual_out=self.residual_out,
            norm_out=self.norm_out,
            quant_out=None,
            scale_out=None,
            rms_gamma=self.gamma,
            rms_eps=EPS,
            scale_factor=None,
            layout_code=layouts.SWIZZLED_128x4,
        )
        if returned is not None:
            raise _WrongNumbersError(f"{self.label}: returned {type(returned).__name__} instead of None")
        if team.device.type == "cuda":
            self.event = torch.cuda.Event()
            self.event.record()

    def wait(self):
        if self.event is not None:
            self.event.synchronize()

    def check(self, rounding, smallest, sums, norms):
        """Raises _WrongNumbersError; sums and norms note how close the errors come to what is allowed."""
        device = self.gamma.device
        reduced = self.inputs[0].to(device).float() + self.inputs[1].to(device).float()
        total = reduced + self.given_residual.to(device).float()
        allowed = (rounding * (1 + rounding) + 2**-16) * reduced.abs() + (rounding + 2**-16) * total.abs() + smallest
        sums.check(self.residual_out, total, allowed, f"{self.label}: residual_out")
        returned = self.residual_out.float()
        factor = (returned.square().mean(-1, keepdim=True) + EPS).rsqrt() * self.given_gamma.to(device).float()
        expected = returned * factor
        allowed = (3 * rounding + 2**-16) * expected.abs() + smallest * (1 + factor.abs())
        norms.check(self.norm_out, expected, allowed, f"{self.label}: norm_out")
        self._check_the_rest()

    def _check_the_rest(self):
        """What is not an output is unchanged, and nothing is written around the tensors."""
        outputs = (self.norm_out, self.residual_out)
        kept = {"the input": (self.input, self.given), "the residual": (self.residual, self.given_residual)}
        kept["gamma"] = (self.gamma, self.given_gamma)
        for name, (tensor, given) in kept.items():
            if not any(tensor is output for output in outputs) and not _same_bits(tensor, given):
                raise _WrongNumbersError(f"{self.label}: {name} was changed")
        for buffer in self.buffers:
            if not (buffer[:GUARD].isnan().all() and buffer[-GUARD:].isnan().all()):
                raise _WrongNumbersError(f"{self.label}: something was written outside of the tensors")


def _same_bits(tensor, given):
    import torch

    return torch.equal(tensor.cpu().view(torch.int16), given.view(torch.int16))


class _Errors:
    """How close the errors so far have come to what is allowed."""

    def __init__(self):
        self.max_share, self.elements = 0.0, 0

    def check(self, got, expected, allowed, where):
        """Raises _WrongNumbersError when an element is off or NaN."""
        share = (got.float() - expected).abs() / allowed.clamp_min(1e-30)
        bad = ~(share <= 1)  # true for NaN as well
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise _WrongNumbersError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {allowed[at].item():.3g}"
            )
        self.max_share = max(self.max_share, round(share.max().item(), 4))
        self.elements += bad.numel()


def _rounding(dtype):
    """Half a unit in the last place, relative, and what is allowed beyond it near zero."""
    import torch

    return (2**-8, 0.0) if dtype is torch.bfloat16 else (2**-11, 2**-24)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        _serve(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
