import functools

import pytest

from fi_doctor.locking import attribution


@pytest.fixture(autouse=True, scope="session")
def _probes_are_parsed_once():
    """A lock reads each probe once; these tests make hundreds of locks of the same probes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attribution, "names_in_probe", functools.cache(attribution.names_in_probe))
        yield
