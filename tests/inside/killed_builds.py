"""Twenty ninjas that are killed while their commands run: how many commands ran at once, before and afterwards.

    python killed_builds.py FOLDER JOBS

A process of its own, since it adopts orphans. Each command takes down how many run when it begins, itself included.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fi_doctor.inside import below
from fi_doctor.inside.jobs import Budget, Pool
from fi_doctor.inside.ninja import Run

COMMAND = """folder=$1; phase=$(cat "$folder/phase"); touch "$folder/running/$$"
count=0; for one in "$folder"/running/*; do kill -0 "${one##*/}" 2>/dev/null && count=$((count + 1)); done
echo "$phase $count" >> "$folder/counts"; sleep "$2"; rm "$folder/running/$$"
"""


class Module:
    def __init__(self, folder, name, commands, seconds):
        self.name, self.objects = name, 1
        self.modules = [self]
        self.workdir = str(folder / name)
        self.ninja_file = f"{self.workdir}/build.ninja"
        Path(self.workdir).mkdir()
        lines = [f"rule run\n  command = sh {folder}/command.sh {folder} {seconds} # -o $out"]
        lines += [f"build {number}.o: run" for number in range(commands)]
        Path(self.ninja_file).write_text("\n".join(lines) + "\n")


class Builds:
    def __init__(self, folder, jobs):
        self.folder, self.pool = folder, Pool(Budget(jobs))
        self.lock, self.active = threading.Lock(), {}
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            time.sleep(0.1)
            with self.lock:
                table, ninjas = below.Table(), {run.pid for run, _ in self.active.values()}
                self.pool.restore(sum(len(table.children(pid)) for pid in ninjas) + table.orphans(ninjas))

    def begin(self, module):
        while True:
            with self.lock:
                share = self.pool.take(module, list(self.active))
                if share:
                    self.active[module] = (Run([module], self.pool.options(share), self.pool.variables()), share)
                    return
            self.pool.wait(0.05)

    def kill_when_it_has_tokens(self, module):
        run, _ = self.active[module]
        while len(below.Table().children(run.pid)) < 2:
            time.sleep(0.01)
        os.kill(run.pid, signal.SIGKILL)
        self.end(module)
        return run.signal

    def end(self, module):
        run, share = self.active[module]
        run.wait()
        with self.lock:
            del self.active[module]
            self.pool.give_back(share, list(self.active))

    def phase(self, name):
        (self.folder / "phase").write_text(name)


def main(folder, jobs):
    (folder / "running").mkdir()
    (folder / "command.sh").write_text(COMMAND)
    below.adopt_orphans()
    builds = Builds(folder, jobs)
    builds.phase("kills")
    signals = []
    for number in range(10):
        victim = Module(folder, f"alone{number}", 8, 0.3)
        builds.begin(victim)
        signals.append(builds.kill_when_it_has_tokens(victim))
    builds.phase("after-alone")
    builds.begin(after := Module(folder, "after", 3 * jobs, 0.3))
    builds.end(after)
    builds.phase("kills")
    builds.begin(steady := Module(folder, "steady", 400, 0.2))
    for number in range(10):
        victim = Module(folder, f"beside{number}", 8, 0.5)
        builds.begin(victim)
        signals.append(builds.kill_when_it_has_tokens(victim))
    time.sleep(1.5)  # some looks at the pool
    builds.phase("after-beside")
    time.sleep(2)
    builds.active[steady][0].stop()
    builds.end(steady)
    most = {}
    for line in (folder / "counts").read_text().splitlines():
        phase, count = line.split()
        most[phase] = max(most.get(phase, 0), int(count))
    left = list(below.Table().children(os.getpid()))
    sys.stdout.write(json.dumps({"most": most, "killed": signals.count(signal.SIGKILL), "left": left}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
