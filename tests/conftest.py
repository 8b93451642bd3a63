"""Golden files (`pytest --update-golden` writes them, and the diff is then read), and unpacked FlashInfer wheels."""

import functools
import gc
import os
import pathlib
import sysconfig

import flashinfer_wheels
import pytest

from fi_doctor import knowledge, processes
from fi_doctor.probing import catalog

# The ninja that is installed with the tests, which knows pools of jobs, goes before another one.
os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])

# What is collected stays to the end: the collector would look through it again and again, a third of the time.
gc.disable()


def _shipped_once(load):
    """knowledge.load, which reads once what ships: a hundred modules and tests ask for it, and it is frozen."""
    shipped, place = functools.cache(load), knowledge.SHIPPED

    def loaded(folder=None, **named):
        is_shipped = folder is None and not named and place == knowledge.SHIPPED
        return shipped() if is_shipped else load(folder, **named)

    return loaded


knowledge.load = _shipped_once(knowledge.load)
catalog.parse = functools.cache(catalog.parse)  # each probe once

GOLDEN = pathlib.Path(__file__).parent / "reports" / "golden"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_collection_finish(session):
    gc.freeze()
    gc.enable()


@pytest.fixture
def golden(request):
    """golden("all-good.console", text): the text is what reports/golden/all-good.console.txt holds, to the byte."""

    def compare(name, text):
        path = GOLDEN / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        assert path.is_file(), f"no golden file {path}: pytest --update-golden writes it"
        assert text == path.read_bytes().decode("utf-8"), path.name

    return compare


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """unpacked("0.5.3"): the folder flashinfer/ of that version, as Python files without data."""
    return flashinfer_wheels.Unpacked(tmp_path_factory.mktemp("wheels"))


@pytest.fixture
def children():
    """children(): our children, without those that other tests keep beside them, as tests/cli keeps one."""
    before = set(processes.children())
    return lambda: [pid for pid in processes.children() if pid not in before]


@pytest.fixture(autouse=True)
def _alone():
    """A program that calls fi_doctor may have children of its own, which is kept for good: but not for other tests."""
    before = processes.HOUSEHOLD.has_others
    yield
    processes.HOUSEHOLD.has_others = before
