"""How small a fault the probes' own checks see, and whether they raise false alarms, on the CPU against stand-ins.

    python benchmarks/seeded_faults.py [--clean 1000] [--seeds 1]

Each kernel is replaced by a reference at its precision with one seeded fault, in at most one element of a hundred of
one call (tests/probes/seeded.py); then come `--clean` runs without a fault on inputs of their own, over all kernels.
Exits 1 when a fault was not seen or a clean run was refused. Takes some minutes; needs torch and no GPU.
"""

import argparse
import itertools
import os
import pathlib
import sys
import time

PROBES = pathlib.Path(__file__).parents[1] / "tests" / "probes"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--clean", type=int, default=1000)
    arguments.add_argument("--seeds", type=int, default=1)
    asked = arguments.parse_args()
    sys.path[:0] = [str(PROBES), str(PROBES / "fake_flashinfer")]
    os.environ["FI_DOCTOR_PROBE_DEVICE"] = "cpu"
    import flashinfer.faults
    import seeded
    import torch

    torch.set_num_threads(1)
    missed = [
        (kernel, fault, seed)
        for kernel in seeded.KERNELS
        for seed in range(asked.seeds)
        for fault in faults_of(seeded, kernel, flashinfer.faults, seed)
    ]
    alarms = clean_runs(seeded, asked.clean)
    for kernel, fault, seed in missed:
        print(f"NOT SEEN: {kernel.probe} {kernel.variant}: {fault} (seed {seed})")
    print(*alarms, sep="\n" if alarms else "")
    return 1 if missed or alarms else 0


def faults_of(seeded, kernel, faults, seed):
    """The faults that were not seen; prints a line for the kernel."""
    start, seen = time.perf_counter(), {}
    for fault in kernel.faults:
        seen[fault] = seeded.seeded(kernel, fault, faults, seed)
    caught = sum(bool(one.caught) for one in seen.values())
    share = max(one.touched / one.elements for one in seen.values())
    print(
        f"{kernel.probe} {kernel.variant}: {caught} of {len(seen)} faults caught, "
        f"at most {share:.3%} of the elements touched, {time.perf_counter() - start:.0f} s"
    )
    return [fault for fault, one in seen.items() if not one.caught]


def clean_runs(seeded, count):
    """What clean runs were refused with."""
    start, alarms, largest = time.perf_counter(), [], {}
    for number, kernel in zip(range(count), itertools.cycle(seeded.KERNELS), strict=False):
        try:
            measured = seeded.clean(kernel, seed=number + 1)
        except AssertionError as error:
            alarms.append(f"FALSE ALARM: {kernel.probe} {kernel.variant}, seed {number + 1}: {error}")
            continue
        shares = [value for name, value in measured.items() if name.endswith(("of_tolerance", "of_bound"))]
        largest[kernel.probe] = max([largest.get(kernel.probe, 0.0), *shares])
    print(
        f"{count} clean runs, {len(alarms)} false alarms, {time.perf_counter() - start:.0f} s; largest error of bound:"
    )
    for name, value in sorted(largest.items()):
        print(f"  {name}: {value:.2f}")
    return alarms


if __name__ == "__main__":
    sys.exit(main())
