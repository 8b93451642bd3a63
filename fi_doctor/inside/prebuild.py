"""Compiles, in the examined interpreter, what many probes will need, in one go: every compile job has work.

    python prebuild.py --channel N

N is a stream socket. The first line in is {"probes": [{"id", "path", "variants", "subset"}], "jobs", "memory_mib" (0
for any), "lock", "parts", "logs": [folders that may hold logs of ninja], "cache": see mirror.py}; each line out is
JSON: {"stage": "importing"}; {"stage": "asking", "probe", "variant"} for each variant; {"stage": "waiting"} and
"looking"; {"taken": {name: {"objects", "slowest_s", "total_s"}}}, what builds took here before; {"modules": {name:
{"objects", "users", "state", "detail", "library", "part_of", "spare", "begun"}}, "raised": [[probe, variant, what its
build() raised]]}; then the line {"order": [name], "least_s": {name: seconds}, "peak_mib": {name: MiB of one job},
"seconds"} is waited for, and {"begun": [name]}, {"module": name, "state", "detail"}, {"done", "total"} and, when a
ninja has ended, {"costs": {name: costs.Cost}, "peak_mib": MiB of all jobs together} follow; at last {"end": true,
"late": whether the time was up}. A forked process has torch and flashinfer imported already.

Which modules a variant needs is learnt from its own build(), with FlashInfer's JitSpec.build_and_load replaced by one
that takes note. How a module is built is FlashInfer's own affair, up to the call of ninja. Since 0.6 each module has a
ninja log in its own folder: one ninja for each, with one pool of jobs. Before, all modules share a log: one ninja for
all of them. (flashinfer.jit.core.build_jit_specs would leave the log where a module's own ninja does not look for it,
and everything would be compiled again.) Standard library, Python >= 3.9.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any


def main(argv: list[str] | None = None) -> int:
    """Learn what is needed, then build it; 0 when all was tried."""
    parser = argparse.ArgumentParser(description="Build what probes need before they run.")
    parser.add_argument("--channel", type=int, required=True)
    channel = parser.parse_args(argv).channel
    name_own_folder()
    from fi_doctor.inside.harness import drop_own_folder

    drop_own_folder()
    if "FI_DOCTOR_CHILD" in os.environ:  # it ends with the thread of fi-doctor that waits for it: PR_SET_PDEATHSIG
        with contextlib.suppress(Exception):
            importlib.import_module("ctypes").CDLL(None).prctl(1, 9)
    os.set_inheritable(channel, False)  # noqa: FBT003 - positional only
    Prebuild(Channel(channel)).run()
    return 0


def name_own_folder() -> None:
    """Make the files beside this one importable under their own names, and nothing else of fi-doctor."""
    for name, folders in (("fi_doctor", []), ("fi_doctor.inside", [str(Path(__file__).absolute().parent)])):
        package = types.ModuleType(name)
        package.__path__ = folders
        sys.modules[name] = package


class Channel:
    """Lines of JSON to and from fi-doctor, from any thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._rest = b""

    def say(self, **line: object) -> None:
        """One line; when nobody listens any more, this process is about to be killed."""
        data = (json.dumps(line, default=str) + "\n").encode("ascii", "backslashreplace")
        with self._lock, contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]

    def hear(self) -> dict[str, Any]:
        """The next line."""
        while b"\n" not in self._rest:
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                sys.exit(0)
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        heard: dict[str, Any] = json.loads(line)
        return heard


class Prebuild:
    """The whole step."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.job = channel.hear()

    def run(self) -> None:
        """Import, ask every probe, see what is stale, and build that in the order that fi-doctor gives."""
        from fi_doctor.inside.asking import Needs
        from fi_doctor.inside.building import Building
        from fi_doctor.inside.harness import held
        from fi_doctor.inside.mirror import look_at
        from fi_doctor.inside.modules import look_at_all, prepare
        from fi_doctor.inside.ninjalog import taken
        from fi_doctor.inside.parts import take_parts

        self.channel.say(stage="importing")
        importlib.import_module("torch")
        importlib.import_module("flashinfer")
        core = importlib.import_module("flashinfer.jit.core")
        needs = Needs(core)
        for probe in self.job["probes"]:
            for variant in probe["variants"]:
                self.channel.say(stage="asking", probe=probe["id"], variant=variant)
                needs.ask(probe["id"], probe["path"], variant)
        self.channel.say(stage="waiting")
        # As a probe does that builds where all modules share a log.
        with held(self.job["lock"]):
            self.channel.say(stage="looking")
            modules = prepare(core, needs.specs, needs.users)
            if self.job["cache"]:
                look_at(modules.values(), Path(self.job["cache"]))
            else:
                look_at_all(modules.values())
            take_parts(modules, self.job["probes"], self.job["parts"])
            parents = {Path(module.workdir).parent for module in modules.values() if module.workdir}
            self.channel.say(taken=taken([*map(Path, self.job["logs"]), *sorted(parents)]))
            self.channel.say(modules={name: module.told() for name, module in modules.items()}, raised=needs.raised)
            is_late = False
            if not self.job["cache"] and any(not module.state for module in modules.values()):
                building = Building(core, modules, self.job, self.channel.hear(), self.channel.say)
                building.run()
                is_late = building.is_late
        self.channel.say(end=True, late=is_late)


if __name__ == "__main__":
    sys.exit(main())
