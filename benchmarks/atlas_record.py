"""What a line of the atlas says of where and with what it was measured, and what is known from before."""

import datetime as dt
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import threading
from typing import NamedTuple

SCHEMA = "fi-doctor.atlas/1"
# What is wrong with the machine or with a toolkit of wheels only, and says nothing of a module.
LACKS = re.compile(
    r"died due to signal 9|Killed|No space left on device|out of memory|Cannot allocate memory"
    r"|(cublas|cufft|curand|cusolver|cusparse|nvrtc|nvToolsExt)\w*\.h: No such file"
)
# They change what is compiled, or with what.
VARIABLES = re.compile(r"CC|CXX|CPATH|CPLUS_INCLUDE_PATH|LIBRARY_PATH|NVCC_\w+|FLASHINFER_(EXTRA_\w+|NVCC\w*|JIT_\w+)")


class Toolkit(NamedTuple):
    """A folder with bin/nvcc."""

    root: pathlib.Path
    version: str  # "13.2"
    build: str  # "V13.2.86"
    borrowed: str  # whose headers stand beside its own: "cublas, curand of 13.0"


def toolkit(root):
    """What its nvcc says of itself."""
    said = _said(str(root / "bin" / "nvcc"), "--version")
    [(version, build)] = re.findall(r"release ([\d.]+), (V[\d.]+)", said)
    borrowed = root / "include" / "borrowed.txt"
    return Toolkit(root.resolve(), version, build, borrowed.read_text().strip() if borrowed.is_file() else "")


def tag(architecture):
    """Of "9.0a" "90a", as nvcc calls it."""
    return architecture.replace(".", "")


def flashinfer_version(package):
    [found] = package.glob("flashinfer_python-*.dist-info")
    return found.name.removesuffix(".dist-info").partition("-")[2]


def done(rows):
    """What need not be done again: (flashinfer, asked, nvcc, architecture)."""
    lines = map(json.loads, rows.read_text().splitlines()) if rows.is_file() else ()
    keys = ("flashinfer", "asked", "nvcc", "arch")
    return {tuple(line[name] for name in keys) for line in lines if not LACKS.search(line["error"])}


def hashed(*words):
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


class Ledger:
    """Units that have ended, so that a run that was cut off goes on where it was."""

    def __init__(self, path):
        self.path, self.lock, self.units = path, threading.Lock(), {}
        for line in path.read_text().splitlines() if path.is_file() else ():
            entry = json.loads(line)
            self.units[entry.pop("key")] = entry

    def add(self, key, took):
        """One more has ended."""
        with self.lock, self.path.open("a") as file:
            self.units[key] = took
            file.write(json.dumps({"key": key, **took}) + "\n")


def machine(jobs):
    """Where it is measured, and how many compile at once."""
    model = re.search(r"^model name\s*: (.+)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    total = re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(total[1]) // 1024,
        "jobs": jobs,
        "host": _said(os.environ.get("CXX", "c++"), "--version").splitlines()[0],
        "system": f"{platform.system()} {platform.release()}",
        "set": sorted(name for name in os.environ if VARIABLES.fullmatch(name)),
    }


def row(module, outcome, link, machine):
    """The line: its key, what came of it, what it took, with what and where."""
    version, asked, nvcc, architecture = module.key
    units = [[one[name] for name in ("unit", "wall_s", "cpu_s", "peak_mib")] for one in module.units]
    failed = module.failed or {}
    text = " ".join(module.plan["commands"])
    return {
        "schema": SCHEMA,
        "flashinfer": version,
        "module": module.plan["name"],
        "asked": asked,
        "nvcc": nvcc,
        "arch": architecture,
        "code": sorted(set(re.findall(r",code=(\w+)", text))),
        "outcome": outcome,
        "error": module.plan["refused"] or failed.get("error", ""),
        "failed_unit": failed.get("unit", ""),
        "linked": bool(link) and not link["status"],
        "link_error": link["error"] if link else "",
        "units": len(module.commands) if module.plan["commands"] else 0,
        "took": sorted(units),  # unit, wall seconds, CPU seconds, MiB of its largest process
        "link_s": link["wall_s"] if link else 0.0,
        "wall_s": round(sum(one["wall_s"] for one in module.units), 2),  # one after the other
        "cpu_s": round(sum(one["cpu_s"] for one in module.units), 2),
        "longest_s": max((one["wall_s"] for one in module.units), default=0.0),
        "peak_mib": max((one["peak_mib"] for one in module.units), default=0),
        "earlier": sum(one["earlier"] for one in module.units),  # units that an earlier call compiled
        "versions": module.versions,
        "machine": machine,
        "at": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
    }


def first_error(said):
    """The first line that says what is wrong, without the folders of this machine."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\b(error|fatal|undefined|cannot find)\b", line)]
    line = (named or lines or ["it said nothing"])[0]
    return re.sub(r"/\S*/(?=[\w.+-]+)", "", line)[:400]


def _said(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
