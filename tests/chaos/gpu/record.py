"""Each fault of a kernel, tried beside sound rows of ours: see record.sh.

    python record.py FOLDER

Exit codes: 0 all were survived, 1 something was not, 3 no GPU is seen, so that nothing was tried on one.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/chaos", "tests/cli", "tests", ".")]

import machine  # noqa: E402 - tests are no package

SOUND = ("norm.rmsnorm", "activation.silu_and_mul")
FAULTS = {  # row -> verdict and words of it
    "gpu.endless_kernel": ("broken", "still running after 5 s"),
    "gpu.illegal_access": ("broken", "illegal memory access"),
    "gpu.device_assert": ("broken", "device-side assert"),
    "gpu.out_of_memory": ("unknown", "out of memory"),
}
GOOD = ("near", "inside")  # variants that are to run once the context of another is dead
say = functools.partial(print, flush=True)
GOING_S = 15.0  # for a driver to take a context apart


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=pathlib.Path)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-gpu-") as folder:
        place = pathlib.Path(folder)
        site = machine.install(place / "site", sorted(pathlib.Path(__file__).parent.glob("gpu_*.py")))
        usual = check(place, site, (), asked.folder / "without.json")  # whatever has to be compiled is there then
        if usual["facts"]["gpus"]["gpus"] in ([], None) or "reason" in usual["facts"]["gpus"]["gpus"]:
            say(f"not tried: no GPU is seen: {usual['facts']['gpus']['gpus']}")
            return 3
        sound = rows_of(usual)
        say(f"without a fault: {sound}")
        found = [complaint for name in FAULTS for complaint in tried(name, place, site, sound, asked.folder)]
    say(f"faults tried {len(FAULTS)}, complaints {len(found)}")
    return int(bool(found))


def tried(name, place, site, sound, folder):
    """The complaints about one fault, which are printed."""
    verdict, words = FAULTS[name]
    before = used_mib()
    with machine.adopting() as strays:
        report = check(place, site, (name,), folder / f"{name}.json")
        begun = time.monotonic()
        machine.wait_for(lambda: not strays() and abs(used_mib() - before) < 8, seconds=GOING_S)
        orphans, took = strays(), time.monotonic() - begun
    rows = rows_of(report)
    own = next(row for row in report["features"] if row["feature"] == name)
    found = [f"{one} is {rows.get(one)} in place of {usual}" for one, usual in sound.items() if rows.get(one) != usual]
    if own["verdict"] != verdict or words not in own["why"]:
        found.append(f"it is {own['verdict']}: {own['why']!r} in place of {verdict}: {words!r}")
    good = [cell for cell in own["cells"] if cell["variant"] in GOOD]
    found += [f"variant {cell['variant']} is {cell['verdict']}" for cell in good if cell["verdict"] != "works"]
    found += [f"process {pid} is left" for pid in orphans]
    if abs(used_mib() - before) >= 8:
        found.append(f"{used_mib() - before} MiB of GPUs more than before")
    say(f"{name}: {'; '.join(found) or 'survived'} ({report['seconds']} s, GPU memory as before after {took:.1f} s)")
    return found


def check(place, site, names, path):
    """The report of these rows beside the sound ones; also written to path."""
    rows = [word for name in (*SOUND, *names) for word in ("--feature", name)]
    words = ["check", *rows, "--depth", "run", "-f", f"json:{path}", "--budget", "10m"]
    argv = [sys.executable, "-m", "fi_doctor", *words]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}
    done = subprocess.run(argv, check=False, env=environ, cwd=place, capture_output=True, text=True)
    if not path.exists():
        sys.exit(f"no report: exit {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(path.read_text())


def rows_of(report):
    return {row["feature"]: row["verdict"] for row in report["features"] if row["feature"] in SOUND}


def used_mib():
    """In use on all GPUs."""
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.run(words, check=False, capture_output=True, text=True).stdout.split()))


if __name__ == "__main__":
    sys.exit(main())
