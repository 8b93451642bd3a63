"""Fleets as they are found: copies of a recorded machine that differ by nature, some with a drift of a real kind.

Each drift changes all that changes with it on a real node (an nvcc of another release brings its gates and headers),
and names the one fact that a person would name.
"""

from __future__ import annotations

import copy
import json
import pathlib
import random
from typing import NamedTuple

from fi_doctor.fleet import following
from fi_doctor.fleet.reading import NodeReport

MACHINES = pathlib.Path(__file__).parents[1] / "machines"
BASES = (
    "2xh200-comm-flashinfer0.7.2.post1/warm.json",
    "2xh200-comm-flashinfer0.5.3/cold.json",
    "h200-proved-nvcc-flashinfer0.5.3/cold.json",
    "h200-started-llama-flashinfer0.7.2.post1/warm.json",
)
_CACHED = "sampling"


def base(name=BASES[0], gpus=8):
    """A recorded machine with so many of its first GPU, a cached module and the companions of FlashInfer."""
    report = json.loads((MACHINES / name).read_bytes())
    facts = report["facts"]
    first = facts["gpus"]["gpus"][0]
    first.setdefault("nvlinks", [True] * 18)
    cards = [{**first, "nvml_index": n, "cuda_index": n, "uuid": f"{{gpu {n}}}"} for n in range(gpus)]
    facts["gpus"].update(gpus=cards, cuda_order=[one["uuid"] for one in cards], links=_links(cards))
    version = facts["packages"]["flashinfer-python"]["version"]
    for companion in ("flashinfer-cubin", "flashinfer-jit-cache"):
        found = {**facts["packages"]["flashinfer-python"], "name": companion, "version": version, "commit": _missing()}
        facts["packages"][companion] = found
        facts["site"]["installed"][companion] = version
    folder = f"{facts['flashinfer']['cache_dir']}/cached_ops/{_CACHED}"
    needed = ["libcudart.so.13", "libc.so.6"]
    binary = {"path": f"{folder}/{_CACHED}.so", "owner": "flashinfer cache", "units": {"sm_90a": 3}, "ptx": {}}
    facts["binaries"]["files"].append({**binary, "needed": needed, "unresolved": []})
    facts["flashinfer"]["cached_modules"] = sorted({*facts["flashinfer"]["cached_modules"], _CACHED})
    # Written by an older fi-doctor: verdicts are those of today's knowledge on each node's facts.
    report["doctor"]["knowledge"] = "2026.10.01"
    return report


def light(report):
    """The same without the tables of files, which no drift changes, and without what was run: quick to copy."""
    report["outcomes"], report["facts"]["calls"] = [], _missing()
    report["facts"]["flashinfer"].update(symbols={}, admissions={}, public={}, majors={})
    report["facts"]["vllm"].update(flags={}, keys={}, unread_variables=[], other_variables={})
    return report


def vary(report, chance, name):
    """The same on another node: what differs there by nature, and nothing else. It changes the report."""
    facts, system = report["facts"], report["facts"]["system"]
    for number, gpu in enumerate(facts["gpus"]["gpus"]):
        uuid = _uuid(chance)
        _rename(facts["gpus"], gpu["uuid"], uuid)
        gpu["pci_bus"] = f"00000000:{chance.randrange(256):02x}:00.0"
        gpu["memory_free_mib"] = gpu["memory_total_mib"] - chance.randrange(400, 4000)
        gpu["compute_processes"] = 0
        gpu["cuda_index"] = number
    seen = ",".join(one for one in facts["gpus"]["cuda_order"])
    facts["environment"]["NVIDIA_VISIBLE_DEVICES"] = system["image"]["NVIDIA_VISIBLE_DEVICES"] = seen
    facts["environment"]["VLLM_HOST_IP"] = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(256)}"
    system["hostname"] = name
    system["memory_total_mib"] = 2063712 + chance.randrange(-900, 900)
    system["memory_available_mib"] = chance.randrange(1_000_000, 2_000_000)
    system["memory_left_mib"] = chance.randrange(200_000, 250_000)
    for folder in facts["machine"]["folders"]:
        folder["free_mib"] = chance.randrange(100_000, 240_000)
        folder["free_inodes"] = chance.randrange(1_000_000, 16_000_000)
    report["created"] = (
        f"2025-11-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:00+00:00"
    )
    report["seconds"] = round(chance.uniform(1, 90), 1)
    facts["installed_on"] = {one: f"2026-11-{chance.randrange(1, 29):02}" for one in facts["installed_on"]}
    for outcome in report["outcomes"]:
        outcome["seconds"] = {stage: round(chance.uniform(0, 9), 2) for stage in outcome.get("seconds", {})}
    return report


