"""How long `fi-doctor check --locked` takes where nothing has changed, on the machine at hand.

    python benchmarks/locked.py [--lock LOCK | --from REPORT] [--python /venv/bin/python] [--runs 15] [--cold FOLDER]

Without --lock one is made first, by `fi-doctor lock`, which checks this machine; --cold does so with an empty JIT cache
in FOLDER, --from takes a JSON report of a check of this machine. The check that the lock stands for is then compared
with the locked one. Exits 1 when a goal is missed: 1 s for the median, and with --cold or --from a hundredth of that
check. The interpreter that is examined should have torch,
FlashInfer and vLLM installed, or the figure says little.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

GOAL_S = 1.0
GOAL_RATIO = 100
DOCTOR = [sys.executable, "-m", "fi_doctor"]


def run(*words, env=None):
    """Wall seconds and what was said; no code but 2 and 4 is a failure of the benchmark."""
    start = time.perf_counter()
    done = subprocess.run(
        [*DOCTOR, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - start
    if done.returncode in (2, 4):
        sys.exit(done.stderr)
    return seconds, done


def make(path, python, env, report):
    """The seconds of the check by which the lock is made, or which the report tells of."""
    source = ["--from", str(report)] if report else []
    seconds, done = run("lock", "-o", str(path), *source, *python, env=env)
    print(done.stderr.strip().splitlines()[-1])
    if not path.is_file():
        sys.exit("nothing was proved here: --lock names a lock to take")
    return json.loads(report.read_text())["seconds"] if report else seconds


def told(report, lock):
    """What was measured on, in words."""
    facts = report["facts"]
    packages = facts["packages"]
    names = ("torch", "flashinfer-python", "vllm")
    versions = [f"{name} {packages[name].get('version', 'not installed')}" for name in names]
    gpus = facts["gpus"]["gpus"]
    cards = ", ".join(sorted({gpu["name"] for gpu in gpus})) if isinstance(gpus, list) else "no GPU"
    files = sum(len(names) for names in lock["groups"].values())
    return (
        f"{os.cpu_count()} CPUs, {cards}, Python {sys.version.split()[0]}, {', '.join(versions)}\n"
        f"{len(lock['rows'])} locked rows on {len(lock['inputs'])} inputs ({files} names of files in their groups)"
    )


def main():
    arguments = argparse.ArgumentParser()
    source = arguments.add_mutually_exclusive_group()
    source.add_argument("--lock", type=pathlib.Path)
    source.add_argument("--from", type=pathlib.Path, dest="report")
    arguments.add_argument("--python")
    arguments.add_argument("--runs", type=int, default=15)
    arguments.add_argument("--cold", type=pathlib.Path)
    asked = arguments.parse_args()
    python = ["--python", asked.python] if asked.python else []
    env = dict(os.environ)
    if asked.cold:
        asked.cold.mkdir(parents=True)  # an existing one would not be cold
        env["FLASHINFER_WORKSPACE_BASE"] = str(asked.cold.absolute())
    with tempfile.TemporaryDirectory() as scratch:
        path = asked.lock or pathlib.Path(scratch) / "fi-doctor.lock"
        checked_s = 0.0 if asked.lock else make(path, python, env, asked.report)
        words = ["check", "--locked", str(path), "--frozen", *python]
        fresh = {**env, "XDG_CACHE_HOME": f"{scratch}/memory"}
        first_s, done = run(*words, "-f", "json", env=fresh)
        report, lock = json.loads(done.stdout), json.loads(path.read_text())
        taken = [run(*words, env=env)[0] for _ in range(asked.runs + 1)][1:]
    held = sum(bool(row["locked"]) for row in report["features"])
    median = statistics.median(taken)
    print(told(report, lock))
    print(f"rows that hold: {held}")
    print(f"check --locked, nothing changed: median {median:.3f} s, {min(taken):.3f} to {max(taken):.3f} s", end="")
    print(f" (goal {GOAL_S:g} s{', MISSED' if median > GOAL_S else ''})")
    print(f"the same for the first time, with every file read: {first_s:.3f} s")
    is_missed = median > GOAL_S or held < len(lock["rows"])
    if checked_s:
        ratio = checked_s / median
        is_cold = bool(asked.cold or asked.report)
        goal = f" (goal {GOAL_RATIO}x{', MISSED' if ratio < GOAL_RATIO else ''})" if is_cold else ""
        print(f"the check that it stands for: {checked_s:.1f} s, {ratio:.0f}x{goal}")
        is_missed |= is_cold and ratio < GOAL_RATIO
    return 1 if is_missed else 0


if __name__ == "__main__":
    sys.exit(main())
