"""The names by which features know their kernels, and those that vLLM calls, in the wheels of FlashInfer."""

from __future__ import annotations

import ast
import functools

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor import knowledge
from fi_doctor.facts.symbols import Symbols
from fi_doctor.model import Missing

FEATURES = knowledge.load().features
NOWHERE = {"flashinfer.prefill.single_prefill_with_kv_cache_return_weights"}  # their rows say that there is none
NAMES = {name for feature in FEATURES for name in (*feature.entry, feature.generator) if "." in name}
ENTRIES = sorted(NAMES - NOWHERE)
CALLED = sorted({use.entry for feature in FEATURES for use in feature.vllm if "." in use.entry})


symbols = functools.cache(Symbols)  # each wheel is read once


def defined(unpacked, version, entry):
    """Whether the place that is found for a name holds a function or a class of that name."""
    root = unpacked(version)
    place = symbols(root, version).where(entry)
    if not isinstance(place, str):
        return False
    file, _, line = place.rpartition(":")
    return (int(line), entry.rpartition(".")[2]) in definitions(root / file)


@functools.cache
def definitions(path):
    """The line and name of every function and class of a file, as Python's own parser has them."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {(node.lineno, node.name) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_is_a_function_or_a_class_of_the_wheel_or_surely_absent(unpacked, version, entry):
    place = symbols(unpacked(version), version).where(entry)
    assert place.absent if isinstance(place, Missing) else defined(unpacked, version, entry)


@pytest.mark.wheels
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_point_is_in_the_newest_wheel(unpacked, entry):
    assert defined(unpacked, VERSIONS[-1], entry)


@pytest.mark.wheels
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("entry", sorted(NOWHERE))
def test_what_a_row_says_is_nowhere_is_in_no_wheel(unpacked, version, entry):
    assert entry in NAMES
    assert symbols(unpacked(version), version).where(entry).absent


@pytest.mark.wheels
@pytest.mark.parametrize("entry", CALLED)
def test_what_vllm_calls_is_in_the_flashinfer_of_one_of_its_releases(unpacked, entry):
    assert any(defined(unpacked, version, entry) for version in VERSIONS)
