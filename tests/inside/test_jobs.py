"""When the next module is begun, and with how many jobs."""

import contextlib
import os
import time
from types import SimpleNamespace

from fi_doctor.inside import ninja
from fi_doctor.inside.jobs import Budget, Pool


def work(name, objects):
    return SimpleNamespace(name=name, objects=objects, modules=[SimpleNamespace(name=name)])


def test_a_token_that_lies_about_does_not_begin_the_next_module():
    with contextlib.closing(Pool(Budget(4), has_tokens=True)) as pool:
        first, second = work("first", 40), work("second", 40)
        assert pool.take(first, []) == 1
        time.sleep(0.5)
        assert pool.take(second, [first]) == 0
        first.objects = 4
        assert pool.take(second, [first]) == 0
        first.objects = 3
        assert pool.take(second, [first]) == 1


def test_a_ninja_that_hangs_when_asked_for_its_version_is_no_client_of_a_jobserver(tmp_path, monkeypatch):
    (tmp_path / "ninja").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "ninja").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ninja, "VERSION_S", 0.5)
    begun = time.monotonic()
    assert ninja.ninja_version() == (0,)
    assert time.monotonic() - begun < 5
