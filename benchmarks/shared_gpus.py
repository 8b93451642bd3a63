"""The variants of four ranks where there are fewer than four GPUs: ranks share a GPU, which takes turns between them.

    python benchmarks/shared_gpus.py [comm_allreduce] [comm_allreduce_fusion]

Shown by it: the numbers of the kernels for a world of four, their barriers and the order of the ranks, over CUDA IPC
within a GPU and across. Not shown: links between four GPUs, speed, and what goes wrong only while all ranks run at once
(the two-shot all-reduce of 0.5.3 does, on two GPUs of two ranks). Hence no report says what is found here.
FlashInfer has to be installed, its module trtllm_comm is compiled unless it is in the cache.
"""

import contextlib
import importlib.util
import os
import sys
import time
from pathlib import Path

PROBES = Path(__file__).parent.parent / "probes"


def probe_of(name):
    """The file as a module whose ranks, forked or fresh, share the GPUs there are."""
    spec = importlib.util.spec_from_file_location(name, PROBES / f"{name}.py")
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    probe.__file__ = str(Path(__file__).absolute())  # what a fresh rank runs
    probe._Team.take_gpu = take_gpu  # noqa: SLF001 - what a probe has to itself is what this is about
    return probe


def take_gpu(team):
    """As the probe does it, but for which GPU, and for NCCL, which refuses two ranks on one GPU of one host."""
    if team.device is not None:
        return
    os.environ["NCCL_HOSTID"] = f"rank-{team.gpu}"
    team.step("importing torch and flashinfer.comm")
    import flashinfer.comm
    import torch

    team.step("taking its GPU")
    device = torch.device("cpu")
    team.sm = 90
    if torch.cuda.is_available():
        device = torch.device("cuda", team.gpu % torch.cuda.device_count())
        torch.cuda.set_device(device)
        major, minor = torch.cuda.get_device_capability(device)
        team.sm = 10 * major + minor
    team.runtime = flashinfer.comm.CudaRTLibrary()
    team.device = device


def found(probe, variant):
    """In words, and whether it works."""
    begun = time.monotonic()
    try:
        probe.build(variant)
        measured = probe.run(variant)
    except Exception as exc:  # noqa: BLE001 - the next variant gets new ranks
        return f"{type(exc).__name__} after {time.monotonic() - begun:.1f} s: {exc}", False
    took = time.monotonic() - begun
    shares = ", ".join(f"{key} {value:.2f}" for key, value in measured.items() if key.endswith("share"))
    return f"works, {took:.1f} s, {measured['elements']} elements ({shares}); {measured['gpus']}", True


def main(names):
    works = asked = 0
    for name in names:
        probe = probe_of(name)
        os.environ["FI_DOCTOR_PROBE"] = name  # a fresh rank is to know it
        four = {key: needs for key, needs in probe.PROBE["variants"].items() if needs.get("gpus") == 4}
        for variant in (key for key, needs in four.items() if "sm" not in needs):  # the other wants SM100
            words, good = found(probe, variant)
            asked += 1
            works += good
            print(f"{name} {variant}: {words}", flush=True)
        with contextlib.suppress(Exception):
            probe._end_ranks()  # noqa: SLF001
    print(f"{works} of {asked} work", flush=True)
    return 0 if works == asked else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        probe_of(os.environ["FI_DOCTOR_PROBE"])._serve(int(sys.argv[2]), sys.argv[3])  # noqa: SLF001
    sys.exit(main(sys.argv[1:] or ["comm_allreduce", "comm_allreduce_fusion"]))
