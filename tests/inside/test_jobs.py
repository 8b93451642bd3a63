"""When the next module is begun, and with how many jobs."""

import contextlib
import time
from types import SimpleNamespace

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
