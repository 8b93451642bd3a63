import pieces
import pytest


@pytest.fixture
def place(tmp_path):
    yield from used(pieces.Place(tmp_path))


@pytest.fixture
def action(tmp_path):
    yield from used(pieces.Action(tmp_path))


@pytest.fixture
def pod(tmp_path):
    yield from used(pieces.Pod(tmp_path))


def used(one):
    yield one
    one.kill_all()
