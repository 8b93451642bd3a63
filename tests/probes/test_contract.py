"""Every probe file keeps the probe contract; the files are read with ast, as the catalog reads them."""

import ast
import functools
import re
import sys
from pathlib import Path

import pytest

PROBES = Path(__file__).parents[2] / "probes"
FILES = sorted(path for path in PROBES.glob("*.py") if path.name != "__init__.py")
KEYS = {
    "id", "feature", "module", "requires", "variants", "gpus", "timeout_s", "build_timeout_s", "compiles", "checks",
    "subset", "most_gpus",
}  # fmt: skip
REQUIRES = {"sm", "flashinfer", "nvcc", "symbols", "packages", "peer_access"}

pytestmark = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def probe_of(tree):
    values = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["PROBE"]
    ]
    assert len(values) == 1
    return ast.literal_eval(values[0])


def function(tree, name):
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def test_the_literal_has_the_agreed_keys_and_types(path):
    probe = probe_of(parsed(path))
    assert {"id", "feature", "module", "requires"} <= set(probe) <= KEYS
    assert all(isinstance(probe[key], str) for key in ("id", "feature", "module"))
    assert all(isinstance(probe.get(key, 1), int) for key in ("gpus", "most_gpus", "timeout_s", "build_timeout_s"))
    assert set(probe.get("compiles", [])) <= {"nvcc", "nvrtc", "cute-dsl", "cutile", "triton", "ptx"}
    assert probe.get("checks", "numbers") in {"numbers", "nothing", "gate"}
    assert set(probe["requires"]) <= REQUIRES
    for requires in probe.get("variants", {}).values():
        assert set(requires) <= {*REQUIRES, "gpus"}


def test_the_file_is_named_after_the_id(path):
    probe = probe_of(parsed(path))
    family, _, kernel = probe["id"].partition(".")
    assert path.stem == f"{family}_{kernel}"
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", probe["feature"])


def test_the_docstring_asks_a_question_and_names_the_upstream_source(path):
    text = ast.get_docstring(parsed(path)) or ""
    assert text.splitlines()[0].endswith("?")
    assert "\nUpstream: " in text


def test_a_probe_of_numbers_says_its_shapes_and_its_tolerance(path):
    tree = parsed(path)
    text = ast.get_docstring(tree) or ""
    if probe_of(tree).get("checks", "numbers") == "numbers":
        assert re.search(r"^(Shapes|Allowed tokens): ", text, re.MULTILINE)
        assert re.search(r"^(Tolerance|Frequencies)\b", text, re.MULTILINE)
    else:
        assert "Nothing is computed." in text


def test_build_and_run_take_the_variant_where_there_are_variants(path):
    tree = parsed(path)
    expected = ["variant"] if probe_of(tree).get("variants") else []
    run, build = function(tree, "run"), function(tree, "build")
    assert [argument.arg for argument in run.args.args] == expected
    assert (build is not None) == bool(probe_of(tree)["module"])
    if build is not None:
        assert [argument.arg for argument in build.args.args] == expected


def test_the_file_runs_by_itself(path):
    last = parsed(path).body[-1]
    assert isinstance(last, ast.If)
    assert ast.unparse(last.test) == "__name__ == '__main__'"
    calls = {node.func.id for node in ast.walk(last) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert {"run", "print"} <= calls
    if probe_of(parsed(path)).get("variants"):
        assert """sys.argv[1:] or PROBE['variants']""" in ast.unparse(last)


NO_GPU = """
import torch

if torch.cuda.device_count() < PROBE["gpus"]:
    sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
"""
ASKS_THE_DRIVER = """
try:
    _Team("")
except RuntimeError as error:
    sys.exit(f"{PROBE['id']}: {error}")
"""


def test_by_hand_it_says_first_that_there_is_no_gpu(path):
    """All in the same words, before anything is built; a process that the probe starts itself comes before."""
    tree = parsed(path)
    lines = [ast.unparse(node) for node in tree.body[-1].body]
    words = ASKS_THE_DRIVER if path.stem == "comm_peer_transfer" else NO_GPU  # the one that needs no torch
    expected = [ast.unparse(node) for node in ast.parse(words).body] if probe_of(tree).get("gpus", 1) else []
    rest = [line for line in lines if not re.match(r"if sys\.argv\[1:2\] == \['(rank|worker)'\]:", line)]
    assert rest[:-1] == expected


def test_only_the_standard_library_torch_and_flashinfer_are_imported(path):
    tree = parsed(path)
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module.partition(".")[0])
    assert names - sys.stdlib_module_names <= {"torch", "flashinfer"}


def test_torch_and_flashinfer_are_imported_inside_functions(path):
    """So that the harness can say that the import failed, and not merely that the file could not be loaded."""
    tree = parsed(path)
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert not [node for node in top if re.search(r"\b(torch|flashinfer)\b", ast.unparse(node))]


def test_nothing_happens_on_import(path):
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef, ast.If, ast.Expr)
    tree = parsed(path)
    assert all(isinstance(node, allowed) for node in tree.body)
    assert not [node for node in tree.body[1:] if isinstance(node, ast.Expr)]
    assert len([node for node in tree.body if isinstance(node, ast.If)]) == 1  # the last, __main__
