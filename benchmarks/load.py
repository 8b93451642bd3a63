"""Time and memory under load, of two sizes each: ten times as much is to take ten times as long.

    python benchmarks/load.py [checks] [report] [packages] [cache] [log]      # without a name: all

checks: so many checks of fake probes at once. report: rows of a report in every format. packages: in the environment
that is examined. cache: modules of a JIT cache. log: GiB that come through a pipe; no file of that size is written.
"""

import argparse
import contextlib
import gc
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests/chaos", "tests/cli", "tests", ".")]

import cli_command  # noqa: E402 - tests are no package
import elf_samples  # noqa: E402
import factory as make  # noqa: E402
import machine  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from fi_doctor.cli import process  # noqa: E402
from fi_doctor.model import Ending  # noqa: E402
from fi_doctor.reports import FORMATS, render  # noqa: E402

DOCTOR = [sys.executable, "-m", "fi_doctor"]
HEALTHY = sorted((ROOT / "tests/explaining/healthy").glob("*.log"))
CRASH = b"RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist\n"


def main():
    parts = {"checks": checks, "report": report, "packages": packages, "cache": cache, "log": log}
    arguments = argparse.ArgumentParser()
    arguments.add_argument("part", nargs="*", choices=[[], *parts], default=[])
    asked = arguments.parse_args().part or parts
    print(f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
    for name in asked:
        with tempfile.TemporaryDirectory(prefix="load-") as folder:
            parts[name](pathlib.Path(folder))


def told(what, sizes, seconds, mib):
    """A line: each size with its time and memory."""
    measured = zip(sizes, seconds, mib, strict=True)
    said = ", ".join(f"{size:,}: {took:.2f} s {held:.0f} MiB" for size, took, held in measured)
    print(f"{what:28} {said}", flush=True)


def checks(folder):
    sizes, seconds, mib = (5, 50), [], []
    server = machine.Server(folder / "server")
    for size in sizes:
        one = machine.Machine(folder / str(size), server)
        with watched(one) as held:
            done = one.at_once(size, "chaos.deaf")
        rows = [{row["verdict"] for row in json.loads(each.out)["features"]} for each in done]
        if rows != [{"works"}] * size or one.left() or one.processes():
            sys.exit(f"{size} checks at once disturbed each other: {rows} {one.left()} {one.processes()}")
        seconds.append(done[0].seconds)
        mib.append(max(held))
    server.close()
    told("checks at once", sizes, seconds, mib)


@contextlib.contextmanager
def watched(one):
    """What all processes of a machine hold together (PSS), looked at now and then."""
    held, is_over = [0.0], threading.Event()

    def look():
        while not is_over.wait(0.3):
            held.append(sum(map(pss_mib, one.processes())))

    thread = threading.Thread(target=look)
    thread.start()
    yield held
    is_over.set()
    thread.join()


def pss_mib(pid):
    with contextlib.suppress(OSError, ValueError):
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


def report(folder):
    del folder
    sizes = (1000, 10_000)
    empty = cli_command.report()
    reports = []
    for size in sizes:
        names = [f"moe.row{number}" for number in range(size)]
        outcomes = [make.outcome(name, Ending.RAISED if name.endswith("7") else Ending.RETURNED) for name in names]
        reports.append(replace(empty, features=tuple(map(make.row, names)), outcomes=tuple(outcomes)))
    for name in FORMATS:
        measured = [forked(lambda one=one, name=name: render(one, name)) for one in reports]
        told(f"report in {name}", sizes, *zip(*measured, strict=True))


def forked(work):
    """Seconds and MiB that are added in a process of its own."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        gc.set_threshold(process._OBJECTS_A_COLLECTION)  # noqa: SLF001 - as in the command
        before = peak_mib()
        begun = time.perf_counter()
        work()
        os.write(writing, json.dumps([time.perf_counter() - begun, peak_mib() - before]).encode())
        os._exit(0)
    os.close(writing)
    os.wait()
    with os.fdopen(reading, "rb") as pipe:
        return json.load(pipe)


def peak_mib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def packages(folder):
    sizes = (20, 200)
    measured = []
    for size in sizes:
        site = folder / str(size)
        for number in range(size):
            info = site / f"package{number}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package{number}\nVersion: 1.0\n")
            files = "".join(f"package{number}/file{one}.py,,\n" for one in range(200))
            (info / "RECORD").write_text(files)
        words = ["check", "--depth", "static", "--python", sys.executable]
        measured.append(ran(words, folder, PYTHONPATH=f"{site}{os.pathsep}{ROOT}"))
    told("packages, a static check", sizes, *zip(*measured, strict=True))


def cache(folder):
    sizes = (500, 5000)
    measured = []
    library = elf_samples.elf(elf_samples.container(elf_samples.entry(elf_samples.CUBIN, 90, elf_samples.SPECIFIC)))
    for size in sizes:
        home = folder / str(size)
        (home / "site/flashinfer").mkdir(parents=True)
        (home / "site/flashinfer/__init__.py").touch()
        (home / "site/flashinfer/_build_meta.py").write_text('__version__ = "0.7.2.post1"\n')
        for number in range(size):
            module = home / f".cache/flashinfer/0.7.2.post1/90a/cached_ops/module{number}"
            module.mkdir(parents=True)
            (module / f"module{number}.so").write_bytes(library)
            (module / "build.ninja").write_text("ninja_required_version = 1.3\nname = x\n\nrule compile\n")
        environ = {"HOME": str(home), "PYTHONPATH": f"{home}/site{os.pathsep}{ROOT}"}
        measured.append(ran(["cache"], home, **environ))
    told("modules in the JIT cache", sizes, *zip(*measured, strict=True))


def log(folder):
    sizes = (0.5, 5.0)
    block = b"".join(one.read_bytes() for one in HEALTHY)

    def write(pipe, size):
        for _ in range(int(size * (1 << 30)) // len(block)):
            pipe.write(block)
        pipe.write(CRASH)
        pipe.close()

    measured = [ran(["explain", "-"], folder, feed=(write, size)) for size in sizes]
    told("GiB of a log", sizes, *zip(*measured, strict=True))


def ran(words, folder, feed=None, **changes):
    """Seconds and the most MiB of the command itself; feed: what writes into its stdin, and how much."""
    environ = cli_command.environment(home=folder, **changes)
    begun = time.perf_counter()
    stdin = subprocess.PIPE if feed else subprocess.DEVNULL
    with (folder / "said").open("wb") as said:
        child = subprocess.Popen([*DOCTOR, *words], env=environ, cwd=folder, stdin=stdin, stdout=said, stderr=said)
        if feed:
            feed[0](child.stdin, feed[1])
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1, 3):
        sys.exit(f"{words}: exit {child.returncode}: {(folder / 'said').read_text()[-600:]}")
    return time.perf_counter() - begun, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
