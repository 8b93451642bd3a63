"""The stand-in for FlashInfer that the checks of the probes are shown on."""

import importlib
import sys
from pathlib import Path

import pytest

FAKE = Path(__file__).parent / "fake_flashinfer"


@pytest.fixture
def faults(monkeypatch):
    """The stand-in, importable as flashinfer; whatever flashinfer was loaded before comes back afterwards."""
    for name in _loaded():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cpu")
    import flashinfer.faults

    assert Path(flashinfer.__file__).is_relative_to(FAKE)
    yield flashinfer.faults
    for name in _loaded():
        del sys.modules[name]


@pytest.fixture
def fake(faults):
    """The same; some tests have one of their own, which adds to it."""
    return faults


@pytest.fixture
def paged(faults, monkeypatch):
    """paged("decode", "fast_decode_plan"): flashinfer.decode has the one that works on pages, with every cache."""
    import flashinfer._paged

    def paged(module, *names, is_there=True):
        holder = importlib.import_module(f"flashinfer.{module}")
        for name in names:
            monkeypatch.setattr(holder, name, getattr(flashinfer._paged, name), raising=is_there)

    return paged


def _loaded():
    return [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]
