"""Does trtllm_allreduce_fusion add up the ranks and nothing else (kAllReduce), through CUDA IPC memory, as NCCL does?

Two processes (four in variants of tp4), one GPU each, make the calls of vLLM's FlashInferAllReduce (launched with PDL,
completion triggered at the end for more than 16 tokens, outputs of their own): allreduce_out holds the sum of the
inputs, the same on all ranks, and the inputs stay. nccl is what serves where FlashInfer does not: torch's all_reduce
over NCCL, without NVLink SHARP (NCCL_NVLS_ENABLE=0), which has to come to the same numbers.

limits: sizes one token below, at and above those up to which the installed vLLM calls FlashInfer's fusion, and one-shot
(FI_ALLREDUCE_FUSION_MAX_SIZE_MB, which holds here, too; its source is read, not imported). graph: captured in one CUDA
graph, replayed three times with other inputs. load500: 500 calls while another stream is busy with products of
matrices. order: the ranks of the process group are on the GPUs in another order.

No CUDA multicast object is made: the workspace is FlashInfer's create_shared_buffer (cudaMalloc and CUDA IPC handles,
exchanged through gloo and a file) in the layout of trtllm_create_ipc_workspace_for_all_reduce_fusion up to 0.6.9. vLLM
may use another workspace (symmetric memory, or multicast) with the same kernels; multicast (mnnvl) has kernels of its
own, which are not run. A kernel that does not end is killed with its rank, after what it waits for and the ranks'
stacks are noted, and the next variant gets new ranks.

Shapes: 9 calls one after the other, without waiting, on one workspace: 1 to 520 tokens of 4096, 2880 or 1536 elements,
sizes up and down, inputs new each time, so that what an earlier call left in one of the three Lamport buffers comes
out. Some inputs are -0.0, which the one-shot kernels use as "not yet there". two-shot: more tokens than ranks, also
numbers that the ranks share unevenly.

Tolerance: u is half a unit in the last place of the dtype (bf16 has 8 significant bits: 2^-8; fp16 has 11: 2^-11). The
kernels add in float32 (fp32_acc) and round once: u * |sum|. NCCL may round each of the ranks - 1 sums: u * (ranks - 1)
times the sum of the absolute inputs. Plus 2^-16, relative, and 2^-21 of the sum of the absolute inputs, for the float32
arithmetic of kernel and reference; for fp16 plus 2^-24, one smallest subnormal. Each rank computes the reference in
float32 from the seeds of all inputs, so that no communication can spoil it.

Upstream: include/flashinfer/comm/trtllm_allreduce_fusion.cuh, flashinfer/comm/trtllm_ar.py, flashinfer/comm/cuda_ipc.py
"""

import ast
import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import functools
import gc
import importlib
import importlib.util
import io
import itertools
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import unittest
import warnings
from pathlib import Path

