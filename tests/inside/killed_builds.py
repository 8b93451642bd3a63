"""Twenty ninjas that are killed with their commands, one after another, while another one lives; as JSON, what ran.

    python killed_builds.py FOLDER JOBS tokens | dealt

A process of its own, since it adopts orphans. Each command takes down how many run when it begins, itself included: the
one that begins last of those that run at once has seen them all.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from fi_doctor.inside import below, building
from fi_doctor.inside.jobs import Pool
from fi_doctor.inside.modules import Module

KILLED = [f"killed{number}" for number in range(20)]
COMMAND = """touch running/$$
count=0
for one in running/*; do
  if read -r _ _ state _ 2>/dev/null < "/proc/${one##*/}/stat" && [ "$state" != Z ]; then count=$((count + 1)); fi
done
echo "$1 $count" >> counts
if [ "$1" = steady ]; then while ! [ -e released ]; do sleep 0.1; done; else sleep 0.2; fi
rm running/$$
"""


class Lock(contextlib.nullcontext):
    def __init__(self, path, timeout, thread_local):
        super().__init__()


class Watched(building.Building):
    """One that kills ninjas which hold more than their own job, and ends the one that lives when all that is over."""

    def __init__(self, folder, jobs, sizes, kind):
        self.folder = folder
        self.told = {}
        modules = {name: module(folder, name, size) for name, size in sizes.items()}
        job = {"jobs": jobs, "memory_mib": 0}
        order = {"order": list(sizes), "peak_mib": {}, "least_s": {}, "seconds": 100}
        super().__init__(SimpleNamespace(FileLock=Lock), modules, job, order, self.hear)
        self.pool = Pool(self.budget, has_tokens=kind == "tokens")
        self.killer = threading.Thread(target=self.kill, daemon=True)
        self.killer.start()

    def kill(self):
        for name in KILLED:
            while not (found := [run for run, group in list(self.groups.items()) if group.name == name]):
                time.sleep(0.01)
            while len(below.Table().children(found[0].pid)) < 2:  # one of them looks for jobs
                time.sleep(0.01)
            os.kill(found[0].pid, signal.SIGKILL)

    def hear(self, **line):
        if "module" in line:
            self.told[line["module"]] = line["state"]
            if line["module"] == "beside":
                (self.folder / "released").touch()


def module(folder, name, size):
    made = Module(SimpleNamespace(name=name, lock_path=""), [])
    made.objects = size
    made.workdir = str(folder / name)
    made.ninja_file = f"{made.workdir}/build.ninja"
    Path(made.workdir).mkdir()
    lines = [f"rule run\n  command = cd {folder} && sh command.sh {name} # -o $out"]
    lines += [f"build {number}.o: run" for number in range(size)]
    lines += ["rule link\n  command = true # -o $out"]
    lines += [f"build {name}.so: link {' '.join(f'{number}.o' for number in range(size))}"]
    Path(made.ninja_file).write_text("\n".join(lines) + "\n")
    return made


def main(folder, jobs, kind):
    building.TICK_S = 0.05
    (folder / "running").mkdir()
    (folder / "command.sh").write_text(COMMAND)
    sizes = {"steady": 2, **dict.fromkeys(KILLED, 100), "beside": 5 * jobs, "last": 3 * jobs}
    build = Watched(folder, jobs, sizes, kind)
    build.run()
    most = {}
    for line in (folder / "counts").read_text().splitlines():
        name, count = line.split()
        most[name] = max(most.get(name, 0), int(count))
    left = below.Table().children(os.getpid())
    sys.stdout.write(json.dumps({"most": most, "states": build.told, "left": left}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
