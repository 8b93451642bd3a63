"""Do tokens reach the ranks of their experts through FlashInfer's all-to-all, and do the sums of the experts come back?

Two processes, one GPU each, make the calls of vLLM's all-to-all backends, as it makes them. two_sided: MnnvlMoe, which
exchanges who sends what and then moves each payload through FIFOs (vLLM: flashinfer_all2allv, since 0.20
flashinfer_nvlink_two_sided). one_sided: MoeAlltoAll, which writes all payloads of a token into the receiver's memory
and reads the results there (flashinfer_nvlink_one_sided). moe_ep: the same kernels by NVLinkOneSidedAlltoAll, with a
given output, as vLLM 0.33 calls them; it wants all NVLinks up. graph_...: the whole round captured in a CUDA graph and
replayed three times with new tokens and experts in the same memory.

The memory is what FlashInfer takes itself (MnnvlMemory): cuMemCreate, shared by file descriptors, or by fabric handles
on aarch64 and where 0.7 finds a fabric. No CUDA multicast object is made. Up to 0.6 a rank fetches the descriptors out
of the other process with pidfd_getfd, which many containers forbid; vLLM's ranks would fail there too.

Each received row is looked at: from which token it is (its weights tell, they are never the same twice), that it is
there once and belongs here, that hidden states, scales, weights and expert ids are those sent, bit by bit, and that
rows without a token are marked. Then every rank gives clamp(round(4 x), -16, 16) * (its number + 1) * (how many of its
experts the token has), and the sum over ranks that comes back is compared. The inputs must stay as they are.

Shapes: 9 rounds one after the other, without waiting: 1 to 4600 tokens, not the same number on both ranks, with 1536 to
7168 elements and 1, 2, 4 or 8 of 16 experts. Experts at random, the same one several times, all on one rank (the other
gets nothing), all at home, all abroad; 4600 tokens of 7168 elements are more than the FIFOs hold. bf16, and FP8 (e4m3)
with one float32 scale for each 128 elements, hidden sizes then multiples of 512.

Tolerance: none. What is moved must not change, and the sums are whole numbers up to 256, which bf16 holds exactly in
any order of adding.

Upstream: flashinfer/comm/trtllm_alltoall.py, csrc/trtllm_alltoall.cu, csrc/trtllm_alltoall_prepare.cu,
flashinfer/comm/trtllm_moe_alltoall.py, flashinfer/comm/mnnvl.py, flashinfer/moe_ep/
"""

import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import functools
import importlib
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