class Drift(NamedTuple):
    """A way in which a node drifts. change: of facts, in place; it gives the name of the fact that tells it."""

    name: str
    change: object

    def __call__(self, facts):
        return self.change(facts)


def driver(facts):
    new, old = "570.86.10", facts["gpus"]["driver"]["version"]
    facts["gpus"]["driver"].update(version=new, cuda="12.8")
    facts["libraries"]["cuda"]["version"] = new
    files = facts["machine"]["driver_files"]
    files["libcuda"] = str(files["libcuda"]).replace(old, new)
    return "gpus.driver.version"


def cached_module(facts):
    found = next(one for one in facts["binaries"]["files"] if one["path"].endswith(f"/{_CACHED}.so"))
    found["needed"] = ["libcudart.so.12", "libc.so.6"]
    return f"binaries.files[{found['path']}].needed"


def _toolkit(facts, version, home):
    jit = facts["toolkit"]["jit"]
    for tool in ("nvcc", "compiler"):
        jit[tool] = {**jit[tool], "version": version, "build": f"{version}.61", "path": f"{home}/bin/nvcc"}
        jit[tool]["resolved"] = f"{home}/bin/nvcc"
    jit.update(cuda_home=home, cccl="2.7.0", runtime=version)
    facts["toolkit"].update(gate_version=version)
    facts["host_limits"].update(newest_gcc=14, newest_clang=18)


def cuda_home(facts):
    facts["environment"]["CUDA_HOME"] = "/opt/cuda-12.8"
    _toolkit(facts, "12.8", "/opt/cuda-12.8")
    return "environment.CUDA_HOME"


def nvcc(facts):
    _toolkit(facts, "12.4", facts["toolkit"]["jit"]["cuda_home"])
    return "toolkit.jit.nvcc.version"


