"""What is known, once for all tests of fleets, and reports that are small enough to write by hand."""

import pytest

from fi_doctor import knowing
from fi_doctor.fleet.merging import merge
from fi_doctor.model import Depth, Request


@pytest.fixture(scope="session")
def known():
    return knowing.load(None, None)


@pytest.fixture
def merged(known):
    """merged(reports, **options): the fleet, asked nothing in particular; verdicts as they were written."""
    kb, specs = known

    def merge_them(reports, request=None, **options):
        asked = request or Request(depth=Depth.STATIC)
        return merge(reports, asked, kb=kb, specs=specs, **{"as_recorded": True, **options})

    return merge_them
