"""The command is forked as in tests/cli."""

import pathlib
import sys
import tempfile

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))


@pytest.fixture(scope="module")
def place():
    """A folder that other users reach, too."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder)


@pytest.fixture(scope="module")
def server(place):
    import machine

    started = machine.Server(place / "server")
    yield started
    started.close()
