"""A static check beside the collectors that the packages bring, all in one run on the machine at hand.

    python benchmarks/static.py --python /venv/with/torch/flashinfer/vllm/bin/python [--runs 9]

Prints the median wall seconds of `fi-doctor check --depth static`, with nothing and with everything remembered of
binaries and sources; of the same for a GPU that is not here (`--target h100`); of `flashinfer collect-env`,
`vllm.collect_env` (what `vllm collect-env` prints, which fails where no GPU is seen) and `torch.utils.collect_env` in
the examined interpreter; and of reading all settings of the installed vLLM from its source. Exits 1 when a goal is
missed: 0.6, 0.4 and 0.6 s, and the first of them 4, 8 and 8 times faster than these; 0.3 s for the settings.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

FIRST, AGAIN = "fi-doctor, nothing remembered", "fi-doctor, again"
TARGET = "fi-doctor --target, again"
SETTINGS = "vLLM's settings, from its source"
GOALS_S = {FIRST: 0.6, AGAIN: 0.4, TARGET: 0.6, SETTINGS: 0.3}
TIMES = {"flashinfer collect-env": 4.0, "vllm.collect_env": 8.0, "torch.utils.collect_env": 8.0}
VERSIONS = """
from importlib.metadata import version
for name in ("torch", "flashinfer-python", "vllm"):
    try:
        print(name, version(name))
    except Exception:
        print(name, "not installed")
"""

READING = """
import gc, pathlib, sys, time
from fi_doctor.facts.registry import read_registry
gc.set_threshold(200_000)  # as the command does
begun = time.perf_counter()
read_registry(pathlib.Path(sys.argv[1]), "vllm", "")
print(time.perf_counter() - begun)
"""
FOLDER = "import importlib.util; print(importlib.util.find_spec('vllm').submodule_search_locations[0])"


def wall_s(argv, **variables):
    """Seconds, and the exit code."""
    start = time.perf_counter()
    done = subprocess.run(
        argv, check=False, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **variables}
    )
    return time.perf_counter() - start, done.returncode


def rounds(python, runs):
    """The commands take turns, so that a busy moment hits all of them alike. name -> (seconds, exit code) of each."""
    doctor = [sys.executable, "-m", "fi_doctor", "check", "--depth", "static", "--python", python]
    others = {
        "flashinfer collect-env": [python, "-m", "flashinfer", "collect-env"],
        "vllm.collect_env": [python, "-m", "vllm.collect_env"],
        "torch.utils.collect_env": [python, "-m", "torch.utils.collect_env"],
    }
    folder = subprocess.run([python, "-c", FOLDER], check=True, capture_output=True, text=True).stdout.strip()
    found = {name: [] for name in (FIRST, AGAIN, TARGET, SETTINGS, *others)}
    for _ in range(runs + 1):
        with tempfile.TemporaryDirectory() as cache:
            found[FIRST].append(wall_s(doctor, XDG_CACHE_HOME=cache))
            found[AGAIN].append(wall_s(doctor, XDG_CACHE_HOME=cache))
            found[TARGET].append(wall_s([*doctor, "--target", "h100"], XDG_CACHE_HOME=cache))
        read = subprocess.run([sys.executable, "-c", READING, folder], check=True, capture_output=True, text=True)
        found[SETTINGS].append((float(read.stdout), read.returncode))
        for name, argv in others.items():
            found[name].append(wall_s(argv))
    return {name: taken[1:] for name, taken in found.items()}  # the first turn fills the file cache


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--python", required=True)
    arguments.add_argument("--runs", type=int, default=9)
    asked = arguments.parse_args()
    taken = rounds(asked.python, asked.runs)
    medians = {name: statistics.median(seconds for seconds, _ in all_of) for name, all_of in taken.items()}
    said = subprocess.run([asked.python, "-c", VERSIONS], check=False, capture_output=True, text=True)
    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}; examined: {', '.join(said.stdout.splitlines())}")
    missed = False
    for name, seconds in medians.items():
        # A collector that fails has not done its work: its time says nothing.
        codes = sorted({code for _, code in taken[name]})
        ended = "" if name in GOALS_S or codes == [0] else f"  (exit {codes}: not counted)"
        goal, times = GOALS_S.get(name), seconds / medians[FIRST]
        is_over = seconds > goal if goal else not ended and times < TIMES[name]
        wanted = f"{goal:.1f} s" if goal else f"{TIMES[name]:.0f}x"
        missed |= is_over
        print(f"{name:32s} {seconds:6.2f} s  {times:5.1f}x{ended}  (goal {wanted}{', MISSED' if is_over else ''})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
