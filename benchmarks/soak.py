"""Full checks in a row: whether processes, descriptors, files or memory of a GPU are left.

    python benchmarks/soak.py [--checks 200]
    python benchmarks/soak.py --minutes 5 --python /venv/bin/python --feature 'norm.*'    # warm, on a machine with GPUs

Without --python every check is of fake probes (tests/fake_probes), sound ones and faulty ones. Prints the counts, and
exits 1 where anything is left. Checks are forked from one process, whose own descriptors are counted.
"""

import argparse
import collections
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/chaos", "tests/cli", "tests", ".")]

import machine  # noqa: E402 - tests are no package

FAULTY = ("fake.segfault", "fake.exits", "fake.daemon", "fake.cut", "chaos.deaf", "chaos.escapes")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--checks", type=int, default=200)
    arguments.add_argument("--minutes", type=float, default=0.0, help="as many checks as this takes")
    arguments.add_argument("--python", default="", help="examine this interpreter, with our own probes")
    arguments.add_argument("--feature", action="append", default=[], help="with --python: these rows")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        place = pathlib.Path(folder)
        server = machine.Server(place / "server")
        one = machine.Machine(place / "machine", server)
        run = real(one, asked) if asked.python else lambda: one.check(*FAULTY)
        with machine.adopting() as strays:
            left = soaked(run, one, strays, asked)
        server.close()
    return left


def real(one, asked):
    """A warm check: caches are those of whoever calls, temporary files are looked for in the machine's folder."""
    rows = [word for name in asked.feature for word in ("--feature", name)]
    argv = [sys.executable, "-m", "fi_doctor", "check", "--python", asked.python, *rows, "-f", "json", "-q"]

    def run():
        begun = time.monotonic()
        environ = {**os.environ, "TMPDIR": str(one.tmp), "THIS_TEST": str(one.folder)}
        done = subprocess.run(argv, check=False, env=environ, capture_output=True, text=True, cwd=ROOT)
        return machine.Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)

    return run


def soaked(run, one, strays, asked):
    """Run them, print what is left; the exit code."""
    codes, seconds = collections.Counter(), []
    run()
    time.sleep(3)  # what was read of files that are newer than that is not remembered
    run()  # and from here on all is kept that is kept on purpose
    before = (descriptors(), on_gpus(), kept(one))
    begun = time.monotonic()
    while (time.monotonic() - begun < asked.minutes * 60) if asked.minutes else len(seconds) < asked.checks:
        done = run()
        codes[done.code] += 1
        seconds.append(done.seconds)
    machine.wait_for(lambda: not strays() and not one.processes(), seconds=machine.GOING_S)
    after = (descriptors(), on_gpus(), kept(one))
    tenth = max(1, len(seconds) // 10)
    tenths = [statistics.median(seconds[at : at + tenth]) for at in range(0, len(seconds), tenth)][:10]
    left = {
        "processes left": len(strays() | set(one.processes())),
        "files left": len(one.left()),
        "descriptors more": after[0] - before[0],
        "MiB of GPUs more": after[1] - before[1],
        "files kept more": after[2] - before[2],
    }
    print(f"checks               {len(seconds)}, exit codes {dict(codes)}")
    print(f"seconds, by tenths   {' '.join(f'{median:.2f}' for median in tenths)}")
    for name, amount in left.items():
        print(f"{name:20} {amount}")
    return int(any(left.values()) or len(codes) > 1)


def descriptors():
    """Open files of this process, and of those that it has started and that live on."""
    pids = ["self", *map(str, machine.own_children())]
    return sum(len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def kept(one):
    """Files that are remembered on purpose."""
    return sum(path.is_file() for path in (one.home / machine.KEPT).rglob("*"))


def on_gpus():
    """MiB in use on all GPUs; 0 without nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return 0
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.run(words, check=False, capture_output=True, text=True).stdout.split()))


if __name__ == "__main__":
    sys.exit(main())
