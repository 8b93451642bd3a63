"""However slowly drivers and ranks answer, a communication probe comes back within its own limit: on a false clock."""

import io
import subprocess
import sys
import unittest
from contextlib import contextmanager
from types import SimpleNamespace

import loading
import pytest

MARGIN_S = 5.0  # for the harness, and for what takes time beside waiting


class Clock:
    """Time that goes on only where somebody waits."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Silent:
    """A process that never answers and, killed, never goes away."""

    def __init__(self, clock):
        self.clock, self.pid = clock, 0
        self.stdin, self.stdout = io.BytesIO(), io.BytesIO()

    def poll(self):
        return None

    def kill(self):
        pass

    def send_signal(self, number):
        pass

    def wait(self, timeout):
        """Without a limit it would wait for ever, which the missing argument says."""
        self.clock.sleep(timeout)
        raise subprocess.TimeoutExpired("silent", timeout)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ranks(clock, monkeypatch, tmp_path):
    """A probe whose ranks never answer."""

    def load(name):
        probe = loading.load(name)
        monkeypatch.setenv("FI_DOCTOR_SCRATCH", str(tmp_path))
        monkeypatch.setattr(probe, "time", clock)
        monkeypatch.setattr(probe, "subprocess", _processes(clock))
        return probe

    return load


def _processes(clock):
    words = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "TimeoutExpired")}
    return SimpleNamespace(**words, Popen=lambda *_, **__: Silent(clock))


def assert_in_time(probe, clock):
    assert clock.now > 0.5 * probe.PROBE["timeout_s"]  # it did wait
    assert clock.now <= probe.PROBE["timeout_s"] - MARGIN_S


def test_every_communication_probe_is_here():
    names = {path.stem for path in loading.PROBES.glob("comm_*.py")}
    assert names == {"comm_all2all", "comm_allreduce", "comm_allreduce_fusion", "comm_peer_transfer"}


def test_all2all_comes_back_before_its_time_is_up(ranks, clock):
    probe = ranks("comm_all2all")
    with pytest.raises(RuntimeError, match="did not come back from 'starting' within 85 s"):
        probe.run("two_sided_bf16")
    assert_in_time(probe, clock)


@pytest.mark.parametrize("name", ["comm_all2all", "comm_allreduce", "comm_allreduce_fusion"])
def test_gpus_that_ranks_of_another_probe_use_are_not_waited_for_without_end(monkeypatch, tmp_path, name):
    probe = loading.load(name)
    monkeypatch.setenv("FI_DOCTOR_SCRATCH", str(tmp_path))
    monkeypatch.setattr(probe, "TURN_S", 0.2)
    with probe._turn():
        pass
    held = "import fcntl, sys; f = open(sys.argv[1], 'ab'); fcntl.lockf(f, fcntl.LOCK_EX); print(); input()"
    words = [sys.executable, "-c", held, str(tmp_path / "turn.lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(unittest.SkipTest, match=r"another probe used these GPUs for 0\.2 s$"), probe._turn():
            pass
        other.communicate(b"\n")
    with probe._turn():
        pass


@pytest.mark.parametrize("name", ["comm_allreduce", "comm_allreduce_fusion"])
def test_allreduce_comes_back_before_its_time_is_up_also_where_forked_and_fresh_ranks_hang(
    ranks, clock, monkeypatch, name
):
    probe = ranks(name)

    @contextmanager
    def forking():
        clock.sleep(0 if probe._FRESH else probe.REHEARSAL_S)
        yield next(iter(probe._FRESH), "")

    monkeypatch.setattr(probe, "_FRESH", [])
    monkeypatch.setattr(probe, "_forking", forking)
    monkeypatch.setattr(probe._Ranks, "_fork", lambda *_: Silent(clock))
    with pytest.raises(RuntimeError, match="did not come back from 'starting' within"):
        probe.run("oneshot_bf16")
    assert_in_time(probe, clock)


@pytest.mark.parametrize("answered", [(), ("report",), ("report", "start")], ids=len)
@pytest.mark.parametrize("variant", ["peer_copy", "ipc"])
def test_peer_transfer_comes_back_before_its_time_is_up(ranks, clock, monkeypatch, variant, answered):
    """Each of the first answers comes at the last moment, and then none."""
    probe = ranks("comm_peer_transfer")
    gpus = ["a GPU"] * 8
    all_yes = [[one != other for other in range(8)] for one in range(8)]
    said = {"names": gpus, "access": all_yes, "atomics": all_yes, "no_kernel": "", "handles": {"in": "", "out": ""}}
    tell = probe._Worker.tell

    def told(worker, step, **words):
        worker.asked = step
        tell(worker, step, **words)

    def late(worker, limit_s, doing):
        clock.sleep(limit_s)
        if worker.asked in answered:
            return said
        raise probe._FailedError("stalls", f"{doing}: hangs: nothing came back within {limit_s:g} s")

    monkeypatch.setattr(probe._Worker, "tell", told)
    monkeypatch.setattr(probe._Worker, "answer", late)
    monkeypatch.setattr(probe, "json", SimpleNamespace(dumps=lambda _: "{}"))
    with pytest.raises((RuntimeError, unittest.SkipTest)):
        probe.run(variant)
    assert clock.now <= probe.PROBE["timeout_s"] - MARGIN_S