PROBE = {
    "id": "comm.allreduce",
    "feature": "comm.allreduce",
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
    "variants": {
        "oneshot_bf16": {},
        "twoshot_bf16": {},
        "oneshot_fp16": {},
        "twoshot_fp16": {},
        "graph_oneshot_bf16": {},
        "graph_twoshot_bf16": {},
        "oneshot_bf16_limits": {},
        "twoshot_bf16_limits": {},
        "oneshot_bf16_order": {},
        "twoshot_bf16_order": {},
        "nccl_bf16": {},
        "nccl_fp16": {},
        "oneshot_bf16_load500": {},
        "twoshot_bf16_load500": {},
        "oneshot_bf16_tp4": {"gpus": 4},
        "twoshot_bf16_tp4": {"gpus": 4},
        "oneshot_fp16_tp4": {"gpus": 4},
        "twoshot_fp16_tp4": {"gpus": 4},
        "graph_oneshot_bf16_tp4": {"gpus": 4},
        "graph_twoshot_bf16_tp4": {"gpus": 4},
        "oneshot_bf16_tp4_limits": {"gpus": 4},
        "twoshot_bf16_tp4_limits": {"gpus": 4},
        "oneshot_bf16_tp4_order": {"gpus": 4},
        "twoshot_bf16_tp4_order": {"gpus": 4},
        "nccl_bf16_tp4": {"gpus": 4},
        "oneshot_bf16_tp4_load500": {"gpus": 4},
        "twoshot_bf16_tp4_load500": {"gpus": 4},
    },
    "gpus": 2,
    "most_gpus": 4,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

DETAILS = {"pattern": "kAllReduce"}
CALLS = (  # tokens, hidden size, form
    (7, 4096, "separate"),
    (1, 4096, "separate"),
    (520, 1536, "separate"),
    (128, 2880, "separate"),
    (1, 1536, "separate"),
    (520, 4096, "separate"),
    (7, 2880, "separate"),
    (129, 4096, "separate"),
    (1, 4096, "separate"),
)
GRAPH_CALLS = ((7, 4096, "separate"), (1, 4096, "separate"), (130, 1536, "separate"), (33, 4096, "separate"))
LOADED_CALLS = ((1, 4096, "separate"), (33, 4096, "separate"), (8, 4096, "separate"), (130, 1536, "separate"))
LOADED = 500
FORMS = ("separate",)
LIMITS_HIDDEN = 4096
INCOMPLETE_WARP = 2880  # the hidden size of gpt-oss
FEW_TOKENS = 16  # up to which vLLM lets the next kernel begin early: PDL_ADVANCE_LAUNCH_TOKENS

# From here to "What this probe calls" the text is the same in comm_allreduce.py and comm_allreduce_fusion.py.

ORDERS = {2: (1, 0), 4: (2, 0, 3, 1)}  # ranks -> the GPU of each, for variants with another order
ROW_SCALES = (1e-3, 1.0, 30.0)
GUARD = 128  # bytes before and after a tensor, and what they and outputs hold: NaN in every dtype that is called
POISON = 0xFF
TURN_S = 30.0  # for ranks of other probes to be done with these GPUs
SPARE_S = 15.0  # of the probe's time limit, for what is said of ranks that do not come back
START_S = 40.0  # for one step of the ranks' start
STALL_S = 6.0  # for one step of a call, which takes a tenth of a second at most
LATE_S = 3.0  # after which a rank says what its kernel waits for
REHEARSAL_S = 5.0  # for a forked process that only ends
GRACE_S = 10.0  # for the other ranks, once one has failed
KILLED_S = 5.0  # for killed processes to go away
DEBUGGER_S = 15.0  # for cuda-gdb
QUICK_DEBUGGER = ("-iex", "set auto-solib-add off")  # symbols of torch's libraries take most of its time
PAGE = 1 << 21  # FlashInfer rounds its shared buffers up to 2 MiB
BARRIER_FLAGS = 256  # per rank
TURNS = 3  # replays of a CUDA graph
AT_ONCE = 1 << 22  # elements that are drawn at once
LOAD_SIZE = 4096  # of the square matrices whose products keep the other stream busy
CALLING = ": call "  # stands in the steps of which each has STALL_S
WAITING = ": waiting for the "  # and this in those that end with a kernel
STUCK = ("hangs", "waits")  # of a rank that does not answer
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
# vLLM's tables, {compute capability: {ranks: MiB}}: up to which size of the input it calls FlashInfer, and one-shot.
TABLES = ("FI_ALLREDUCE_FUSION_MAX_SIZE_MB", "_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB")
TABLE_FILES = ("compilation/passes/fusion/allreduce_rms_fusion.py", "compilation/collective_fusion.py")
TABLES_OF_0_33 = (
    {"90": {"2": 64, "4": 2}, "100": {"2": 64, "4": 32}, "103": {"2": 64, "4": 64}, "107": {"2": 64, "4": 64}},
    {"90": {"2": 32, "4": 2}, "100": {"2": 32, "4": 4}, "103": {"2": 32, "4": 4}, "107": {"2": 32, "4": 4}},
)


def build(variant):  # noqa: ARG001 - one module serves every variant
    _fork_early()
    import flashinfer.comm.trtllm_ar

    flashinfer.comm.trtllm_ar.get_trtllm_comm_module()


def run(variant):
    _ranks().have(_Asked(variant).world)
    until = time.monotonic() + PROBE["timeout_s"] - SPARE_S
    with _turn():
        return _checked(variant, until)


def _checked(variant, until):
    asked = _Asked(variant)
    ranks = _ranks()
    results = ranks.ask(asked, until)
    verdict = _verdict(results)
    is_doubtful = ranks.started == "forked" and until - time.monotonic() > START_S and not ranks.have_called(asked)
    if is_doubtful and verdict is not None and not isinstance(verdict, AssertionError):
        # What forking alone might have done is no verdict: fresh ranks say whether it is the kernel. Once ranks have
        # met, shared memory and made a call, it is: one that hangs now and then would else be taken for one that works.
        _end_ranks()
        _FRESH.append(f"forked ranks failed: {verdict}"[:200])
        ranks = _ranks()
        results = ranks.ask(asked, until)
        verdict = _verdict(results)
    if verdict is not None:  # flags, buffers or the CUDA context may be in any state: the next variant gets new ranks
        if any(result.get("error") in STUCK for result in results):
            ranks.add_cuda_stack(verdict, results, until + SPARE_S / 2 - time.monotonic())
        _end_ranks()
        raise verdict
    shares = {key: max(result[key] for result in results) for key in results[0] if key.endswith("share")}
    told = {key: results[0][key] for key in ("calls", "shapes", "limits", "saturated") if key in results[0]}
    return {
        "world_size": asked.world,
        "ranks": ranks.started,
        "workspace": "NCCL's own" if asked.kernel == "nccl" else "CUDA IPC",
        "multicast": "not run",
        "kernel": asked.kernel,
        **DETAILS,
        **told,
        "gpus": ", ".join(f"rank {rank}: {result['gpu']}" for rank, result in enumerate(results)),
        "elements": sum(result["elements"] for result in results),
        **shares,
    }


@contextlib.contextmanager
def _turn():
    """Wait while ranks of another probe make calls on these GPUs, which all probes of one check take in turns.

    Kernels that wait for each other on several GPUs may wait long beside others that do: each GPU gives its time to a
    process of its own choice. An all-to-all of FlashInfer 0.5.3 did not end within 56 s beside two all-reduces.
    What could not be looked at for that reason alone is no failure.
    """
    folder = os.environ.get("FI_DOCTOR_SCRATCH")
    if folder is None:
        yield
        return
    end = time.monotonic() + TURN_S
    with (Path(folder) / "turn.lock").open("ab") as file:
        while not _is_locked(file):
            if time.monotonic() > end:
                raise unittest.SkipTest(f"not run: ranks of another probe used these GPUs for {TURN_S:g} s")
            time.sleep(0.01)
        yield


def _is_locked(file):
    """Whether this process alone holds the file now: ranks that are forked meanwhile do not hold it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Asked:
    """What the name of a variant says: its words in any order."""

    def __init__(self, variant):
        words = variant.split("_")
        self.variant = variant
        self.world = 4 if "tp4" in words else 2
        self.order = ORDERS[self.world] if "order" in words else tuple(range(self.world))
        self.kernel = next(word for word in words if word in {"oneshot", "twoshot", "nccl"})
        self.dtype = "float16" if "fp16" in words else "bfloat16"
        self.quant = next((word for word in words if word in {"fp8", "fp4"}), "")
        self.is_graph = "graph" in words
        self.has_load = "load500" in words
        self.at_limits = "limits" in words
        self.seed = 1000 * list(PROBE["variants"]).index(variant)
        # FlashInfer asks two-shot calls for more tokens than ranks.
        self.fewest = self.world + 1 if self.kernel == "twoshot" else 1

    def calls(self):
        """Tokens, hidden size and form of each; none where vLLM's limits say how many, which hang on the GPU."""
        if self.at_limits:
            return []
        calls = CALLS
        if self.has_load:
            calls = tuple(itertools.islice(itertools.cycle(LOADED_CALLS), LOADED))
        elif self.is_graph:
            calls = GRAPH_CALLS
        hidden = INCOMPLETE_WARP if self.variant.endswith("_h2880") else None
        return [(max(tokens, self.fewest), hidden or usual, form) for tokens, usual, form in calls]

    def command(self, number):
        words = {"variant": self.variant, "calls": self.calls(), "number": number, "late_s": LATE_S}
        return {**words, "limits": _limits()} if self.at_limits else words


def _limits():
    """The two tables of vLLM, and where they stand; vLLM is read and not imported."""
    spec = importlib.util.find_spec("vllm")
    root = Path(spec.origin).parent if spec and spec.origin else None
    for path in (root / name for name in TABLE_FILES if root is not None):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            found = _tables(path.read_text(encoding="utf-8"))
            if set(TABLES) <= set(found):
                return *(found[name] for name in TABLES), f"vllm/{path.relative_to(root)}"
    return *TABLES_OF_0_33, "those of vLLM 0.33.0, since no vLLM with such tables is installed"


def _tables(text):
    """The literals that have these names, with texts for keys, as JSON has them."""
    found = {}
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in (one.id for one in targets if isinstance(one, ast.Name) and one.id in TABLES):
            found[name] = json.loads(json.dumps(ast.literal_eval(node.value)))
    return found


# The parent: starts the ranks, waits for them and says what became of them.


class _Ranks:
    """A process for each GPU; they carry out one variant after the other: of this file, or forked from this process."""

    def __init__(self):
        # fi-doctor removes its folder also when this process is killed.
        self.folder = tempfile.TemporaryDirectory(prefix="fi-doctor-ranks-", dir=os.environ.get("FI_DOCTOR_SCRATCH"))
        self.path = Path(self.folder.name)
        self.asked = 0
        self.started = ""
        self.processes = []

    def have(self, count):
        """Start those that are missing; each is known by its GPU."""
        if len(self.processes) >= count:
            return
        with _forking() as obstacle:
            self.started = f"fresh: {obstacle}" if obstacle else self.started or "forked"
            for gpu in range(len(self.processes), count):
                with self._log(gpu).open("wb") as log:
                    self.processes.append((self._start if obstacle else self._fork)(gpu, log))

    def _start(self, gpu, log):
        words = [sys.executable, str(Path(__file__).absolute()), "rank", str(gpu), str(self.path)]
        environment = {**os.environ, **RANK_ENVIRONMENT}
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def _fork(self, gpu, log):
        """The same without a new interpreter, which would import torch and flashinfer again."""

        def work():
            for process in self.processes:  # else the earlier ranks would not see the end of their commands
                process.stdin.close()
            gc.freeze()  # a collection would copy every page that it looks at, and finalise what is the parent's
            _serve(gpu, self.path)

        return _Forked(work, log.fileno())

    def ask(self, asked, until):
        """What each rank says of the variant, in their order, or what is to be said of one that does not answer.

        As long as they go on from step to step they are waited for, until this time: a slow machine is no hang.
        """
        self.have(asked.world)
        self.asked += 1
        command = json.dumps(asked.command(self.asked)) + "\n"
        for gpu in asked.order:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which is seen below
                self.processes[gpu].stdin.write(command.encode())
                self.processes[gpu].stdin.flush()
        results = dict.fromkeys(asked.order)
        begun = since = time.monotonic()
        steps = None
        while None in results.values() and time.monotonic() < until:
            time.sleep(0.01)
            results = {gpu: result or self._result(gpu) for gpu, result in results.items()}
            now = [self._step(gpu) for gpu in asked.order]
            if now != steps:
                steps, since = now, time.monotonic()
            elif time.monotonic() - since > (STALL_S if all(CALLING in step for step in now) else START_S):
                break
            if any(result and "error" in result for result in results.values()):
                until = min(until, time.monotonic() + GRACE_S)
        self._name_silent(results, time.monotonic() - begun)
        return list(results.values())

    def have_called(self, asked):
        """Whether one of them has begun a call, for which all have to be ready."""
        return any(CALLING in self._step(gpu) for gpu in asked.order)

    def _name_silent(self, results, seconds):
        """Ranks whose kernel waits are told from the one that they wait for, if there is one."""
        silent = [gpu for gpu, result in results.items() if result is None]
        states = {gpu: _process_state(self.processes[gpu].pid) for gpu in silent}
        self._print_stacks(silent)
        waiting = [gpu for gpu in silent if WAITING in self._step(gpu) and not states[gpu]]
        for gpu in silent:
            is_held_up = gpu in waiting and len(waiting) < len(silent)
            error, how = ("waits", "waits for another rank in") if is_held_up else ("hangs", "did not come back from")
            notes = ", ".join(filter(None, (states[gpu], self._said(f"late.{gpu}"))))
            message = f"{how} '{self._step(gpu)}' within {seconds:.0f} s{f' ({notes})' if notes else ''}"
            results[gpu] = {"error": error, "message": message, "more": self._last_lines(gpu), "gpu": gpu}

    def _result(self, gpu):
        ended = self.processes[gpu].poll()
        path = self.path / f"result.{self.asked}.{gpu}"
        if path.exists():
            return json.loads(path.read_text(encoding="utf-8"))
        if ended is None:
            return None
        how = f"was killed by {_signal_name(-ended)}" if ended < 0 else f"ended with status {ended}"
        return {"error": "died", "message": f"{how} at '{self._step(gpu)}'", "more": self._last_lines(gpu)}

    def _print_stacks(self, silent):
        for gpu in silent:
            self.processes[gpu].send_signal(signal.SIGUSR1)
        if silent:
            time.sleep(0.5)

    def add_cuda_stack(self, verdict, results, seconds):
        """Add to the exception what cuda-gdb, where there is one, says of the kernels of a rank that hangs."""
        home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
        debugger = shutil.which("cuda-gdb") or shutil.which("cuda-gdb", path=f"{home}/bin")
        if debugger is None or seconds < 1:
            return
        stuck = {result["error"]: result["gpu"] for result in results if result.get("error") in STUCK}
        pid = self.processes[stuck.get("waits", stuck.get("hangs"))].pid  # its kernel has begun
        words = [debugger, "-nx", "-batch", *QUICK_DEBUGGER, "-p", str(pid), "-ex", "info cuda kernels", "-ex", "bt 5"]
        said = ""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            limit_s = min(seconds, DEBUGGER_S)
            done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s)
            said = done.stdout.decode(errors="replace")
        if said.strip():
            verdict.args = (f"{verdict}\ncuda-gdb says:\n{said[-1500:]}",)

    def _step(self, gpu):
        return self._said(f"step.{gpu}") or "starting"

    def _said(self, name):
        path = self.path / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def _last_lines(self, gpu):
        text = self._log(gpu).read_text(encoding="utf-8", errors="replace")
        return "\n".join(BESIDE_THE_POINT.sub("", text).splitlines()[-25:])[-3000:]

    def _log(self, gpu):
        return self.path / f"log.{gpu}"

    def close(self):
        """End them all; a kernel that waits for another rank ends with its process."""
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
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").count(",") + 1
    enough = [world for world in {_Asked(variant).world for variant in PROBE["variants"]} if world <= named]
    if not enough:
        return
    with _forking() as obstacle:
        pass
    if not obstacle:
        _ranks().have(max(enough))


