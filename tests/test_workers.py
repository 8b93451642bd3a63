"""Tasks with a thread each, and without one where the system gives none."""

import threading

import pytest

from fi_doctor.workers import Workers


@pytest.fixture
def refused(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_tasks_wait_for_those_before_them():
    with Workers() as workers:
        gate = threading.Event()
        first = workers.submit(gate.wait, 20)
        second = workers.submit(lambda: first.result() is True and threading.current_thread().name)
        gate.set()
    assert second.done()
    assert second.result() != threading.current_thread().name


@pytest.mark.usefixtures("refused")
def test_without_threads_tasks_are_done_at_once_in_order():
    workers = Workers()
    first = workers.submit(lambda: 1)
    second = workers.submit(lambda more: first.result() + more, more=1)
    assert second.done()
    assert second.result() == 2
    workers.wait()


@pytest.mark.usefixtures("refused")
def test_what_fails_without_a_thread_is_told_by_its_future():
    future = Workers().submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        future.result()


@pytest.mark.usefixtures("refused")
def test_a_signal_ends_a_task_without_a_thread_and_all_after_it():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workers().submit(interrupted)
