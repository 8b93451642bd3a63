"""A probe's file as a module, which the catalog never imports; with other sizes where a CPU has to do."""

import importlib.util
from pathlib import Path

PROBES = Path(__file__).parents[2] / "probes"


def load(name, **constants):
    """A module of its own each time, since probes cache wrappers. name: "norm_rmsnorm"; constants: in place of its."""
    spec = importlib.util.spec_from_file_location(name, PROBES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for constant, value in constants.items():
        assert hasattr(module, constant), f"{name} has no {constant}"
        setattr(module, constant, value)
    return module
