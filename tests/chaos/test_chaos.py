"""Each fault of the table, tried: every other row is right, the faulty one is named, nothing is left, in time."""

from __future__ import annotations

import faults
import machine
import pytest


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = machine.Server(tmp_path_factory.mktemp("server"))
    yield started
    started.close()


@pytest.mark.parametrize("fault", [one for one in faults.ALL if not one.is_slow], ids=lambda one: one.name)
def test_it_is_survived(fault, server, tmp_path):
    if reason := fault.needs():
        pytest.skip(reason)
    assert machine.tried(fault, machine.Machine(tmp_path / "machine", server)) == []
