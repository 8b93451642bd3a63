"""Reads unpacked FlashInfer wheels: FI_DOCTOR_WHEELS=/folder/with/fi-VERSION pytest -m wheels."""

from __future__ import annotations

import ast
import os
import pathlib

import pytest

from fi_doctor import knowledge

WHEELS = sorted(pathlib.Path(os.environ.get("FI_DOCTOR_WHEELS", "/nowhere")).glob("fi-*"))
ENTRIES = sorted({name for feature in knowledge.load().features for name in feature.entry if "." in name})


@pytest.mark.wheels
@pytest.mark.skipif(not WHEELS, reason="FI_DOCTOR_WHEELS names no folder with unpacked wheels fi-VERSION/")
@pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.name)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_is_a_function_of_the_wheel(wheel, entry):
    module, _, function = entry.rpartition(".")
    path = wheel / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(source.read_text())
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
