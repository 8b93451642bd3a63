"""Whether the one difference that matters is found in simulated fleets, and what merging thousands of reports takes.

    python benchmarks/fleet.py [--seeds 200] [--alike 50] [--scale 100 1000 10000] [--jobs 2]
    python benchmarks/fleet.py --show 19

A fleet is 64 copies of a recorded machine (tests/fleet/simulated.py) that differ by nature: serial numbers, addresses,
free memory, times, names. Each seed puts one to three drifts of real kinds on one to eight nodes each. Counted is a
fleet in which exactly these nodes are odd, each by exactly the facts that tell its drifts, in at most two lines that
name all of them; and of those without a drift one in which no node is odd. Then reports are written to a folder, as
many as --scale says, 3 % of them with drifts, and merged by `fi-doctor fleet` in a process of its own: seconds and the
most memory that it held. Exits 1 when a fleet was not explained exactly, an alike one had an odd node, 10,000 took more
than 60 s of CPU time or 1 GiB, or the CPU time for each report grew by more than half from 1,000 on.
"""

import argparse
import collections
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

SIMULATED = pathlib.Path(__file__).parents[1] / "tests" / "fleet"
MOST_S, MOST_MIB = 60, 1024
sys.path.insert(0, str(SIMULATED))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seeds", type=int, default=200)
    arguments.add_argument("--alike", type=int, default=50)
    arguments.add_argument("--scale", type=int, nargs="*", default=[100, 1000, 10_000])
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--show", type=int, help="only what `fi-doctor fleet` writes of the fleet of this seed")
    asked = arguments.parse_args()
    if asked.show is not None:
        return show(asked.show)
    problems = []
    with concurrent.futures.ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("spawn")) as pool:
        for name, count, drifts in (("with drifts", asked.seeds, None), ("without", asked.alike, 0)):
            start, kinds, missed = time.perf_counter(), collections.Counter(), []
            for seeded, wrong in pool.map(explained, range(count), [drifts] * count):
                kinds.update(seeded)
                missed += wrong
            print(
                f"{count} fleets of 64 nodes {name}: {count - len(missed)} explained exactly; "
                f"{sum(kinds.values())} drifts of {len(kinds)} kinds; {time.perf_counter() - start:.0f} s",
                flush=True,
            )
            problems += missed
    problems += scale(asked.scale)
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


def explained(seed, drifts=None):
    """What was seeded, and in a list what of it was not told exactly."""
    import simulated

    fleet = simulated.fleet(seed, drifts=drifts)
    return fleet.drifts, [
        f"seed {seed}, {', '.join(fleet.drifts)}: {one}" for one in wrong(fleet, merged(fleet.reports))
    ]


def show(seed):
    import simulated

    from fi_doctor.fleet import console

    print(console.render(merged(simulated.fleet(seed).reports)), end="")
    return 0


def merged(reports):
    from fi_doctor.cli import installed
    from fi_doctor.fleet.merging import merge
    from fi_doctor.model import Depth, Request

    kb, specs = installed.known()
    return merge(reports, Request(depth=Depth.STATIC), kb=kb, specs=specs).document


def wrong(fleet, found):
    """The first thing in which what is told is not what was done, in a list; [] where it is told exactly."""
    told, odd = collections.defaultdict(set), set()
    for group in found.groups:
        if group.is_odd:
            odd |= set(group.nodes)
            for drift in group.drifts:
                told[drift.fact] |= set(group.nodes)
    truth = {fact: set(nodes) for fact, nodes in fleet.truth.items()}
    if dict(told) != truth or odd != set().union(*truth.values()):
        return [f"seeded {_brief(truth)}, told {_brief(told)}, odd {sorted(odd)}"]
    if found.splits or found.unread:
        return [f"{found.splits or found.unread}"]
    for group in found.groups:
        text = " ".join(group.said)
        if len(group.said) > 2 or any(len(line) > 80 for line in group.said):
            return [f"more than two lines of 80 columns: {group.said}"]
        if [drift for drift in group.drifts if drift.said.split(maxsplit=1)[0].split("=")[0] not in text]:
            return [f"a difference is not named in {group.said}"]
    return []


def _brief(told):
    return {fact: sorted(nodes) for fact, nodes in told.items()}


def scale(numbers):
    """A line for each number of reports; what is too much, in a list."""
    problems, each = [], {}
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            size = write(pathlib.Path(folder), number)
            command = [sys.executable, "-m", "fi_doctor", "fleet", "--reports", folder, "-f", f"json:{folder}/.fleet"]
            start = time.perf_counter()
            pid = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            line = pid.stderr.read().splitlines()[-1]
            _, status, usage = os.wait4(pid.pid, 0)
            seconds, mib = time.perf_counter() - start, usage.ru_maxrss >> 10
            cpu = usage.ru_utime + usage.ru_stime
            groups = len(json.loads(pathlib.Path(folder, ".fleet").read_text())["groups"])
        each[number] = cpu / number
        print(
            f"{number} reports ({size >> 20} MiB): {seconds:.1f} s ({cpu:.1f} s of CPU), at most "
            f"{mib} MiB, {groups} groups, exit {os.waitstatus_to_exitcode(status)}: {line}",
            flush=True,
        )
        if number >= 10_000 and (cpu > MOST_S or mib > MOST_MIB):  # by the clock counts what others do here, too
            problems.append(f"{number} reports took {cpu:.1f} s of CPU and {mib} MiB")
    large = [number for number in numbers if number >= 1000]
    if len(large) > 1 and each[large[-1]] > 1.5 * each[large[0]]:
        problems.append(f"not linear: {each[large[0]]:.4f} s, then {each[large[-1]]:.4f} s each")
    return problems


def write(folder, number):
    """So many reports, 3 % of them with one to three drifts; their size in bytes."""
    import copy

    import simulated

    chance, size, base = random.Random(number), 0, simulated.base()
    for place in range(number):
        report = copy.deepcopy(base)
        if chance.random() < 0.03:
            for drift in simulated.apart(chance.sample(simulated.DRIFTS, chance.randint(1, 3)), base):
                drift(report["facts"])
        data = json.dumps(simulated.vary(report, chance, f"node-{place}")).encode()
        pathlib.Path(folder, f"node-{place}.json").write_bytes(data)
        size += len(data)
    return size


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
