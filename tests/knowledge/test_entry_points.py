"""The names by which features know their kernels, in the wheels of FlashInfer."""

from __future__ import annotations

import ast

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor import knowledge

ENTRIES = sorted({name for feature in knowledge.load().features for name in feature.entry if "." in name})


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_is_a_name_of_the_wheel(unpacked, version, entry):
    module, _, function = entry.rpartition(".")
    path = unpacked(version).parent / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(source.read_text())
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert function in defined | imported