@functools.cache
def _ranks():
    ranks = _Ranks()
    atexit.register(ranks.close)
    return ranks


def _end_ranks():
    ranks = _ranks()
    _ranks.cache_clear()
    atexit.unregister(ranks.close)
    ranks.close()


class _OutOfMemoryError(RuntimeError):
    """A GPU has too little memory left, which says nothing of the kernels."""


def _verdict(results):
    """The exception that says what went wrong; None when nothing did.

    A rank that died or raised explains one that hangs or has wrong numbers, hence the order.
    """
    order = ("died", "raised", "wrong", *STUCK)
    failed = sorted((order.index(r["error"]), rank, r) for rank, r in enumerate(results) if "error" in r)
    if not failed:
        return None
    sentences = "; ".join(f"rank {rank}{': ' if kind in {1, 2} else ' '}{r['message']}" for kind, rank, r in failed)
    if order[failed[0][0]] == "wrong":
        return AssertionError(sentences)
    more = "".join(f"\nLast lines of rank {rank}:\n{r['more']}" for _, rank, r in failed if r.get("more"))
    return (_OutOfMemoryError if "out of memory" in sentences else RuntimeError)(sentences + more)


def _process_state(pid):
    """What keeps a process from going on, if its state says so."""
    states = {
        "T": "its process is stopped by a signal",
        "t": "a debugger holds its process",
        "D": "its process waits in the kernel: for the driver or for a disk",
    }
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return states.get(stat.rpartition(")")[2][1], "")
    return ""


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The ranks.