def variable(facts):
    facts["environment"]["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    return "environment.VLLM_USE_FLASHINFER_SAMPLER"


def variable_gone(facts):
    del facts["environment"]["NCCL_NVLS_ENABLE"]
    return "environment.NCCL_NVLS_ENABLE"


def cubin(facts):
    facts["packages"]["flashinfer-cubin"]["version"] = "0.5.1"
    facts["site"]["installed"]["flashinfer-cubin"] = "0.5.1"
    facts["flashinfer"]["cubins"] = 4711
    return "packages.flashinfer-cubin.version"


def jit_cache_gone(facts):
    facts["packages"]["flashinfer-jit-cache"] = _missing("not installed in /opt/venv/bin/python3")
    del facts["site"]["installed"]["flashinfer-jit-cache"]
    return "packages.flashinfer-jit-cache.version"


def missing_gpu(facts):
    gone = facts["gpus"]["gpus"].pop()
    facts["gpus"]["cuda_order"].remove(gone["uuid"])
    facts["gpus"]["links"] = [one for one in facts["gpus"]["links"] if gone["uuid"] not in (one["one"], one["other"])]
    return "gpus.count"


def nvlink(facts):
    facts["gpus"]["gpus"][0]["nvlinks"] = [False, *facts["gpus"]["gpus"][0]["nvlinks"][1:]]
    return "gpus.nvlinks"


def mig(facts):
    facts["gpus"]["gpus"][0]["mig"] = True
    facts["gpus"]["cuda_order"] = facts["gpus"]["cuda_order"][1:]
    return "gpus.mig"


def other_gpu(facts):
    for gpu in facts["gpus"]["gpus"]:
        gpu.update(
            name="NVIDIA A100-SXM4-80GB", sm=80, memory_total_mib=81920, memory_free_mib=81000, nvlinks=[True] * 12
        )
    old = facts["flashinfer"]["cache_dir"]
    facts["flashinfer"].update(architectures=["80"], cache_dir=old.replace("/90a", "/80"), cached_modules=[])
    facts["binaries"]["files"] = [one for one in facts["binaries"]["files"] if one["owner"] != "flashinfer cache"]
    for folder in facts["machine"]["folders"]:
        folder["path"] = folder["path"].replace("/90a", "/80")
    return "gpus.sm"


def stale(facts):
    facts["flashinfer"]["stale_modules"] = {_CACHED: "cuda_home = /usr/local/cuda-12.8; now /usr/local/cuda-13.0"}
    return f"flashinfer.stale_modules.{_CACHED}"


def host_compiler(facts):
    facts["toolkit"]["host_compiler_version"] = "11.4.0"
    facts["host_limits"]["major"] = 11
    return "toolkit.host_compiler_version"


def libc(facts):
    facts["system"]["libc"] = "glibc 2.31"
    return "system.libc"


def shared_memory(facts):
    facts["system"]["shm_mib"] = 64
    return "system.shm_mib"


def torch(facts):
    facts["packages"]["torch"]["version"] = facts["site"]["installed"]["torch"] = "2.9.0"
    facts["toolkit"]["torch_cuda"] = "12.8"
    facts["libraries"]["cublas"]["version"] = "12.8.4.1"
    return "packages.torch.version"


def nccl(facts):
    facts["site"]["installed"]["nvidia-nccl-cu13"] = facts["libraries"]["nccl"]["version"] = "2.26.2"
    return "site.installed.nvidia-nccl-cu13"


def library_path(facts):
    facts["environment"]["LD_LIBRARY_PATH"] = "/opt/old/lib64"
    facts["libraries"]["cudart"].update(path="/opt/old/lib64/libcudart.so.13", version="13.0.48")
    return "environment.LD_LIBRARY_PATH"


def read_only(facts):
    folder = next(one for one in facts["machine"]["folders"] if one["purpose"] == "deep-gemm")
    folder.update(writable=False, read_only=True, why="it is mounted read-only")
    return f"machine.folders[{folder['path']}].writable"


def altered(facts):
    facts["flashinfer"]["altered"] = {"norm/__init__.py": "0 bytes instead of 41234"}
    return "flashinfer.altered.norm/__init__.py"


def kernel(facts):
    facts["system"]["kernel"] = "5.15.0-91-generic"
    return "system.kernel"


def memory_limit(facts):
    facts["system"]["memory_limit_mib"] = 65536
    return "system.memory_limit_mib"


def acs(facts):
    for gpu in facts["gpus"]["gpus"]:
        gpu["acs_bridges"] = ["0000:00:01.0"]
    return "gpus.acs_bridges"


def python(facts):
    facts["interpreter"]["version"] = "3.11.9"
    return "interpreter.version"


DRIFTS = tuple(
    Drift(one.__name__, one)
    for one in (
        *(driver, cached_module, cuda_home, nvcc, variable, variable_gone, cubin, jit_cache_gone, missing_gpu, nvlink),
        *(mig, other_gpu, stale, host_compiler, libc, shared_memory, torch, nccl, library_path, read_only, altered),
        *(kernel, memory_limit, acs, python),
    )
)


class Seeded(NamedTuple):
    """A fleet, and what was done to it."""

    reports: list[NodeReport]
    truth: dict[str, frozenset[str]]  # fact -> the nodes that have it otherwise
    drifts: tuple[str, ...]


def fleet(seed, *, nodes=64, drifts=None):
    """A fleet of copies of one machine with so many drifts, by default one to three, each on one to eight nodes."""
    chance = random.Random(seed)
    report = base(BASES[seed % len(BASES)])
    chosen = chance.sample(DRIFTS, chance.randint(1, 3) if drifts is None else drifts)
    hit = {one: frozenset(chance.sample(range(nodes), chance.randint(1, min(8, nodes // 8)))) for one in chosen}
    truth, reports, together = {}, [], {}
    for number in range(nodes):
        mine = copy.deepcopy(report)
        own = tuple(one for one in chosen if number in hit[one])
        if own not in together:
            together[own] = apart(own, report)
        for drift in together[own]:
            fact = drift(mine["facts"])
            truth.setdefault(fact, set()).add(f"node-{number}")
        vary(mine, chance, f"node-{number}")
        reports.append(NodeReport(f"node-{number}", json.dumps(mine).encode(), f"reports/node-{number}.json"))
    return Seeded(reports, {fact: frozenset(of) for fact, of in truth.items()}, tuple(one.name for one in chosen))


def apart(drifts, report):
    """Those of which none follows from another, as a stale module does where the GPUs are others."""
    kept = []
    for drift in drifts:
        tried = copy.deepcopy(report["facts"])
        subjects = {following.subject_of(one(tried)) for one in (*kept, drift)}
        if len(subjects) == len(kept) + 1 and all(one == leads for one, leads in following.leaders(subjects).items()):
            kept.append(drift)
    return kept


def _links(cards):
    pairs = ((one, other) for n, one in enumerate(cards) for other in cards[n + 1 :])
    link = {"pcie": "SYS", "nvlink": True, "read": "ok", "write": "ok"}
    return [{"one": one["uuid"], "other": other["uuid"], **link} for one, other in pairs]


def _rename(gpus, old, new):
    gpus["cuda_order"] = [new if one == old else one for one in gpus["cuda_order"]]
    for link in gpus["links"]:
        link.update({side: new for side in ("one", "other") if link[side] == old})
    for gpu in gpus["gpus"]:
        gpu["uuid"] = new if gpu["uuid"] == old else gpu["uuid"]


def _uuid(chance):
    words = [f"{chance.getrandbits(bits):0{bits // 4}x}" for bits in (32, 16, 16, 16, 48)]
    return f"GPU-{'-'.join(words)}"


def _missing(reason="it is not a checkout"):
    return {"kind": "missing", "reason": reason}
