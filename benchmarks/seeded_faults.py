"""How small a fault the probes' own checks see, and whether they raise false alarms, on the CPU against stand-ins.

    python benchmarks/seeded_faults.py [--clean 1000] [--seeds 1]

Each kernel is replaced by a reference at its precision with one seeded fault, in at most one element of a hundred of
one call (tests/probes/seeded.py); then comes its part of `--clean` runs without a fault, on inputs of their own. A line
for each probe's variant says how many faults were caught, how many of the elements they touched, what the error of the
least was in tolerances where it is a number, and what the clean runs gave.
Exits 1 when a fault was not seen or a clean run was refused. Takes some minutes on two cores; needs torch and no GPU.
"""

import argparse
import importlib
import multiprocessing
import os
import pathlib
import sys
import time

PROBES = pathlib.Path(__file__).parents[1] / "tests" / "probes"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--clean", type=int, default=1000)
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--jobs", type=int, default=2)
    asked, start = arguments.parse_args(), time.perf_counter()
    prepare()
    kernels = importlib.import_module("seeded_kernels").KERNELS
    parts = [asked.clean // len(kernels) + (place < asked.clean % len(kernels)) for place in range(len(kernels))]
    results = []
    with multiprocessing.get_context("spawn").Pool(asked.jobs, initializer=prepare) as pool:
        for line, *result in pool.imap(checked, [(*one, asked.seeds) for one in enumerate(parts)]):
            print(line, flush=True)
            results.append(result)
    seeded, caught, share, missed, alarms = zip(*results, strict=True)
    print(
        f"{sum(seeded)} faults in {len(kernels)} variants of {len({one.probe for one in kernels})} probes, "
        f"{sum(caught)} caught, at most {max(share):.3%} of the elements of a run touched; "
        f"{sum(parts)} clean runs, {sum(map(len, alarms))} false alarms; {time.perf_counter() - start:.0f} s"
    )
    problems = [problem for found in (*missed, *alarms) for problem in found]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def prepare():
    """In each process: the stand-in in place of FlashInfer, on one thread of the CPU."""
    sys.path[:0] = [str(PROBES), str(PROBES / "fake_flashinfer")]
    os.environ["FI_DOCTOR_PROBE_DEVICE"] = "cpu"
    importlib.import_module("torch").set_num_threads(1)


def checked(what):
    """A line about the kernel with this number; how many faults, caught, the largest share, what is missed, alarms."""
    number, clean, seeds = what
    seeded, kernel = importlib.import_module("seeded"), importlib.import_module("seeded_kernels").KERNELS[number]
    seen = {(fault, seed): one for seed in range(seeds) for fault, one in seeded.seeded(kernel, seed).items()}
    name = f"{kernel.probe} {kernel.variant}"
    largest, alarms = clean_runs(seeded, kernel, clean)
    caught = sum(bool(one.caught) for one in seen.values())
    shares = [one.touched / one.elements for (fault, _), one in seen.items() if fault in kernel.faults.split()]
    share = max(shares, default=0.0)  # a light fault may touch every element
    tolerances = [one.tolerances for one in seen.values() if one.tolerances]
    by = f"the least {min(tolerances):.3g} x the tolerance" if tolerances else "none is tolerated"
    line = (
        f"{name}: {caught} of {len(seen)} faults caught, at most {share:.3%} of the elements touched, {by}; "
        f"{clean} clean runs, {len(alarms)} false alarms, largest error of bound {largest:.2f}"
    )
    missed = [f"NOT SEEN: {name}: {fault} (seed {seed})" for (fault, seed), one in seen.items() if not one.caught]
    return line, len(seen), caught, share, missed, alarms


def clean_runs(seeded, kernel, count):
    """The largest error as a part of its bound, and what clean runs were refused with."""
    largest, alarms = 0.0, []
    for seed in range(1, count + 1):
        try:
            measured = seeded.clean(kernel, seed)
        except AssertionError as error:
            alarms.append(f"FALSE ALARM: {kernel.probe} {kernel.variant}, seed {seed}: {error}")
            continue
        shares = [value for name, value in measured.items() if name.endswith(("of_tolerance", "of_bound"))]
        largest = max([largest, *shares])
    return largest, alarms


if __name__ == "__main__":
    sys.exit(main())
