"""Compiles FlashInfer's modules for GPUs that need not be here, and writes what came of each as soon as it ends.

    python benchmarks/atlas.py --flashinfer FOLDER --toolkit FOLDER --work FOLDER --rows FILE.jsonl [--budget SECONDS]

--flashinfer and --toolkit may be given several times: a folder that holds the package, and one that holds bin/nvcc. The
interpreter needs torch, tvm_ffi and ninja. What is compiled is what FlashInfer's own JIT would compile: the commands of
the ninja files that it writes (atlas_units.py). A line of FILE is one module of one FlashInfer by one nvcc for one
architecture: "compiled", "failed" (the compiler says why) or "refused" (FlashInfer does, before anything is compiled).
What is there already is not done again, nor are units whose objects lie in --work; --dry-run says how much there is.
BROAD modules are compiled for all architectures by each nvcc, the others for some by one.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import atlas_record as record
from atlas_units import BROAD, MODULES, SLOW

ARCHITECTURES = ("8.0", "9.0a", "10.0a", "10.3a", "12.0f", "12.1a")
OTHER_ARCHITECTURES = ("9.0a", "10.0a", "12.0f")
UNITS = pathlib.Path(__file__).with_name("atlas_units.py")


def wanted(arguments, toolkits, done):
    """(flashinfer folder, toolkit, architecture) -> what is to be asked for there; the broad part first."""
    found = {}
    grid = [(broad, *key) for broad in (True, False) for key in itertools.product(toolkits, ARCHITECTURES)]
    for broad, toolkit, architecture in grid:
        if not broad and (toolkit.version != arguments.one_nvcc or architecture not in OTHER_ARCHITECTURES):
            continue
        for package in arguments.flashinfer:
            for name in MODULES if not arguments.modules else arguments.modules:
                if (name in BROAD) == broad and architecture in (arguments.arch or ARCHITECTURES):
                    key = (record.flashinfer_version(package), name, toolkit.version, record.tag(architecture))
                    if key not in done:
                        found.setdefault((package, toolkit, architecture), []).append(name)
    return found


def place(name):
    """Where a module stands: what takes minutes begins at once, then what is broad, of the rest the longest first."""
    return name not in SLOW, name not in BROAD, 0 if name in BROAD else list(MODULES).index(name)


class Module:
    """One line that is to be written: its units and what came of them."""

    def __init__(self, key, versions, plan):
        self.key, self.versions, self.plan = key, versions, plan
        *self.commands, self.link = plan["commands"] or [""]
        self.left = len(self.commands)
        self.units, self.failed, self.is_cut = [], None, False


class Atlas:
    """The whole run."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.begun = time.monotonic()
        self.work = arguments.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.ledger = record.Ledger(self.work / "units.jsonl")
        self.machine = record.machine(arguments.jobs)
        self.running, self.counts, self.lock = set(), Counter(), threading.Lock()

    def has_time(self):
        """Whether a unit is begun."""
        return time.monotonic() - self.begun < self.arguments.budget

    def environment(self, package, toolkit, architecture):
        """As for a server of this FlashInfer that takes this toolkit, with a workspace of its own."""
        version = record.flashinfer_version(package)
        paths = [str(package.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUDA_HOME": str(toolkit.root),
            "FLASHINFER_CUDA_ARCH_LIST": architecture,
            "FLASHINFER_WORKSPACE_BASE": str(self.work / version / toolkit.version / record.tag(architecture)),
            "FLASHINFER_DISABLE_VERSION_CHECK": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TMPDIR": str(self.work),
        }

    def plan(self, place, names):
        """What FlashInfer would run, for each module that is asked for there."""
        package, toolkit, architecture = place
        command = ["nice", "-n", str(self.arguments.nice), sys.executable, UNITS, *names]
        told = subprocess.run(command, env=self.environment(*place), capture_output=True, text=True, check=False)
        if told.returncode:
            print(f"{place}: {told.stderr[-2000:]}", file=sys.stderr)
            return []
        found = json.loads(told.stdout.splitlines()[-1])
        modules = []
        for name, plan in found["modules"].items():
            key = (record.flashinfer_version(package), name, toolkit.version, record.tag(architecture))
            versions = {**found["versions"], "nvcc": toolkit.build, "borrowed": toolkit.borrowed}
            modules.append(Module(key, versions, plan))
        return modules

    def run(self, command, module):
        """Run one command as ninja would: its status, what it said and what it took."""
        key, place = record.hashed(module.versions["nvcc"], command), module.plan["folder"]
        output = pathlib.Path(place, re.findall(r" -o (\S+)", f"{command} ")[-1])
        known = self.ledger.units.get(key)
        if known is not None and (output.is_file() or known["status"]):
            return {**known, "earlier": True}
        output.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(self.work)}
        begun = time.monotonic()
        nice = ["nice", "-n", str(self.arguments.nice)]
        process = subprocess.Popen(
            [*nice, "/bin/sh", "-c", command], cwd=place, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with self.lock:
            self.running.add(process.pid)
        with process.stdout:
            said = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        with self.lock:
            self.running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        took = {
            "unit": pathlib.Path(re.findall(r" -c (\S+)", command)[0]).name if " -c " in command else "link",
            "status": process.returncode,
            "wall_s": round(time.monotonic() - begun, 2),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_mib": usage.ru_maxrss // 1024,
            "error": record.first_error(said) if process.returncode else "",
        }
        is_cut = process.returncode < 0 or (process.returncode and record.LACKS.search(said)) or self.is_over()
        if not is_cut:
            self.ledger.add(key, took)
        return {**took, "earlier": False, "cut": is_cut}

    def is_over(self):
        """Whether what runs has been killed, or is about to be."""
        return time.monotonic() - self.begun >= self.arguments.limit

    def unit(self, module, command):
        """Compile one, unless there is no time or the module has failed; the last one links and writes the line."""
        took = None
        if module.failed is None and not module.is_cut and self.has_time():
            took = self.run(command, module)
        with self.lock:
            module.left -= 1
            if took is None or took.get("cut"):
                module.is_cut = module.is_cut or module.failed is None
                if took and took["error"]:
                    self.counts[f"lacking: {took['error']}"] += 1
            else:
                module.units.append(took)
                if took["status"]:
                    module.failed = module.failed or took
            is_last = not module.left
        if is_last:
            self.finish(module)

    def finish(self, module):
        """Link, and write the line."""
        link = None
        if module.failed is None:
            if module.is_cut or not self.has_time():
                self.counts["not ended"] += 1
                return
            link = self.run(module.link, module)
            if link.get("cut"):
                return
        self.write(module, "failed" if module.failed else "compiled", link)

    def write(self, module, outcome, link=None):
        """Add the line, and remove the objects."""
        row = record.row(module, outcome, link, self.machine)
        with self.lock, self.arguments.rows.open("a") as rows:
            rows.write(json.dumps(row) + "\n")
            self.counts[outcome] += 1
            sums = f"{row['units']} units, {row['cpu_s']:.0f} CPU s, {row['peak_mib']} MiB"
            print(f"{time.monotonic() - self.begun:6.0f} s  {' '.join(module.key)}: {outcome}, {sums} {row['error']}")
        for command in module.commands:
            pathlib.Path(module.plan["folder"], re.findall(r" -o (\S+)", command)[-1]).unlink(missing_ok=True)

    def stop(self):
        """Kill what runs."""
        with self.lock:
            for pid in self.running:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.killpg(pid, signal.SIGKILL)

    def go(self, places):
        """Ask FlashInfer for everything, then compile it in that order, `jobs` at a time."""
        units = []
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            try:
                modules = list(itertools.chain.from_iterable(pool.map(self.plan, places, places.values())))
                modules.sort(key=lambda one: place(one.key[1]))  # of one place they stay as they are
                print(f"{len(modules)} modules, {sum(len(one.commands) for one in modules)} units", flush=True)
                if self.arguments.dry_run:
                    return
                for module in modules:
                    if module.plan["refused"]:
                        self.write(module, "refused")
                units = [pool.submit(self.unit, one, command) for one in modules for command in one.commands]
                left = max(0.0, self.arguments.limit - (time.monotonic() - self.begun))
                concurrent.futures.wait(units, timeout=left)
                for unit in units:
                    if unit.done() and unit.exception():
                        raise unit.exception()
            finally:
                self.arguments.budget = self.arguments.limit = 0.0
                self.stop()
                while concurrent.futures.wait(units, timeout=0.5).not_done:
                    self.stop()  # one that was just being started
        print(", ".join(f"{number} {what}" for what, number in sorted(self.counts.items())))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flashinfer", action="append", type=pathlib.Path, required=True)
    parser.add_argument("--toolkit", action="append", type=pathlib.Path, required=True)
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES)
    parser.add_argument("--modules", action="append", choices=MODULES)
    parser.add_argument("--one-nvcc", default="13.0", help="which nvcc compiles what is not broad")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no unit is begun")
    parser.add_argument("--limit", type=float, default=2e9, help="seconds after which those that run are killed")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    toolkits = [record.toolkit(folder) for folder in arguments.toolkit]
    places = wanted(arguments, toolkits, record.done(arguments.rows))
    Atlas(arguments).go(places)


if __name__ == "__main__":
    main()
