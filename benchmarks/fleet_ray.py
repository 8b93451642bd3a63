"""What `fi-doctor fleet` costs on a Ray cluster, and what a busy cluster and a dead node do to it: local raylets.

    python benchmarks/fleet_ray.py [overhead] [busy] [killed] [collectives] [gpus] [shared]

Each raylet is a node of its own with one GPU that is only said to be there (num_gpus=1). NCCL runs with `gpus`, which
needs two real ones, and with `shared`, which needs one; these two are run only where they are named. Ray has to be
installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fi_doctor.cluster import collectives, connecting
from fi_doctor.cluster.ray_grid import RayGrid
from fi_doctor.cluster.rounds import Answer, Ask, Rounds

SETTLE_S = 10.0  # what Ray starts beside each raylet takes the CPUs for some seconds; no cluster in use is that young


class Killing(RayGrid):
    """A cluster of which one node dies once all orders are given."""

    victim = None

    def wait(self, timeout_s):
        """As it does, once the node is dead."""
        if self.victim is not None:
            time.sleep(0.7)
            self.victim()
            self.victim = None
        return super().wait(timeout_s)


def say(text):
    """A line to the stdout of the process: while a cluster is entered, sys.stdout takes what Ray prints."""
    print(text, file=sys.__stdout__, flush=True)


def said(number, gpus):
    """Nothing real."""
    del number, gpus
    return {}


def apart(number, gpus):
    """Each raylet has real GPUs of its own."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in range(number * gpus, number * gpus + gpus))}


def alike(number, gpus):
    """All have the first GPU: NCCL refuses two ranks on one GPU of one host, so it takes each raylet for another."""
    del gpus
    return {"CUDA_VISIBLE_DEVICES": "0", "NCCL_HOSTID": f"raylet-{number}"}


@contextlib.contextmanager
def cluster(nodes, gpus=1, variables=said):
    head = {"num_cpus": 1, "num_gpus": gpus, "include_dashboard": False, "env_vars": variables(0, gpus)}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for number in range(1, nodes):
            made.add_node(num_cpus=1, num_gpus=gpus, node_name=f"node-{number}", env_vars=variables(number, gpus))
        made.wait_for_nodes()
        time.sleep(SETTLE_S)
        yield made
    finally:
        made.shutdown()


@contextlib.contextmanager
def grid(made, kind=RayGrid):
    """The cluster as `fi-doctor fleet` enters it; every raylet has what is installed here."""
    with connecting.connected(made.address) as entered:
        yield kind(entered)


@contextlib.contextmanager
def lacking(made):
    """The same, with a fi-doctor that no node has: it is shipped."""
    with grid(made) as one:
        one.wanted = "another"
        yield one


def rounds(one, **asked):
    """The answers, what was said, and the rounds themselves."""
    said: list[str] = []
    made = Rounds(one, Ask(words=(), **asked), said.append)
    return list(made.answers()), said, made


def is_report(answer: Answer) -> bool:
    return isinstance(answer.found, bytes)


def overhead() -> None:
    """With what is installed here and so on every raylet, and with it shipped."""
    with cluster(2) as made:
        runs = [("shipped, for the first time", lacking), *[("shipped", lacking)] * 2, *[("found installed", grid)] * 3]
        for run, enter in runs:
            begun = time.monotonic()
            with enter(made) as one:
                answers, _, _ = rounds(one)
            took, slowest = time.monotonic() - begun, max(answer.seconds for answer in answers)
            bare = nothing(made)
            say(
                f"2 raylets, {run}: {sum(map(is_report, answers))} of 2 answered, {took:.1f} s in all, slowest check "
                f"{slowest:.1f} s, {took - slowest:.1f} s beside it; a job of Ray that does nothing on each node: "
                f"{bare:.1f} s (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs)"
            )


def nothing(made) -> float:
    """Seconds that a driver takes for one task on each node that does nothing: all of it is Ray's."""
    begun = time.monotonic()
    with connecting.connected(made.address) as entered:
        task = entered.remote(lambda: None)
        where = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in entered.nodes()]
        entered.get([task.options(num_cpus=0, scheduling_strategy=one).remote() for one in where])
    return time.monotonic() - begun


