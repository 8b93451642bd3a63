"""How well builds use their jobs: the makespan of a check's builds, with commands that sleep instead of compiling.

    python benchmarks/scheduling.py [--jobs 16] [--speed 20]

Each command sleeps for as long as its object takes on an H100 with 16 CPUs (FlashInfer 0.7.2.post1, nvcc 13.0, sm_90a,
all jobs at work), over --speed. So no GPU and hardly any CPU is needed. The order, the pool of jobs and ninja are those
of a check. Printed are the makespan and the two numbers that bound it from below.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from fi_doctor.inside import building
from fi_doctor.inside.modules import Module
from fi_doctor.probing import estimates

SINK = "batch_prefill_attention_sink_bf16_"
FA3, FA2 = [105] * 8 + [25, 20], [40] + [22] * 8 + [10]
MODULES = {  # seconds of each object
    **{f"batch_prefill_head_dim_{size}_sm90": FA3 for size in (64, 128, 256)},
    **{f"{SINK}{name}": FA3 for name in ("swa_False_fa3", "swa_False_fa3_head_dim_128", "swa_True_fa3")},
    **{f"batch_prefill_head_dim_{size}": FA2 for size in (64, 128, 256)},
    **{f"xqa_{number}": [17, 8, 6, 3, 2] for number in range(9)},
    "norm": [51, 24],
    "page": [27, 11],
    "sampling": [120, 50, 32],
    "silu_and_mul": [7],
}
SHARED = [150, 88, 50, 12, 11, 6, 3, 3, 3, 3, 2, 1, 1]  # by all parts of the MoE module
PARTS = {
    "bf16": [101, 110, 74],
    "fp8_block": [113, 87],
    "fp8_per_tensor": [133, 121, 75],
    "mxfp4_bf16": [122, 150, 103, 63],
}
RULES = ["rule run", "  command = sleep $s # -o $out", "rule link", "  command = touch $out # -o $out"]


class Lock(contextlib.nullcontext):
    """Held by nobody else."""

    def __init__(self, *_, **__):
        super().__init__()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--speed", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        modules = {**alone(pathlib.Path(folder), asked.speed), **parts(pathlib.Path(folder) / "moe", asked.speed)}
        sizes = {name: estimates.Build(objects=module.objects, rank=0) for name, module in modules.items()}
        order, _ = estimates.order(sizes, jobs=asked.jobs, seconds=3600.0)
        job = {"jobs": asked.jobs, "memory_mib": 0}
        told = {"order": order, "peak_mib": {}, "least_s": {}, "seconds": 3600.0}
        core = types.SimpleNamespace(FileLock=Lock)
        begun = time.monotonic()
        building.Building(core, modules, job, told, lambda **_: None).run()
        makespan_s = (time.monotonic() - begun) * asked.speed
    unbuilt = [name for name, module in modules.items() if module.state != "built"]
    assert not unbuilt, unbuilt
    every = [*MODULES.values(), SHARED, *PARTS.values()]
    longest_s, all_s = max(map(max, every)), sum(map(sum, every))
    shared_s = all_s / asked.jobs
    print(f"{len(modules)} modules, {sum(map(len, every))} objects, {asked.jobs} jobs, {asked.speed:g} x as fast:")
    print(f"makespan {makespan_s:.0f} s = {makespan_s / max(longest_s, shared_s):.2f} x max of")
    print(f"  longest object {longest_s} s, {all_s} s of all objects / {asked.jobs} jobs = {shared_s:.0f} s")


def alone(folder, speed):
    """Modules with a log of their own."""
    made = {}
    for name, objects in MODULES.items():
        outs = [f"{number}.o" for number in range(len(objects))]
        lines = [*RULES, *commands(outs, objects, speed), f"build {name}.so: link {' '.join(outs)}"]
        made[name] = module(name, folder / name, lines, len(objects))
    return made


def parts(folder, speed):
    """Modules that share a log, and objects."""
    shared = [f"shared/{number}.o" for number in range(len(SHARED))]
    lines = [*RULES, *commands(shared, SHARED, speed)]
    names = {f"fused_moe_90.{name}": objects for name, objects in PARTS.items()}
    for name, objects in names.items():
        outs = [f"{name}/{number}.o" for number in range(len(objects))]
        lines += [*commands(outs, objects, speed), f"build {folder}/{name}/moe.so: link {' '.join([*outs, *shared])}"]
    made = {name: module(name, folder, lines, len(objects)) for name, objects in names.items()}
    for name, one in made.items():
        one.target = f"{folder}/{name}/moe.so"
    next(iter(made.values())).objects += len(SHARED)
    return made


def commands(outs, seconds, speed):
    return [
        line for out, one in zip(outs, seconds, strict=True) for line in (f"build {out}: run", f"  s = {one / speed}")
    ]


def module(name, workdir, lines, objects):
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "build.ninja").write_text("\n".join([*lines, ""]))
    made = Module(types.SimpleNamespace(name=name, lock_path=str(workdir / "lock")), [])
    made.workdir, made.ninja_file, made.objects = str(workdir), str(workdir / "build.ninja"), objects
    return made


if __name__ == "__main__":
    main()
