"""The stand-in for FlashInfer that the checks of the probes are shown on."""

import importlib
import os
import sys
from pathlib import Path

import loading
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


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """What the ranks are started with; sets the fault of the calls from now on."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("FI_DOCTOR_PROBE_DEVICE", "cpu")
    monkeypatch.setenv("FI_DOCTOR_SCRATCH", str(tmp_path))  # where what a killed one leaves is removed by pytest
    monkeypatch.setenv("FI_DOCTOR_FAKE_FAULT", str(tmp_path / "fault"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    set_fault = (tmp_path / "fault").write_text
    set_fault("")
    return set_fault


@pytest.fixture(params=["forked"])
def started(request, monkeypatch):
    """How the ranks are started; for forked ones, this process becomes like the harness."""
    if request.param == "forked":
        monkeypatch.syspath_prepend(FAKE)
        for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
            monkeypatch.delitem(sys.modules, name)
        before = set(sys.modules)
        importlib.import_module("torch").set_num_threads(1)  # a pool of threads would be missed in the fork
        importlib.import_module("flashinfer.comm")
        # A test before may have asked for GPUs, after which torch with CUDA distrusts each fork; the ranks use the CPU.
        monkeypatch.setattr(sys.modules["torch"].cuda, "_is_in_bad_fork", lambda: False)
    yield request.param
    if request.param == "forked":
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "flashinfer":
                del sys.modules[name]


@pytest.fixture
def probe(request, surroundings, started, monkeypatch):
    """The probe that the test's module names, with smaller tensors; its ranks, if it has started any, are ended."""
    module = loading.load(request.module.NAME)
    monkeypatch.setattr(module, "_threads", lambda: 1)  # other tests may have left some, which do not matter to these
    if started == "fresh":
        monkeypatch.setattr(module, "_cuda_used", lambda: "as the test wants it")
    for name in ("CALLS", "GRAPH_CALLS", "LOADED_CALLS"):
        calls = tuple((min(tokens, 150), hidden // 8, form) for tokens, hidden, form in getattr(module, name))
        setattr(module, name, calls)
    module.INCOMPLETE_WARP, module.LOADED = 360, 12
    limits = {"90": {"2": 0.25, "4": 0.25}}, {"90": {"2": 0.125, "4": 0.25}}, "a table"
    monkeypatch.setattr(module, "_limits", lambda: limits)
    yield module
    if module._ranks.cache_info().currsize:
        module._end_ranks()