def busy() -> None:
    with cluster(8) as made, grid(made) as one:
        nodes = one.nodes()
        holders = [ray.remote(_Holder).options(num_cpus=1, num_gpus=1).remote() for _ in nodes]
        ray.get([holder.ready.remote() for holder in holders])
        left = {name: value for name, value in ray.available_resources().items() if name in ("CPU", "GPU")}
        begun = time.monotonic()
        answers, _, _ = rounds(one)
        took = time.monotonic() - begun
        say(
            f"8 raylets, every CPU and GPU taken (free: {left or 'none'}): {sum(map(is_report, answers))} of "
            f"{len(nodes)} answered in {took:.1f} s, slowest check {max(answer.seconds for answer in answers):.1f} s"
        )
        answers, said, made_rounds = rounds(one, depth="build", wait_s=3)
        waits = [note for note in made_rounds.notes if "no GPU came free" in note]
        say(
            f"8 raylets, asked for a GPU that is not free: {len(waits)} named as waiting, "
            f"{sum(map(is_report, answers))} answered from what is read"
        )
        for line in (*said[:1], *waits[:1]):
            say(f"    {line}")


def killed() -> None:
    with cluster(3) as made, grid(made, Killing) as one:
        lost = next(node.id for node in one.nodes() if node.name == "node-2")
        victim = next(node for node in made.worker_nodes if node.node_id == lost)
        one.victim = lambda: made.remove_node(victim, allow_graceful=False)
        answers, _, _ = rounds(one)
        for answer in sorted(answers, key=lambda answer: answer.name):
            words = "a report" if is_report(answer) else answer.found.what
            say(f"3 raylets, node-2 killed in the middle: {answer.name}: {words}")


def together() -> None:
    """Collectives over gloo, all well; then with one rank that is stopped, as a rank that hangs."""
    with cluster(2, gpus=2) as made, grid(made) as one:
        for stopped in (None, 3):
            _collectives(one, tp=2, pp=2, stopped=stopped, thread="gloo")


def on_gpus() -> None:
    """The same over NCCL, within a node of two GPUs and across two nodes of one."""
    with cluster(1, gpus=2, variables=apart) as made, grid(made) as one:
        for stopped in (None, 1, None):  # the last: what was stopped has left the GPUs usable
            _collectives(one, tp=2, pp=1, stopped=stopped, thread="pt_nccl")
    with cluster(2, gpus=1, variables=apart) as made, grid(made) as one:
        _collectives(one, tp=1, pp=2, stopped=None, thread="pt_nccl")


def sharing() -> None:
    """The same over NCCL's sockets, with one GPU for two nodes."""
    with cluster(2, gpus=1, variables=alike) as made, grid(made) as one:
        for stopped in (None, 1, None):
            _collectives(one, tp=1, pp=2, stopped=stopped, thread="pt_nccl")


def _collectives(one, *, tp, pp, stopped, thread) -> None:
    if stopped is not None:
        threading.Thread(target=_stop_rank, args=(stopped, thread), daemon=True).start()
    begun = time.monotonic()
    done = collectives.run(one, collectives.Asked(tp=tp, pp=pp, step_s=15), [].append)
    took = time.monotonic() - begun
    say(f"{len(one.nodes())} raylets, --tp {tp} --pp {pp}, {tp * pp} ranks: {done.reason}, {took:.0f} s")
    for place in done.places if thread == "pt_nccl" else ():
        say(f"    rank {place.rank} on {place.node}, {place.gpu}: {place.ended or 'came to its end'}")
    for row in [row for row in done.rows if row.verdict.is_failure or row.backend == "nccl"]:
        way = f" over {', '.join(row.transports)}" if row.transports else ""
        say(f"    {row.backend} {row.kind} {row.operation}{way}: {row.verdict} ({row.evidence}): {row.why}")
        if thread != "pt_nccl":
            break


def _stop_rank(number, thread) -> None:
    """SIGSTOP once the backend has a thread of that name there: the rank then is in the midst of it all."""
    while True:
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                is_rank = entry.name.isdigit() and b"rank.py" in words and f'{{"rank": {number},'.encode() in words
                if is_rank and any(thread in one.read_text() for one in entry.glob("task/*/comm")):
                    os.kill(int(entry.name), signal.SIGSTOP)
                    say(f"    rank {number} is stopped")
                    return
        time.sleep(0.01)


class _Holder:
    """Somebody's model: it keeps what it has."""

    def ready(self) -> bool:
        return True


if __name__ == "__main__":
    parts = {"overhead": overhead, "busy": busy, "killed": killed, "collectives": together}
    for name, part in {**parts, "gpus": on_gpus, "shared": sharing}.items():
        if name in (sys.argv[1:] or parts):
            part()
