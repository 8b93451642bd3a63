"""Libraries that are named are loaded as they are; all else is built as FlashInfer would, with the folder held."""

import contextlib
import sys
import types
from pathlib import Path

import pytest

from fi_doctor.inside import using


class Spec:
    """Stands for FlashInfer's JitSpec."""

    def __init__(self, name):
        self.name = name

    def load(self, so_path):
        return f"loaded {so_path!r}"

    def build_and_load(self):
        return f"built {self.name}"


class Other(Spec):
    """A kind of its own, as FlashInfer has since 0.7."""

    def build_and_load(self):
        return f"built {self.name} otherwise"


@pytest.fixture
def core(monkeypatch):
    """flashinfer.jit.core with those classes, which are as before afterwards."""
    module = types.ModuleType("flashinfer.jit.core")
    module.JitSpec = Spec
    for name in ("flashinfer", "flashinfer.jit"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "flashinfer.jit.core", module)
    for kind in (Spec, Other):
        monkeypatch.setattr(kind, "build_and_load", kind.build_and_load)


@pytest.mark.parametrize(("kind", "built"), [(Spec, "built page"), (Other, "built page otherwise")])
def test_a_named_library_is_loaded_without_the_lock_and_another_is_built_with_it(core, kind, built):
    held = []

    @contextlib.contextmanager
    def alone():
        held.append("taken")
        yield

    using.use({"norm": "/somewhere/norm.so"}, alone)
    assert kind("norm").build_and_load() == f"loaded {Path('/somewhere/norm.so')!r}"
    assert held == []
    assert kind("page").build_and_load() == built
    assert held == ["taken"]