class _WrongNumbersError(Exception):
    """The numbers are wrong, or what must not change was changed."""


def _serve(gpu, folder):
    """Carry out the commands on stdin until it ends; the result of each is a file."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: a rank does not outlive its parent
    os.environ.update(RANK_ENVIRONMENT)
    team = _Team(gpu, Path(folder))
    threading.Thread(target=team.watch, daemon=True).start()
    for line in sys.stdin:
        command = json.loads(line)
        result = _carried_out(team, command)
        path = Path(folder) / f"result.{command['number']}.{gpu}"
        draft = path.with_name(f"draft.{gpu}")
        draft.write_text(json.dumps(result), encoding="utf-8")
        draft.replace(path)
    os._exit(0)  # without the teardown of gloo and CUDA, which the other ranks may not live to see


def _carried_out(team, command):
    try:
        asked = _Asked(command["variant"])
        team.late_s = command["late_s"]
        team.step("starting")
        (team.folder / f"late.{team.gpu}").unlink(missing_ok=True)
        team.take_gpu()
        calls, limits = command["calls"], None
        if asked.at_limits:
            calls, limits = _at_limits(asked, command["limits"], team.sm)
        team.join(asked, max(tokens * hidden for tokens, hidden, _ in calls), command["number"])
        measured = _measured(team, asked, [tuple(call) for call in calls])
    except _WrongNumbersError as exc:
        return {"error": "wrong", "message": str(exc)}
    except Exception as exc:  # noqa: BLE001 - the parent is to know of every kind
        kind = type(exc)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return {"error": "raised", "message": f"{name}: {exc}", "more": traceback.format_exc()[-3000:]}
    finally:
        team.call = None
    return {**measured, "limits": limits} if limits else measured


def _at_limits(asked, limits, sm):
    """The calls around vLLM's limits for one-shot and for any call, and what these are, in words."""
    most, most_oneshot, source = limits
    row = 2 * LIMITS_HIDDEN  # bytes
    sizes = [table.get(str(sm), table["90"])[str(asked.world)] for table in (most, most_oneshot)]
    tokens = sorted({int(size * 2**20) // row + more for size in sizes for more in (-1, 0, 1)})
    mixed = [*tokens[1::2], *tokens[::2]]  # up and down
    calls = [(max(n, asked.fewest), LIMITS_HIDDEN, FORMS[at % len(FORMS)]) for at, n in enumerate(mixed)]
    unknown = "" if str(sm) in most else f", which has no SM{sm}: those of SM90"
    return calls, f"{sizes[0]:g} MiB, one-shot {sizes[1]:g} MiB ({source}{unknown})"


class _Team:
    """One process's place among the ranks: its device, and the workspace that they share."""

    def __init__(self, gpu, folder):
        self.gpu, self.folder = gpu, folder
        self.device = self.place = self.call = None
        self.since, self.elements, self.late_s = time.monotonic(), 0, LATE_S

    def step(self, words):
        self.since = time.monotonic()
        (self.folder / f"step.{self.gpu}").write_text(words, encoding="utf-8")

    def watch(self):
        """In a thread: once a kernel is late, say what it waits for."""
        told = None
        while True:
            time.sleep(0.1)
            call = self.call
            if call is None or call is told or time.monotonic() - self.since < self.late_s:
                continue
            told = call
            try:
                words = self._awaited(call)
            except Exception as exc:  # noqa: BLE001 - it only adds to what is said of a hang
                words = f"what it waits for cannot be read: {exc}"
            if self.call is call:
                (self.folder / f"late.{self.gpu}").write_text(words, encoding="utf-8")

    def take_gpu(self):
        """Once: import and take the GPU."""
        if self.device is not None:
            return
        self.step("importing torch and flashinfer.comm")
        import flashinfer.comm
        import torch
        import torch.distributed

        self.step("taking its GPU")
        name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
        device = torch.device(name, self.gpu) if name == "cuda" else torch.device(name)
        self.sm = 90
        if device.type == "cuda":
            if torch.cuda.device_count() <= self.gpu:
                raise RuntimeError(f"GPU {self.gpu} is needed, {torch.cuda.device_count()} are visible")
            torch.cuda.set_device(device)
            major, minor = torch.cuda.get_device_capability(device)
            self.sm = 10 * major + minor
        self.runtime = flashinfer.comm.CudaRTLibrary()
        self.device = device

    def join(self, asked, elements, number):
        """Meet the other ranks, and make a workspace for tensors of so many elements, unless there is one."""
        import torch.distributed

        place = (asked.order.index(self.gpu), asked.world, asked.order)
        if place != self.place:
            self.step("meeting the other ranks (gloo)")
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            store = torch.distributed.FileStore(str(self.folder / f"store.{number}"), asked.world)
            torch.distributed.init_process_group("gloo", store=store, rank=place[0], world_size=asked.world)
            self.place, self.elements, self.nccl = place, 0, None
        self.rank, self.world, _ = place
        if asked.kernel == "nccl":
            self._meet_in_nccl()
        elif elements > self.elements:
            self.step("making the workspace (CUDA IPC)")
            # What was shared before stays until the process ends: 0.5.3 frees it while others have it mapped.
            self.workspace, self.elements = self._workspace(elements), elements

    def _meet_in_nccl(self):
        import torch.distributed

        if self.nccl is None:
            self.step("meeting the other ranks (NCCL)")
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            self.nccl = torch.distributed.new_group(backend=backend)

    def _workspace(self, elements):
        """int64 pointers: each rank's buffer, flags and Lamport buffers, and this rank's own counters.

        A buffer takes two tensors (two-shot: input and sum). A Lamport buffer, of which there are three in one piece,
        takes one tensor of each rank.
        """
        import flashinfer.comm
        import torch

        lamport = self.world * elements * 2
        sizes = [_rounded_up(size) for size in (2 * elements * 2, self.world * BARRIER_FLAGS * 4, 3 * lamport)]
        self.shared = [flashinfer.comm.create_shared_buffer(size, group=None) for size in sizes]
        self.runtime.cudaMemset(ctypes.c_void_p(self.shared[1][self.rank]), 0, sizes[1])
        flashinfer.comm.trtllm_lamport_initialize(self.shared[2][self.rank], sizes[2] // 2, torch.float16)
        # blocks that have read the flags, two-shot flag, which Lamport buffer, size of one in bytes, what to clear
        self.counters = torch.tensor([0, 0, 0, lamport, 0], dtype=torch.int32, device=self.device)
        pointers = [pointer for ranks in self.shared for pointer in ranks] + [self.counters.data_ptr()]
        table = torch.tensor(pointers, dtype=torch.int64, device=self.device)
        self.wait()
        torch.distributed.barrier()
        return table

    def wait(self):
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _awaited(self, call):
        """What of the other ranks is not there for the kernel that runs: read on a stream of its own, beside it."""
        import torch

        if call.asked.kernel == "nccl" or call.asked.is_graph:
            return ""  # neither says which of its kernels it is
        with contextlib.ExitStack() as stack:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
                stack.enter_context(torch.cuda.stream(torch.cuda.Stream(self.device)))
            _, flag, which, lamport, _ = self.counters.cpu().tolist()
            if call.asked.kernel == "twoshot":
                flags = self._read(self.shared[1][self.rank], BARRIER_FLAGS * self.world, torch.int32)
                seen = [sorted(set(column.tolist())) for column in flags.view(-1, self.world).t()]
                told = ", ".join(f"rank {rank}: {values}" for rank, values in enumerate(seen))
                return f"barrier flags by the rank that sets them: {told}; before the call: {flag}"
            count = math.prod(call.shape)
            parts = self._read(self.shared[2][self.rank] + which % 3 * lamport, self.world * count, torch.int16)
            missing = (parts.view(self.world, -1) == -(2**15)).sum(1).tolist()
            told = ", ".join(f"{number} of {count} from rank {rank}" for rank, number in enumerate(missing) if number)
            return f"elements that have not arrived: {told or 'none'}"

    def _read(self, pointer, count, dtype):
        """A copy on the CPU of this rank's memory, which FlashInfer has allocated."""
        import torch

        size = count * dtype.itemsize
        if self.device.type != "cuda":
            return torch.frombuffer((ctypes.c_byte * size).from_address(pointer), dtype=dtype).clone()
        memory = {"data": (pointer, False), "shape": (size,), "typestr": "|u1", "version": 3}
        memory = types.SimpleNamespace(__cuda_array_interface__=memory)
        return torch.as_tensor(memory, device=self.device).cpu().view(dtype)


def _rounded_up(size):
    return -(-size // PAGE) * PAGE


def _measured(team, asked, calls):
    """Make the calls, then look at what each has written."""
    import torch

    made = []
    for number, (tokens, hidden, form) in enumerate(calls, 1):
        label = f"{asked.variant}: call {number} of {len(calls)}, {tokens}x{hidden}, {form}"
        team.step(f"{label}: preparing")
        made.append(_Call(team, asked, number, (tokens, hidden), form, label))
    errors = {}
    if asked.is_graph:
        _replay(team, made, errors)
    else:
        _launch_all(team, made, load=_load(team) if asked.has_load else None)
        _check_all(team, made, errors)
    name = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else "CPU"
    shapes = dict.fromkeys(f"{tokens}x{hidden}/{form}" for tokens, hidden, form in calls)
    saturated = sum(one.saturated for one in errors.values())
    made.clear()
    if team.device.type == "cuda":
        torch.cuda.empty_cache()  # other probes use this GPU, too
    return {
        "gpu": f"{name} ({team.gpu})",
        "calls": len(calls) * (TURNS if asked.is_graph else 1),
        "shapes": " ".join(shapes),
        "elements": sum(one.elements for one in errors.values()),
        **{f"{name}_max_share": one.max_share for name, one in errors.items() if one.max_share},
        **({"saturated": saturated} if saturated else {}),
    }


def _launch_all(team, made, load=None):
    """One after the other without waiting, then wait for each. load: what is launched beside each on another stream."""
    team.wait()
    for call in made:
        team.step(f"{call.label}: launching")
        team.call = call
        if load is not None:
            load()
        call.launch(team)
        call.record()
    for call in made:
        team.step(f"{call.label}: waiting for the kernel")
        team.call = call
        call.wait()
    team.call = None


def _load(team):
    """A function that launches a product of matrices on a stream of its own, which takes longer than a call."""
    import torch

    if team.device.type != "cuda":
        return lambda: None
    stream = torch.cuda.Stream(team.device)
    ones = torch.ones((LOAD_SIZE, LOAD_SIZE), dtype=torch.bfloat16, device=team.device)
    product = torch.empty_like(ones)

    def load():
        with torch.cuda.stream(stream):
            torch.mm(ones, ones, out=product)

    load()
    team.wait()  # cuBLAS takes its workspace now
    return load


def _replay(team, made, errors):
    """Capture all calls in one CUDA graph and replay it, each time with other numbers in the same memory."""
    import torch

    _launch_all(team, made)  # what is done once only (loading, asking for the number of registers) is not captured
    team.wait()
    label = made[0].label
    team.step(f"{label}: capturing")
    if team.device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for call in made:
                call.launch(team)
        replay = graph.replay
    else:
        replay = importlib.import_module("flashinfer.comm").stand_in_for_a_graph(
            lambda: [call.launch(team) for call in made]
        )
    wrong = []
    for turn in range(1, TURNS + 1):
        for call in made:
            call.label = f"{call.label.partition('; ')[0]}; replay {turn} of {TURNS}"
            call.fill(turn)
        team.wait()
        team.step(f"{made[0].label}: launching")
        team.call = made[0]
        replay()
        made[-1].record()
        team.step(f"{made[-1].label}: waiting for the graph")
        made[-1].wait()
        team.call = None
        try:
            _check_all(team, made, errors)
        except _WrongNumbersError as exc:  # the other ranks replay all the same, and would wait for this one
            wrong.append(exc)
    if wrong:
        raise wrong[0]


def _check_all(team, made, errors):
    for call in made:
        team.step(f"{call.label}: comparing")
        call.check(errors)
        call.check_guards()


class _Tensors:
    """The tensors of one call, each with guards around it, and the numbers that they are filled with."""

    def __init__(self, team, asked, number, shape, form, label):  # noqa: PLR0913, PLR0917 - what a call is
        import torch

        self.rank, self.world, self.device = team.rank, team.world, team.device
        self.asked, self.shape, self.form, self.label = asked, shape, form, label
        self.dtype = getattr(torch, asked.dtype)
        self.number, self.turn, self.event = number, 0, None
        self.buffers = []

    def place(self, shape, dtype):
        """Memory that holds NaN, with guards before and behind it."""
        import torch

        size = math.prod(shape) * dtype.itemsize
        buffer = torch.full((GUARD + size + GUARD,), POISON, dtype=torch.uint8, device=self.device)
        self.buffers.append(buffer)
        return buffer[GUARD:-GUARD].view(dtype).view(shape)

    def values(self, which):
        """The numbers of one tensor (the ranks' inputs first), nearly normal, each row in its own scale.

        -0.0 stands in one column and in one whole vector. A hash of the place gives them, in whole numbers: the same
        on every device, where what torch draws from a seed depends on the number of multiprocessors.
        """
        import torch

        values = _drawn(self.seed(which), self.shape, self.device)
        rows = torch.arange(self.shape[0], device=self.device)
        values *= torch.tensor(ROW_SCALES, device=self.device)[(rows + self.number + self.turn) % len(ROW_SCALES)][
            :, None
        ]
        values[:, 3] = -0.0
        values[-1, 8:16] = -0.0
        return values.to(self.dtype)

    def seed(self, which):
        return ((self.asked.seed + self.number) * (TURNS + 1) + self.turn) * 16 + which

    def summed(self):
        """The sum of the ranks' inputs in float32, and that of their absolute values."""
        inputs = [self.values(rank).float() for rank in range(self.world)]
        return sum(inputs[1:], inputs[0]), sum((one.abs() for one in inputs[1:]), inputs[0].abs())

    def record(self):
        import torch

        if self.device.type == "cuda":
            self.event = torch.cuda.Event()
            self.event.record()

    def wait(self):
        if self.event is not None:
            self.event.synchronize()

    def check_kept(self, name, tensor, given):
        import torch

        if not torch.equal(tensor.view(torch.int16), given.view(torch.int16)):
            raise _WrongNumbersError(f"{self.label}: {name} was changed")

    def check_guards(self):
        for buffer in self.buffers:
            if not ((buffer[:GUARD] == POISON).all() and (buffer[-GUARD:] == POISON).all()):
                raise _WrongNumbersError(f"{self.label}: something was written outside of the tensors")


def _drawn(seed, shape, device):
    """Sums of four 16-bit numbers of a hash (splitmix64), shifted and scaled to mean 0 and variance 1; float32."""
    import torch

    count = math.prod(shape)
    drawn = torch.empty(count, device=device)
    for begin in range(0, count, AT_ONCE):  # int64 takes four times the memory of a tensor
        end = min(begin + AT_ONCE, count)
        mixed = torch.arange(begin, end, device=device) * -7046029254386353131 + seed * 1000003
        for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
            mixed ^= (mixed >> shift) & ((1 << (64 - shift)) - 1)
            mixed *= factor
        total = sum((mixed >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
        drawn[begin:end] = (total - 131070).float() * 2.6429e-5
    return drawn.view(shape)


class _Errors:
    """How close the errors so far have come to what is allowed."""

    def __init__(self):
        self.max_share, self.elements, self.saturated = 0.0, 0, 0

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

    def check_between(self, got, lowest, highest, where):
        """The same for numbers of a coarse grid: between what the lowest and the highest value allowed round to."""
        bad = ~((got >= lowest) & (got <= highest))
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise _WrongNumbersError(
                f"{where}: {int(bad.sum())} of {bad.numel()} elements are wrong, the first at {at}: "
                f"got {got[at].item():.6g}, expected {lowest[at].item():.6g} to {highest[at].item():.6g}"
            )
        self.elements += bad.numel()


def _rounding(dtype):
    """Half a unit in the last place, relative, and what is allowed beyond it near zero."""
    import torch

    return (2**-8, 0.0) if dtype is torch.bfloat16 else (2**-11, 2**-24)


# What this probe calls.


class _Call(_Tensors):
    """One all-reduce, and what must be in its tensors afterwards."""

    def __init__(self, *words):
        super().__init__(*words)
        self.input, self.output = self.place(self.shape, self.dtype), self.place(self.shape, self.dtype)
        self.fill(0)

    def fill(self, turn):
        """New numbers in the input, and NaN in the output."""
        import torch

        self.turn = turn
        self.input.copy_(self.values(self.rank))
        self.output.view(torch.uint8).fill_(POISON)

    def launch(self, team):
        import flashinfer.comm
        import torch.distributed

        if self.asked.kernel == "nccl":
            torch.distributed.all_reduce(self.output.copy_(self.input), group=team.nccl)
            return
        returned = flashinfer.comm.trtllm_allreduce_fusion(
            allreduce_in=self.input,
            world_size=self.world,
            world_rank=self.rank,
            token_num=self.shape[0],
            hidden_dim=self.shape[1],
            workspace_ptrs=team.workspace,
            launch_with_pdl=True,
            trigger_completion_at_end=self.shape[0] > FEW_TOKENS,
            fp32_acc=True,
            pattern_code=flashinfer.comm.AllReduceFusionPattern.kAllReduce,
            use_oneshot=self.asked.kernel == "oneshot",
            allreduce_out=self.output,
            residual_in=None,
            residual_out=None,
            norm_out=None,
            quant_out=None,
            scale_out=None,
            rms_gamma=None,
            rms_eps=None,
            scale_factor=None,
            layout_code=None,
        )
        if returned is not None:
            raise _WrongNumbersError(f"{self.label}: returned {type(returned).__name__} instead of None")

    def check(self, errors):
        """Raises _WrongNumbersError; errors notes how close the numbers come to what is allowed."""
        rounding, smallest = _rounding(self.dtype)
        reduced, size = self.summed()
        allowed = (rounding + 2**-16) * reduced.abs() + 2**-21 * size + smallest
        if self.asked.kernel == "nccl":
            allowed += rounding * (self.world - 1) * size
        sums = errors.setdefault("sum", _Errors())
        sums.check(self.output, reduced, allowed, f"{self.label}: allreduce_out")
        self.check_kept("the input", self.input, self.values(self.rank))


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        _serve(int(sys.argv[2]), sys.argv[3])
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
