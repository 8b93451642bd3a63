"""Start-up of the command line beside a bare interpreter, all in one run on the machine at hand.

    python benchmarks/startup.py [--python /venv/with/torch/bin/python] [--runs 15]

Prints the median wall seconds of each command and its ratio to `python -c pass`, and exits 1 when a goal is missed:
`fi-doctor --help` within 15x, `fi-doctor check --depth static` within 35x. The interpreter that is examined (--python)
should have torch and FlashInfer installed, or the second figure says little.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

GOALS = {"fi-doctor --help": 15.0, "fi-doctor check --depth static": 35.0}


def wall_s(argv):
    start = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start


def measure(commands, runs):
    """Medians; the commands take turns, so that a busy moment hits all of them alike."""
    taken = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, argv in commands.items():
            taken[name].append(wall_s(argv))
    return {
        name: statistics.median(values[1:]) for name, values in taken.items()
    }  # the first turn fills the file cache


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--runs", type=int, default=15)
    asked = arguments.parse_args()
    doctor = [sys.executable, "-m", "fi_doctor"]
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "fi-doctor --help": [*doctor, "--help"],
        "fi-doctor check --depth static": [*doctor, "check", "--depth", "static", "--python", asked.python],
    }
    medians = measure(commands, asked.runs)
    base = medians["python -c pass"]
    probe = subprocess.run(
        [asked.python, "-c", "from importlib.metadata import version as v; print(v('torch'), v('flashinfer-python'))"],
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    print(f"examined: torch and FlashInfer {probe.stdout.strip() or 'not installed'}")
    missed = False
    for name, seconds in medians.items():
        goal = GOALS.get(name)
        over = goal is not None and seconds > goal * base
        missed |= over
        print(
            f"{name:32s} {seconds * 1000:7.1f} ms  {seconds / base:5.1f}x"
            + (f"  (goal {goal:.0f}x{', MISSED' if over else ''})" if goal else "")
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
