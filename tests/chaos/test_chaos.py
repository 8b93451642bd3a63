"""Each fault of the table, tried: every other row is right, the faulty one is named, nothing is left, in time."""

from __future__ import annotations

import pathlib
import tempfile

import faults
import machine
import pytest


@pytest.fixture(scope="module")
def place():
    """A folder that other users reach, too."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def server(place):
    started = machine.Server(place / "server")
    yield started
    started.close()


@pytest.mark.parametrize("fault", [one for one in faults.ALL if not one.is_slow], ids=lambda one: one.name)
def test_it_is_survived(fault, server, place):
    if reason := fault.needs():
        pytest.skip(reason)
    assert machine.tried(fault, machine.Machine(place / str(faults.ALL.index(fault)), server)) == []
