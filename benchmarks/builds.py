"""What compiling took in checks with an empty JIT cache, beside what nobody could do better, and what it needed.

    python benchmarks/builds.py [REPORT.json ...]

Without arguments: the recordings below tests/machines in which something was compiled and its cost was taken down. The
makespan (from the first compiler to the last) stands beside the two that bound it: the slowest module had there been
jobs for everybody, and all CPU seconds over the jobs. Nothing is run.
"""

import json
import pathlib
import sys

MACHINES = pathlib.Path(__file__).parents[1] / "tests" / "machines"


def main():
    asked = [pathlib.Path(name) for name in sys.argv[1:]] or sorted(MACHINES.glob("*/*.json"))
    for path in asked:
        report = json.loads(path.read_text())
        builds = report.get("builds", {})
        if builds.get("costs"):
            print("\n".join(lines(report, builds)))


def lines(report, builds):
    facts = report["facts"]
    seen, gpus = facts["gpus"]["cuda_order"], facts["gpus"]["gpus"]
    where = f"{len(seen)} x {gpus[0]['name']}" if isinstance(seen, list) and seen else "no GPU"
    makespan, longest = builds["build_seconds"], builds["longest_seconds"]
    shared = builds["cpu_seconds"] / max(1, builds["jobs"])
    rows = [row for row in report["features"] if row["evidence"] in ("verified", "ran")]
    states = list(builds["modules"].values())
    parts = sum(name.rpartition(".")[0] in builds["modules"] for name in builds["modules"])
    version = facts["flashinfer"]["version"]
    asked = report["request"]
    few = f", {' '.join(asked['features'])} only" if asked["features"] else ""
    few += f", --memory {asked['memory_mib'] / 1024:.0f}g" if asked["memory_mib"] else ""
    yield f"{where}, {facts['system']['cpus']} CPUs, FlashInfer {version}, {builds['jobs']} jobs{few}:"
    yield f"  makespan {makespan:.0f} s = {makespan / max(longest, shared):.2f} x max of"
    yield f"    longest module {longest:.0f} s ({builds['longest']})"
    yield f"    {builds['cpu_seconds']:.0f} CPU s / {builds['jobs']} jobs = {shared:.0f} s"
    yield f"  compilers held up to {builds['peak_mib'] / 1024:.1f} GiB of {builds['memory_mib'] / 1024:.1f} GiB"
    yield f"  {states.count('built')} of {len(states)} modules built, {parts} of them parts of a larger one"
    yield f"  whole check {report['seconds']:.0f} s; {len(rows)} of {len(report['features'])} rows ran here"


if __name__ == "__main__":
    main()
