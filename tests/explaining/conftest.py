"""What a command makes once of the faults that ship, and these tests would make for every log."""

import copy
import functools

import pytest

from fi_doctor.explaining import stream
from fi_doctor.knowledge import faults


@pytest.fixture(autouse=True, scope="session")
def _shipped_faults_are_read_once():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("literals", "settings"):
            patch.setattr(faults, name, _once(getattr(faults, name)))
        patch.setattr(faults, "load", _each_once(faults.load))
        patch.setattr(stream, "Literals", _literals(stream.Literals))
        yield


def _once(read):
    shipped = functools.cache(lambda: read())  # noqa: PLW0108 - without its argument
    return lambda folder=faults.FOLDER: shipped() if folder == faults.FOLDER else read(folder)


def _each_once(load):
    shipped = functools.cache(lambda path: load([path]))

    def loaded(paths, folder=faults.FOLDER, **name):
        if folder != faults.FOLDER:
            return load(paths, folder, **name)
        return tuple(sorted((one for path in set(paths) for one in shipped(path)), key=lambda fault: fault.id))

    return loaded


def _literals(made):
    @functools.cache
    def compiled(literals):
        one = made(literals)
        for literal in one._literals[:1]:
            one.among(literal)  # compiles what is left for the first hit
        return one

    return lambda literals: copy.copy(compiled(frozenset(literals)))
