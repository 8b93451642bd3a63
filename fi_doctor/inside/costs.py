"""What builds cost, module by module: taken down while ninjas run and from the log that they leave.

Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from fi_doctor.inside import below, ninjalog
from fi_doctor.inside.looks import LOOK
from fi_doctor.inside.ninja import Run


class Cost(NamedTuple):
    """Of one module."""

    seconds: float  # from the beginning of its first command to the end of its last
    cpu_seconds: float  # of its ninja and all that it ran; where modules share a ninja, by how long their objects took
    objects: int  # that were compiled
    least_seconds: float  # what it takes with jobs for everybody: its slowest object and its link
    peak_job_mib: int  # the most that one command held at a time


class Costs:
    """For some ninjas, from several threads."""

    def __init__(self) -> None:
        self.peak_mib = 0  # of all commands together
        self._runs: dict[Run, dict[str, ninjalog.Entry]] = {}  # with the log as it was before
        self._job_mib: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, run: Run) -> None:
        """A ninja has been started."""
        with self._lock:
            self._runs[run] = ninjalog.read(run.workdir)

    def end(self, run: Run) -> dict[str, Cost]:
        """What it cost, once it has ended."""
        with self._lock:
            before = self._runs.pop(run, {})
        now = ninjalog.read(run.workdir)
        new = {output: entry for output, entry in now.items() if before.get(output) != entry}
        modules = ninjalog.by_module(new, run.workdir)
        if len(run.modules) == 1:  # whatever its outputs are called, they are its own
            modules = {run.modules[0].name: new}
        worked = {name: sum(entry.seconds for entry in outputs.values()) for name, outputs in modules.items()}
        whole = sum(worked.values())
        return {
            name: self._cost(name, run, outputs, worked[name] / whole if whole else 1.0 / len(modules))
            for name, outputs in modules.items()
        }

    def stop(self) -> None:
        """Interrupt all ninjas that run."""
        with self._lock:
            for run in self._runs:
                run.stop()

    def sample(self, table: below.Table) -> dict[Run, int]:
        """Take down what all compilers hold now; how many each ninja runs."""
        with self._lock:
            runs = list(self._runs)
        total = 0.0
        running = dict.fromkeys(runs, 0)
        for run in runs:
            for job in table.children(run.pid):
                command = below.command(job)
                if LOOK in command:
                    continue
                running[run] += 1
                memory = table.memory_mib(job)
                name = run.module_of(command)
                self._job_mib[name] = max(self._job_mib.get(name, 0.0), memory)
                total += memory
        self.peak_mib = max(self.peak_mib, round(total))
        return running

    def _cost(self, name: str, run: Run, outputs: dict[str, ninjalog.Entry], share: float) -> Cost:
        objects = [entry.seconds for output, entry in outputs.items() if output.endswith(".o")]
        others = [entry.seconds for output, entry in outputs.items() if not output.endswith(".o")]
        wall_s = time.monotonic() - run.begun_at
        if len(run.modules) > 1:
            ends = [entry.end_ms for entry in outputs.values()]
            wall_s = (max(ends) - min(entry.start_ms for entry in outputs.values())) / 1000
        own = name if any(module.name == name for module in run.modules) else ""  # what several share
        return Cost(
            seconds=round(wall_s, 2),
            cpu_seconds=round(run.cpu_s * share, 2),
            objects=len(objects),
            least_seconds=round(max(objects, default=0.0) + max(others, default=0.0), 2),
            peak_job_mib=round(self._job_mib.get(own, 0.0)),
        )
