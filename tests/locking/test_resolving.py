"""Where a name would be found, held against Python's own finders."""

from __future__ import annotations

import importlib.machinery
import os
import platform
import sys
from pathlib import Path

import pytest

import fi_doctor
from fi_doctor.locking.resolving import NAMESPACE, Resolver

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]
FILES = {
    "a package before a module": ("one/thing/__init__.py", "one/thing.py"),
    "a compiled module before source": (f"one/thing{SUFFIX}", "one/thing.py"),
    "a compiled module before one for any Python": (f"one/thing{SUFFIX}", "one/thing.abi3.so"),
    "one for any Python before a plain one": ("one/thing.abi3.so", "one/thing.so"),
    "source before bytecode": ("one/thing.pyc", "one/thing.py"),
    "bytecode alone": ("one/thing.pyc",),
    "for another Python": ("one/thing.cpython-27-x86_64-linux-gnu.so", "two/thing.py"),
    "a folder before a module of the same entry": ("one/thing/inner.py", "one/thing.py"),
    "a folder before a module of a later entry": ("one/thing/inner.py", "two/thing.py"),
    "a folder before a package of a later entry": ("one/thing/inner.py", "two/thing/__init__.py"),
    "a package whose init is bytecode": ("one/thing/__init__.pyc", "two/thing.py"),
    "only folders": ("one/thing/inner.py", "two/thing/other.py"),
    "a file in place of a folder": ("one/thing", "two/thing.py"),
    "a folder that looks like a module": ("one/thing.py/x", "two/thing.py"),
    "nothing": ("one/other.py",),
    "a name that begins alike": ("one/thing_else.py", "one/thing.txt", "two/things/__init__.py"),
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
def test_a_name_leads_where_python_would_go(tmp_path, files):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    path = [str(tmp_path / "one"), str(tmp_path / "two"), "/nowhere"]
    spec = importlib.machinery.PathFinder.find_spec("thing", path)
    expected = "" if spec is None else spec.origin if spec.loader and spec.has_location else NAMESPACE
    place = Resolver(path, platform.python_version()).place("thing")
    assert place.file == expected
    assert list(place.folders) == list((spec and spec.submodule_search_locations) or [])


def test_every_module_of_this_process_that_lies_in_a_package_is_found():
    root = Path(fi_doctor.__file__).parents[1]  # an editable installation may find it without sys.path
    resolver = Resolver([str(root), *sys.path], platform.python_version())
    ours = {name: module.__spec__.origin for name, module in sys.modules.items() if name.startswith("fi_doctor.")}
    assert len(ours) > 10
    assert {name: os.path.realpath(resolver.place(name).file) for name in ours} == {
        name: os.path.realpath(path) for name, path in ours.items()
    }
