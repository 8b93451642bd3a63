"""Public names of FlashInfer that match a pattern."""

from __future__ import annotations

import pytest

from fi_doctor.facts.public import MOST_MATCHES, read_public
from fi_doctor.facts.symbols import Symbols

FILES = {
    "__init__.py": "from .gemm import mm_awq\n",
    "topk.py": "def top_k(x): ...\ndef _top_k_inner(x): ...\nclass TopKPlan: ...\n    # def top_k_comment\n",
    "gemm/__init__.py": "from .awq import (\n    mm_awq as mm_awq,\n    other,\n)\ndef gen_awq_module(): ...\n",
    "gemm/awq.py": "\ndef mm_awq(): ...\ndef other(): ...\ndef deep_awq(): ...\n",
    "jit/awq.py": "def load_awq(): ...\n",
    "jit/__init__.py": "from .awq import load_awq as load_awq\n",
}


@pytest.fixture
def look(tmp_path):
    root = tmp_path / "flashinfer"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return lambda *patterns: read_public(root, Symbols(root, "flashinfer 1"), patterns)


def test_a_name_that_a_package_hands_on_is_told_with_the_place_that_defines_it(look):
    assert look("*awq*") == {"*awq*": {"flashinfer.gemm.mm_awq": "gemm/awq.py:2"}}


def test_letters_are_compared_without_their_case_and_inner_names_are_left_out(look):
    found = look("top*k*")["top*k*"]
    assert found == {"flashinfer.topk.TopKPlan": "topk.py:3", "flashinfer.topk.top_k": "topk.py:1"}


def test_a_pattern_that_nothing_matches_is_told_as_that(look):
    assert look("*gguf*", "*marlin*") == {"*gguf*": {}, "*marlin*": {}}


def test_there_are_no_more_than_a_bound(look, tmp_path):
    many = "\n".join(f"def many_{number}(): ..." for number in range(50))
    (tmp_path / "flashinfer/many.py").write_text(many)
    assert len(look("many*")["many*"]) == MOST_MATCHES


def test_without_a_folder_nothing_matches(tmp_path):
    root = tmp_path / "nowhere"
    assert read_public(root, Symbols(root, "x"), ["*a*"]) == {"*a*": {}}