PROBE = {
    "id": "comm.all2all",
    "feature": "comm.all2all",
    "module": "comm",
    "requires": {
        "flashinfer": ">=0.5",
        "symbols": ["flashinfer.comm.trtllm_alltoall.get_comm_alltoall_module"],
        "peer_access": True,
    },
    "variants": {
        "two_sided_bf16": {},
        "two_sided_fp8": {},
        "graph_two_sided_bf16": {},
        "one_sided_bf16": {"symbols": ["flashinfer.comm.MoeAlltoAll"]},
        "one_sided_fp8": {"symbols": ["flashinfer.comm.MoeAlltoAll"]},
        "graph_one_sided_bf16": {"symbols": ["flashinfer.comm.MoeAlltoAll"]},
        "moe_ep_bf16": {"symbols": ["flashinfer.moe_ep.NVLinkOneSidedAlltoAll", "flashinfer.fused_moe.QuantFormat"]},
        "moe_ep_fp8": {"symbols": ["flashinfer.moe_ep.NVLinkOneSidedAlltoAll", "flashinfer.fused_moe.QuantFormat"]},
        "graph_moe_ep_bf16": {
            "symbols": ["flashinfer.moe_ep.NVLinkOneSidedAlltoAll", "flashinfer.fused_moe.QuantFormat"]
        },
    },
    "gpus": 2,
    "timeout_s": 120,
    "build_timeout_s": 900,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

WORLD = 2
EXPERTS = 16
PER_RANK = EXPERTS // WORLD
TURN_S = 30.0  # for ranks of other probes to be done with these GPUs
SPARE_S = 15.0  # of the probe's time limit, for what is said of ranks that do not come back
START_S = 20.0  # for both ranks to come up; one that takes longer does so within its first variant
READY = "ready"
GRACE_S = 10.0  # for the other rank, once one has failed
KILLED_S = 5.0  # for killed processes to go away
ROUNDS = (  # tokens of rank 0 and of rank 1, hidden size, experts of a token, which experts
    (37, 64, 4096, 8, "random"),
    (1, 1, 7168, 8, "random"),
    (5, 300, 1536, 2, "second"),
    (4600, 4500, 7168, 4, "random"),
    (64, 37, 2880, 1, "abroad"),
    (7, 3, 4096, 4, "home"),
    (33, 129, 1536, 8, "repeated"),
    (128, 1, 4096, 2, "first"),
    (1, 128, 4096, 8, "random"),
)
REPLAYED = (37, 37, 4096, 8, "random")  # padded to one size on all ranks, as vLLM does for its graphs
REPLAYS = 3
PAYLOADS = ("hidden states", "scales")
GROUP = 128  # elements of one FP8 scale
FP8_STEP = 512  # elements for which the scales fill 16 bytes, the least that is moved
LARGEST = 16.0  # of what an expert gives, before the factors
ONE = 2.0**-24  # the smallest difference of two weights
NEXT_ROUND = 1 << 16  # weights of one round
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


def build(variant):
    if "two_sided" in variant:
        import flashinfer.comm.trtllm_alltoall

        flashinfer.comm.trtllm_alltoall.get_comm_alltoall_module()
    else:
        load = importlib.import_module("flashinfer.comm.trtllm_moe_alltoall").get_moe_alltoall_module
        load()


def run(variant):
    until = time.monotonic() + PROBE["timeout_s"] - SPARE_S
    _ranks().get_ready()
    with _turn():
        return _checked(variant, until)


def _checked(variant, until):
    rounds = _rounds(variant)
    results = _ranks().ask(variant, rounds, until)
    verdict = _verdict(results)
    if verdict is not None:  # flags, FIFOs or the CUDA context may be in any state: the next variant gets new ranks
        _end_ranks()
        raise verdict
    return {
        "world_size": WORLD,
        "memory": results[0]["memory"],
        "rounds": len(rounds) * (REPLAYS if variant.startswith("graph_") else 1),
        "shapes": " ".join(f"{one}+{other}x{hidden}/{top_k}/{which}" for one, other, hidden, top_k, which in rounds),
        "experts": EXPERTS,
        "gpus": ", ".join(result["gpu"] for result in results),
        "rows": sum(result["rows"] for result in results),
        "sums": sum(result["sums"] for result in results),
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


def _rounds(variant):
    rounds = [REPLAYED] if variant.startswith("graph_") else ROUNDS
    if not variant.endswith("fp8"):
        return rounds
    return [(one, other, hidden // FP8_STEP * FP8_STEP, top_k, which) for one, other, hidden, top_k, which in rounds]


# The parent: starts the ranks, waits for them and says what became of them.


class _Ranks:
    """Two processes of this file that carry out one variant after the other."""

    def __init__(self):
        # fi-doctor removes its folder also when this process is killed.
        self.folder = tempfile.TemporaryDirectory(prefix="fi-doctor-ranks-", dir=os.environ.get("FI_DOCTOR_SCRATCH"))
        self.path = Path(self.folder.name)
        self.asked = 0
        self.processes = [self._start(rank) for rank in range(WORLD)]

    def _start(self, rank):
        words = [sys.executable, str(Path(__file__).absolute()), "rank", str(rank), str(self.path)]
        with self._log(rank).open("wb") as log:
            streams = {"stdin": subprocess.PIPE, "stdout": log, "stderr": subprocess.STDOUT}
            return subprocess.Popen(words, env={**os.environ, **RANK_ENVIRONMENT}, **streams)

    def get_ready(self):
        """Wait before the first command until both have imported all and met; `ask` is told where one cannot."""
        end = time.monotonic() + START_S
        while not self.asked and time.monotonic() < end and any(self._step(rank) != READY for rank in range(WORLD)):
            if any(process.poll() is not None for process in self.processes):
                return
            time.sleep(0.01)

    def ask(self, variant, rounds, until):
        """What each rank says of the variant until then, or what is to be said of a rank that does not answer."""
        self.asked += 1
        command = json.dumps({"variant": variant, "rounds": rounds, "number": self.asked}) + "\n"
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):  # it is dead, which is seen below
                process.stdin.write(command.encode())
                process.stdin.flush()
        results = [None] * WORLD
        begun = time.monotonic()
        while None in results and time.monotonic() < until:
            time.sleep(0.01)
            for rank in range(WORLD):
                results[rank] = results[rank] or self._result(rank)
            if any(result and "error" in result for result in results):
                until = min(until, time.monotonic() + GRACE_S)
        silent = [rank for rank in range(WORLD) if results[rank] is None]
        self._print_stacks(silent)
        for rank in silent:
            message = f"did not come back from '{self._step(rank)}' within {until - begun:.0f} s"
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
        return "\n".join(text.splitlines()[-25:])[-3000:]

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
    """What FlashInfer has moved or added up is wrong, or it changed what it must not change."""


def _serve(rank, folder):
    """Carry out the commands on stdin until it ends; the result of each is a file."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG: a rank does not outlive its parent
    if select.select([sys.stdin], [], [], 0)[0] and not sys.stdin.buffer.peek(1):
        os._exit(0)  # the parent was gone before it could be followed
    team = _Team(rank, folder, (folder / f"step.{rank}").write_text)
    with contextlib.suppress(Exception):  # it is tried again, and told, with the first command
        team.join()
    team.step(READY)
    for line in sys.stdin:
        command = json.loads(line)
        result = _carried_out(team, command["variant"], command["rounds"])
        draft = folder / f"draft.{rank}"
        draft.write_text(json.dumps(result), encoding="utf-8")
        draft.replace(folder / f"result.{command['number']}.{rank}")
    os._exit(0)  # without the teardown of gloo and CUDA, which the other rank may not live to see


def _carried_out(team, variant, rounds):
    try:
        team.join()
        return _measured(team, variant, rounds)
    except _WrongNumbersError as exc:
        return {"error": "wrong", "message": str(exc)}
    except Exception as exc:  # noqa: BLE001 - the parent is to know of every kind
        kind = type(exc)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        return {"error": "raised", "message": f"{name}: {exc}", "more": traceback.format_exc()[-3000:]}


class _Team:
    """One rank's place among the ranks: its device, and how it talks to the others before there is shared memory."""

    def __init__(self, rank, folder, step):
        self.rank, self.folder, self.step = rank, folder, step
        self.device = None

    def join(self):
        """Once: import, take the GPU and meet the other rank."""
        if self.device is not None:
            return
        self.step("importing torch and flashinfer.comm")
        import flashinfer.comm
        import torch
        import torch.distributed

        self.step("taking its GPU")
        name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
        device = torch.device(name, self.rank) if name == "cuda" else torch.device(name)
        if device.type == "cuda":
            if torch.cuda.device_count() < WORLD:
                raise RuntimeError(f"{WORLD} GPUs are needed, {torch.cuda.device_count()} are visible")
            torch.cuda.set_device(device)
            torch.zeros(1, device=device)  # MnnvlMemory asks for the current context
        self.step("meeting the other rank (gloo)")
        store = torch.distributed.FileStore(str(self.folder / "store"), WORLD)
        torch.distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=WORLD)
        self.mapping = flashinfer.comm.Mapping(WORLD, self.rank, WORLD, tp_size=WORLD, moe_ep_size=WORLD)
        self.device = device

    def meet(self):
        import torch.distributed

        torch.distributed.barrier()

    def wait(self):
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _communicator():
    """How FlashInfer exchanges handles; what vLLM hands over (distributed/device_communicators/mnnvl_compat.py)."""
    import flashinfer.comm.mnnvl
    import torch.distributed

    class Communicator(flashinfer.comm.mnnvl.CommBackend):
        def Get_rank(self):  # noqa: N802 - the name of FlashInfer
            return torch.distributed.get_rank()

        def Get_size(self):  # noqa: N802 - the name of FlashInfer
            return torch.distributed.get_world_size()

        def allgather(self, data):
            gathered = [None] * WORLD
            torch.distributed.all_gather_object(gathered, data)
            return gathered

        def bcast(self, data, root):
            held = [data]
            torch.distributed.broadcast_object_list(held, src=root)
            return held[0]

        def barrier(self):
            torch.distributed.barrier()

        def Split(self, color, key):  # noqa: ARG002, N802 - the name of FlashInfer
            return self

    return Communicator()


class _Received:
    """What a dispatch has brought: rows of each payload, their weights and expert ids; counts, where they are told."""

    def __init__(self, payloads, weights, ids, most, counts=None):
        """most: rows that are kept free for each rank; with counts the rows of all ranks follow one another."""
        self.payloads, self.weights, self.ids, self.most, self.counts = payloads, weights, ids, most, counts

    def rows(self, source, sent):
        """Which rows should be from this rank; sent: how many tokens each rank has for this one."""
        begin = source * self.most if self.counts is None else sum(sent[:source])
        return slice(begin, begin + sent[source])

    def empty(self, sent):
        """The rows in which nothing should be."""
        import torch

        there = torch.ones(len(self.ids), dtype=torch.bool, device=self.ids.device)
        for source in range(WORLD):
            there[self.rows(source, sent)] = False
        return there


class _TwoSided:
    """MnnvlMoe, as vLLM calls it."""

    no_expert = EXPERTS

    def __init__(self, team, variant, rounds):  # noqa: ARG002 - the FIFOs are the same for all
        import flashinfer.comm.mnnvl
        import flashinfer.comm.trtllm_alltoall

        moe = flashinfer.comm.trtllm_alltoall.MnnvlMoe
        config = flashinfer.comm.mnnvl.MnnvlConfig(
            comm_backend=_communicator(), fabric_page_size=1 << 29, allocation_granularity=0
        )
        self.rank, self.moe = team.rank, moe
        self.workspace = moe.get_moe_workspaces(team.mapping, config)
        self.prepare_workspace = moe.get_moe_prepare_workspace(team.mapping, config)

    def dispatch(self, one):
        prepare = self.moe.mnnvl_moe_alltoallv_prepare_without_allgather
        place = (self.rank, WORLD)
        sizes = (EXPERTS, EXPERTS, one.top_k)
        info, ids, weights, _ = prepare(one.ids, one.weights, None, self.prepare_workspace, one.most, *place, *sizes)
        move = self.moe.mnnvl_moe_alltoallv
        payloads = [move(payload, info, self.workspace, *place) for payload in one.payloads]
        self.info = info
        return _Received(payloads, weights, ids, one.most, info.recv_rank_count_cumsum)

    def combine(self, one, given):
        place = {"ep_rank": self.rank, "ep_size": WORLD, "top_k": one.top_k, "token_count": len(one.ids)}
        return self.moe.mnnvl_moe_alltoallv_combine(given, self.info, self.workspace, **place)


class _OneSided:
    """MoeAlltoAll, as vLLM up to 0.28 calls it."""

    no_expert = -1

    def __init__(self, team, variant, rounds):  # noqa: ARG002 - the same memory serves all formats
        most, hidden = _largest(rounds)
        config = importlib.import_module("flashinfer.comm.mnnvl").MnnvlConfig(comm_backend=_communicator())
        self.by_top_k = {}
        for top_k in sorted({top_k for *_, top_k, _ in rounds}):
            self.by_top_k[top_k] = self._made(team, most, top_k, hidden, config)
            team.meet()

    def _made(self, team, most, top_k, hidden, config):
        import flashinfer.comm

        if not hasattr(flashinfer.comm, "MoeAlltoAll"):
            raise RuntimeError("the installed FlashInfer has no flashinfer.comm.MoeAlltoAll")
        size = importlib.import_module("flashinfer.comm.trtllm_moe_alltoall").moe_a2a_get_workspace_size_per_rank
        routing = 8 * top_k  # an id and a weight each; bf16 is the longest payload
        bytes_each = {"total_dispatch_payload_size_per_token": 2 * hidden + routing}
        bytes_each["combine_payload_size_per_token"] = 2 * hidden
        return flashinfer.comm.MoeAlltoAll(
            mapping=team.mapping,
            max_num_tokens=most,
            top_k=top_k,
            num_experts=EXPERTS,
            workspace_size_per_rank=size(ep_size=WORLD, max_num_tokens=most, **bytes_each),
            mnnvl_config=config,
        )

    def dispatch(self, one):
        exchange = self.by_top_k[one.top_k]
        *payloads, ids, weights = exchange.dispatch(
            token_selected_experts=one.ids,
            input_payloads=[*one.payloads, one.ids, one.weights],
            runtime_max_tokens_per_rank=one.most,
            invalid_token_expert_id=self.no_expert,
            expert_id_payload_index=len(one.payloads),
        )
        return _Received([rows.flatten(0, 1) for rows in payloads], weights.flatten(0, 1), ids.flatten(0, 1), one.most)

    def combine(self, one, given):
        given = given.view(WORLD, one.most, given.shape[-1])
        return self.by_top_k[one.top_k].combine(payload=given, runtime_max_tokens_per_rank=one.most)


class _MoeEp:
    """NVLinkOneSidedAlltoAll, as vLLM from 0.33 on calls it."""

    no_expert = -1

    def __init__(self, team, variant, rounds):
        moe_ep = importlib.import_module("flashinfer.moe_ep")
        formats = importlib.import_module("flashinfer.fused_moe").QuantFormat
        import torch

        most, hidden = _largest(rounds)
        index = team.device.index if team.device.type == "cuda" else 0
        bootstrap = moe_ep.BootstrapConfig(world_size=WORLD, rank=team.rank, device=index)
        config = moe_ep.NVLinkOneSidedConfig(comm_backend=_communicator())
        self.communications = {}
        for top_k in sorted({top_k for *_, top_k, _ in rounds}):
            params = moe_ep.MoEEpCommParams(
                num_experts=EXPERTS,
                top_k=top_k,
                max_tokens_per_rank=most,
                hidden_size=hidden,
                dtype=torch.bfloat16,
                dispatch_format=formats.DeepSeekFp8 if variant.endswith("fp8") else formats.BF16,
            )
            self.communications[top_k] = moe_ep.create_communication(bootstrap, params, backend=config)
            team.meet()

    def dispatch(self, one):
        states, *scales = one.payloads
        words = {"hidden_states_scale": scales[0] if scales else None, "max_tokens_per_rank": one.most}
        got = self.communications[one.top_k].dispatch(states, one.ids, one.weights, **words)
        payloads = [got.hidden_states, *([got.hidden_states_scale] if scales else [])]
        return _Received(payloads, got.topk_weights, got.topk_ids, one.most)

    def combine(self, one, given):
        import torch

        output = torch.full((len(one.ids), given.shape[-1]), math.nan, dtype=given.dtype, device=given.device)
        self.communications[one.top_k].combine(given, output=output)
        return output


def _largest(rounds):
    """The most tokens of a rank, and the largest hidden size."""
    return max(max(one, other) for one, other, *_ in rounds), max(hidden for _, _, hidden, _, _ in rounds)


def _measured(team, variant, rounds):
    """Make all rounds, then look at what each has brought."""
    import torch

    kinds = {"two_sided": _TwoSided, "one_sided": _OneSided, "moe_ep": _MoeEp}
    team.step(f"{variant}: making the shared memory")
    exchange = next(kind for name, kind in kinds.items() if name in variant)(team, variant, rounds)
    team.meet()
    if variant.startswith("graph_"):
        made = _replayed(team, variant, exchange, rounds[0])
    else:
        made = [_Round(team, variant, number, *words) for number, words in enumerate(rounds, 1)]
        team.wait()
        for one in made:
            one.make(team, exchange)
        for one in made:
            team.step(f"{one.label}: waiting for the kernels")
            one.wait()
    for one in made:
        team.step(f"{one.label}: comparing")
        one.check(team.rank, exchange.no_expert)
    return {
        "gpu": torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else "CPU",
        "memory": _memory(team),
        "rows": sum(one.rows for one in made),
        "sums": sum(one.sums.numel() for one in made),
    }


def _memory(team):
    """How FlashInfer's memory is shared."""
    import flashinfer.comm.mnnvl

    index = team.device.index if team.device.type == "cuda" else 0
    kinds = flashinfer.comm.mnnvl.MnnvlMemory.get_allocation_prop(index).requestedHandleTypes
    return f"cuMemCreate, {getattr(kinds, 'name', kinds)}"


def _replayed(team, variant, exchange, words):
    """One round captured in a CUDA graph, and what each replay has brought."""
    held = _Round(team, variant, 1, *words)
    team.wait()
    team.step(f"{held.label}: capturing")
    replay = _capture(team, lambda: held.make(team, exchange))
    made = []
    for turn in range(REPLAYS):
        given = _Round(team, variant, 2 + turn, *words)
        for there, new in zip(held.inputs, given.inputs, strict=True):
            there.copy_(new)
        team.step(f"{given.label}: replaying")
        replay()
        team.wait()
        given.take(held)
        made.append(given)
    return made


def _capture(team, call):
    """A function that replays the call from a CUDA graph; run before on a side stream, as torch wants it."""
    import torch

    if team.device.type == "cpu":
        return importlib.import_module("flashinfer.comm").stand_in_for_a_graph(call)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


class _Round:
    """Tokens that go out to their experts and come back: what each rank sends, and what it should get."""

    def __init__(self, team, variant, number, *words):
        one, other, hidden, self.top_k, which = words
        self.label = f"{variant}: round {number}, {one}+{other} tokens of {hidden}, {self.top_k} experts, {which}"
        team.step(f"{self.label}: preparing")
        self.tokens, self.most, self.event, self.rows = (one, other), max(one, other), None, 0
        seed = 100 * list(PROBE["variants"]).index(variant) + 2 * number
        draws = [self._draw(rank, seed + rank, number, hidden, which) for rank in range(WORLD)]
        self.given = [[tensor.to(team.device) for tensor in tensors] for tensors in draws]
        self.inputs = [tensor.clone() for tensor in self.given[team.rank]]

    def _draw(self, rank, seed, number, hidden, which):
        """Payloads, expert ids and weights of one rank; both ranks draw the same for it."""
        import torch

        # On the CPU: what a GPU draws from a seed depends on its number of multiprocessors.
        draw, count = torch.Generator().manual_seed(seed), self.tokens[rank]
        payloads = [torch.randn((count, hidden), generator=draw).to(torch.bfloat16)]
        if "fp8" in self.label.partition(":")[0]:
            scales = torch.rand((count, hidden // GROUP), generator=draw)
            payloads = [payloads[0].to(torch.float8_e4m3fn), scales]
        ids = _experts(which, rank, count, self.top_k, draw)
        # A weight is never the same twice, so that it tells the round, the token and its place.
        weights = (torch.arange(count * self.top_k).view(ids.shape) + 1 + number * NEXT_ROUND) * ONE
        return [*payloads, ids, weights.float()]

    @property
    def payloads(self):
        return self.inputs[:-2]

    @property
    def ids(self):
        return self.inputs[-2]

    @property
    def weights(self):
        return self.inputs[-1]

    def make(self, team, exchange):
        """One round, without waiting. What was received is kept: the next round may overwrite where it lies."""
        import torch

        team.step(f"{self.label}: dispatching")
        got = exchange.dispatch(self)
        kept = [tensor.clone() for tensor in got.payloads]
        counts = None if got.counts is None else got.counts.clone()
        self.received = _Received(kept, got.weights.clone(), got.ids.clone(), got.most, counts)
        given = _given(got.payloads[0], got.ids, team.rank)
        team.step(f"{self.label}: combining")
        self.sums = exchange.combine(self, given)
        if team.device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
            self.event = torch.cuda.Event()
            self.event.record()

    def take(self, other):
        """What the memory of another round holds now."""
        got = other.received
        counts = None if got.counts is None else got.counts.clone()
        kept = [tensor.clone() for tensor in got.payloads]
        self.received = _Received(kept, got.weights.clone(), got.ids.clone(), got.most, counts)
        self.sums = other.sums.clone()
        self.inputs = [tensor.clone() for tensor in other.inputs]

    def wait(self):
        if self.event is not None:
            self.event.synchronize()

    def check(self, rank, no_expert):
        """Raises _WrongNumbersError when a row or a sum is not as it should be, or an input was changed."""
        sent = [int(_is_for(given[-2], rank).any(-1).sum()) for given in self.given]
        self._check_counts(sent)
        for source in range(WORLD):
            self._check_rows(source, rank, sent, no_expert)
        empty = self.received.ids[self.received.empty(sent)]
        self._expect(bool((empty == no_expert).all()), f"rows without a token do not say expert {no_expert}")
        expected = sum(
            _given(self.given[rank][0], self.given[rank][-2], owner).float()
            * _is_for(self.given[rank][-2], owner).any(-1, keepdim=True)
            for owner in range(WORLD)
        )
        self._compare_sums(expected)
        names = (*PAYLOADS[: len(self.payloads)], "expert ids", "weights")
        for name, now, given in zip(names, self.inputs, self.given[rank], strict=True):
            self._expect(_same(now, given), f"the {name} that were given have been changed")

    def _check_counts(self, sent):
        if self.received.counts is not None:
            said = self.received.counts.tolist()
            expected = [sum(sent[: source + 1]) for source in range(WORLD)]
            self._expect(said == expected, f"it says that up to each rank {said} tokens have come, of {expected}")

    def _check_rows(self, source, rank, sent, no_expert):
        """Those from one rank: each of its tokens for this rank once, in any order."""
        import torch

        rows, given, where = self.received.rows(source, sent), self.given[source], f"from rank {source}"
        payloads, ids, weights = given[:-2], given[-2], given[-1]
        wanted = _is_for(ids, rank).any(-1).nonzero().flatten()
        got = self.received.weights[rows]
        self._expect(got.shape == (len(wanted), self.top_k), f"{where}: weights of shape {tuple(got.shape)}")
        first = round(weights[0, 0].item() / ONE) if len(weights) else 0
        tokens = ((got[:, 0].double() / ONE).round() - first) / self.top_k
        tokens = torch.where(tokens.isfinite() & (tokens >= 0) & (tokens < len(ids)), tokens, 0).long()
        strange = (weights[tokens].view(torch.int32) != got.view(torch.int32)).any(-1)
        said = f"{int(strange.sum())} of {len(got)} rows have weights that no token has"
        self._expect(not strange.any(), f"{where}: {said}")
        missing = torch.isin(wanted, tokens, invert=True)
        lost = f"{int(missing.sum())} of {len(wanted)} tokens are missing"
        self._expect(not missing.any(), f"{where}: {lost}, others came twice or belong elsewhere")
        for name, there, sent_rows in zip(PAYLOADS, self.received.payloads, payloads, strict=False):
            wrong = _differs(there[rows], sent_rows[tokens])
            said = f"{int(wrong.any(-1).sum())} of {len(wrong)} rows have other {name}"
            self._expect(not wrong.any(), f"{where}: {said}, {int(wrong.sum())} of {wrong.numel()} elements")
        expected = ids[tokens]
        if no_expert >= 0:  # who sends leaves out the experts of other ranks
            expected = torch.where(_is_for(expected, rank), expected, no_expert)
        wrong = (self.received.ids[rows] != expected).any(-1)
        self._expect(not wrong.any(), f"{where}: {int(wrong.sum())} of {len(wrong)} rows have other expert ids")
        self.rows += len(wanted)

    def _compare_sums(self, expected):
        self._expect(self.sums.shape == expected.shape, f"sums of shape {tuple(self.sums.shape)} came back")
        wrong = self.sums.float() != expected  # true for NaN as well
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            raise _WrongNumbersError(
                f"{self.label}: {int(wrong.sum())} of {wrong.numel()} sums are wrong, the first at {at}: "
                f"got {self.sums[at].item():.6g}, expected {expected[at].item():.6g}"
            )

    def _expect(self, holds, said):
        if not holds:
            raise _WrongNumbersError(f"{self.label}: {said}")


def _experts(which, rank, count, top_k, draw):
    """The experts of each token, int32 [count, top_k]; those of rank r are r * PER_RANK and the next ones."""
    import torch

    if which == "repeated":
        return torch.randint(EXPERTS, (count, top_k), generator=draw).int()
    if which == "random":
        return torch.rand((count, EXPERTS), generator=draw).topk(top_k).indices.int()
    owner = {"first": 0, "second": 1, "home": rank, "abroad": 1 - rank}[which]
    chosen = torch.rand((count, PER_RANK), generator=draw).topk(top_k).indices
    return (chosen + owner * PER_RANK).int()


def _is_for(ids, rank):
    return (ids >= rank * PER_RANK) & (ids < (rank + 1) * PER_RANK)


def _given(states, ids, rank):
    """What the experts of a rank give for each row."""
    import torch

    values = (states.float() * 4).round().clamp(-LARGEST, LARGEST)
    return (values * (rank + 1) * _is_for(ids, rank).sum(-1, keepdim=True)).to(torch.bfloat16)


def _differs(one, other):
    """Which elements are not the same bits."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    kind = kinds[one.element_size()]
    return one.contiguous().view(kind) != other.contiguous().view(kind)


def _same(one, other):
    return not _differs(one, other).any()


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        _serve(int(sys.argv[2]), Path(sys.argv[3]))
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
