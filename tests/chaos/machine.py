"""The real command beside faulty probes: what came of it, and what it left behind.

A machine is a folder with a home, a temporary folder and a site folder in which fake probes are installed beside
fi-doctor. Each fault is tried on one, and everything about it is looked at: see complaints.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from typing import NamedTuple

import cli_command
import forking
from waiting import wait_for

TESTS = pathlib.Path(__file__).parents[1]
PROBES = (*sorted((TESTS / "chaos/probes").glob("*.py")), *sorted((TESTS / "fake_probes").glob("*.py")))
SOUND = {"fake.returned": "works", "fake.stdin": "works"}  # rows that no fault may touch
BUDGET_S = 20.0
READING_S = 10.0  # for what is no part of the budget: facts, and the report
GOING_S = 10.0  # for processes that were killed
KEPT = ".cache/fi-doctor"  # what fi-doctor remembers on purpose
_SET_SUBREAPER = 36  # prctl(2)


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float


class Complaint(NamedTuple):
    """What a fault touched that it should not have."""

    kind: str  # rows, named, code, orphans, files, seconds
    words: str
    amount: float = 1


def install(folder, probes=PROBES):
    """A site folder with fi-doctor and these probes."""
    info = folder / "chaos_kernels-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "fi_doctor").symlink_to(cli_command.ROOT / "fi_doctor")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chaos-kernels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fi_doctor.probes]\nkernels = chaos_kernels\n")
    (folder / "chaos_kernels").mkdir()
    (folder / "chaos_kernels/__init__.py").touch()
    for path in probes:
        shutil.copy(path, folder / "chaos_kernels")
    return folder


class Server:
    """What forks the command with the fake probes installed, for all faults that need no start of their own."""

    def __init__(self, folder):
        self.site = install(folder / "site")
        self.forked = forking.Forked(cli_command.environment(home=folder, PYTHONPATH=self.site))

    def close(self):
        self.forked.close()


class Machine:
    """One fault is tried on it."""

    def __init__(self, folder, server):
        self.folder, self.site = folder, server.site
        self.home, self.tmp = folder / "home", folder / "tmp"
        for made in (self.home, self.tmp):
            made.mkdir(parents=True)
        self._forked = server.forked

    def environ(self, **changes):
        settings = {"PYTHONPATH": self.site, "TMPDIR": self.tmp, "THIS_TEST": self.folder, "CHAOS_BEGUN": self.begun}
        return cli_command.environment(home=self.home, **{**settings, **changes})

    @property
    def begun(self):
        """A probe makes this file once it runs."""
        return self.folder / "begun"

    def words(self, *features, budget=f"{BUDGET_S:g}s", options=()):
        rows = [word for name in (*SOUND, *features) for word in ("--feature", name)]
        return ["check", *rows, "--depth", "run", "--format", "json", "--jobs", "2", "--budget", budget, *options]

    def argv(self, *features, **options):
        return [sys.executable, "-m", "fi_doctor", *self.words(*features, **options)]

    def at_once(self, count, *features, **changes):
        """So many commands of this machine at the same time, each a whole process: what each gave."""
        begun = time.monotonic()
        children = [
            subprocess.Popen(
                self.argv(*features, budget="10m"),
                env=self.environ(**changes),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            said = list(pool.map(subprocess.Popen.communicate, children))
        seconds = time.monotonic() - begun
        return [Done(one.returncode, *text, seconds) for one, text in zip(children, said, strict=True)]

    def check(self, *features, budget=f"{BUDGET_S:g}s", options=(), **changes):
        """Run it to its end without the start of an interpreter."""
        begun = time.monotonic()
        done = self._forked(
            self.words(*features, budget=budget, options=options), self.environ(**changes), str(self.folder), ""
        )
        return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)

    def processes(self):
        return cli_command.processes_with(f"THIS_TEST={self.folder}")

    def left(self):
        """Files below the temporary folder and the home that are not meant to be there."""
        below = [path for top in (self.tmp, self.home) for path in top.rglob("*") if path.is_file()]
        return [path for path in below if not path.is_relative_to(self.home / KEPT)]


@contextlib.contextmanager
def adopting():
    """Orphans of commands become ours, whatever they did to their environment; gives who they are."""
    known = set(own_children())
    ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0)

    def strays():
        found = set(own_children()) - known
        for pid in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        return set(own_children()) - known

    try:
        yield strays
    finally:
        ctypes.CDLL(None).prctl(_SET_SUBREAPER, 0, 0, 0, 0)
        for pid in strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def own_children():
    found = []
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def tried(fault, machine):
    """The command under this fault, and all that there is to complain about."""
    with adopting() as strays:
        done = fault.run(machine)
        wait_for(lambda: not strays() and not machine.processes(), seconds=GOING_S)
        orphans = strays() | set(machine.processes())
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    found = [*_of_rows(fault, done), *_of_code(fault, done)]
    found += [Complaint("orphans", f"process {pid} is left") for pid in orphans]
    found += [Complaint("files", f"{path} is left") for path in machine.left()]
    if (over := done.seconds - fault.budget_s - READING_S) > 0:
        found.append(Complaint("seconds", f"took {done.seconds:.1f} s", over))
    return found


def _of_code(fault, done):
    if done.code != fault.code:
        yield Complaint("code", f"exit {done.code} in place of {fault.code}: {done.err[-600:]}")
    if "Traceback" in done.err:
        yield Complaint("code", f"a traceback: {done.err[-600:]}")


def _of_rows(fault, done):
    """Whether the report has the rows that it should, each as it should be; without one, whether nothing was said."""
    if fault.says not in done.out + done.err:
        yield Complaint("named", f"{fault.says!r} is not said: {done.err[-600:]}")
    if fault.rows is None:
        if done.out:
            yield Complaint("rows", f"stdout holds {done.out[:200]!r}")
        return
    try:
        rows = {row["feature"]: row for row in json.loads(done.out)["features"]}
    except ValueError:
        yield Complaint("rows", f"no report: {done.out[:200]!r} {done.err[-600:]}")
        return
    expected = {**{name: (verdict, "") for name, verdict in SOUND.items()}, **fault.rows}
    for name in rows.keys() - expected.keys():
        yield Complaint("rows", f"{name} was not asked for")
    for name, (verdict, why) in expected.items():
        found = rows.get(name, {"verdict": "no row", "why": ""})
        if found["verdict"] != verdict:
            yield Complaint("rows", f"{name} is {found['verdict']} in place of {verdict}: {found['why']}")
        if why not in found["why"]:
            yield Complaint("named", f"{name}: {found['why']!r} does not say {why!r}")


def counted(complaints):
    """Amounts by kind."""
    total = Counter()
    for one in complaints:
        total[one.kind] += one.amount
    return total
