"""Every FlashInfer call of every probe fits the signature in each FlashInfer version, without importing any of them."""

import ast
import functools
from pathlib import Path

import pytest
from flashinfer_sources import Sources, called, misfits
from flashinfer_wheels import VERSIONS
from packaging.specifiers import SpecifierSet

PROBES = Path(__file__).parents[2] / "probes"
FILES = sorted(path for path in PROBES.glob("*.py") if path.name != "__init__.py")
LOADED = {}

pytestmark = pytest.mark.wheels


@pytest.fixture
def sources_of(unpacked):
    def load(version):
        if version not in LOADED:
            LOADED[version] = Sources.read(version, unpacked(version))
        return LOADED[version]

    return load


@functools.cache
def probe_of(path):
    tree = ast.parse(path.read_text())
    assign = next(node for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "PROBE")
    return ast.literal_eval(assign.value)


def asks(path, version):
    """Whether the probe says that it runs on this version."""
    return version in SpecifierSet(probe_of(path)["requires"].get("flashinfer", ""), prereleases=True)


ASKED = [pytest.param(p, v, id=f"{p.stem}-{v}") for p in FILES for v in VERSIONS if asks(p, v)]


@pytest.mark.parametrize(("path", "version"), ASKED)
def test_every_call_fits(path, version, sources_of):
    found = misfits(path.read_text(), sources_of(version))
    assert not [one for one in found if not any(f"has no {name} (" in one for name in of_some_versions(path))]


@functools.cache
def of_some_versions(path):
    """What not every version has: what variants require for themselves, and modules imported by their names."""
    variants = probe_of(path).get("variants", {}).values()
    named = {name for variant in variants for name in variant.get("symbols", ())}
    calls = [one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call)]
    imported = {call.args[0].value for call in calls if ast.unparse(call.func) == "importlib.import_module"}
    return named | imported if named else set()


def test_every_probe_asks_some_version():
    assert {param.values[0] for param in ASKED} == set(FILES)


@pytest.mark.parametrize(("path", "version"), ASKED)
def test_every_required_symbol_exists(path, version, sources_of):
    for symbol in probe_of(path)["requires"].get("symbols", []):
        assert sources_of(version).has(symbol)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_calls_are_visible(path):
    """A probe of a kernel has calls to check at all: its builder, and each of its required symbols."""
    assert set(probe_of(path)["requires"].get("symbols", [])) <= called(path.read_text())


CALLS = {
    "fits": ("flashinfer.norm.rmsnorm(x, w, eps=1e-5, out=y)", ""),
    "wrong-keyword": ("flashinfer.norm.rmsnorm(x, w, epsilon=1e-5)", "unexpected keyword argument 'epsilon'"),
    "missing-argument": ("flashinfer.norm.rmsnorm(x)", "missing a required argument: 'weight'"),
    "too-many": ("flashinfer.norm.rmsnorm(x, w, e, o, p, q)", "too many positional arguments"),
    "missing-function": ("flashinfer.norm.rmsnorm_of_tomorrow(x)", "has no flashinfer.norm.rmsnorm_of_tomorrow"),
    "missing-module": ("flashinfer.nothing(x)", "has no flashinfer.nothing"),
    "re-exported": ("flashinfer.silu_and_mul(x, output=y)", "unexpected keyword argument 'output'"),
    "spread-out": ("flashinfer.norm.rmsnorm(*arguments)", "cannot be seen"),
    "not-called": ("f = flashinfer.norm.rmsnorm_of_tomorrow", "has no flashinfer.norm.rmsnorm_of_tomorrow"),
    "other-branch": (
        "if hasattr(flashinfer.norm, 'a'):\n    pass\nelse:\n    flashinfer.norm.a(x)",
        "has no flashinfer.norm.a",
    ),
    "other-guard": ("if hasattr(flashinfer.norm, 'a'):\n    flashinfer.norm.b(x)", "has no flashinfer.norm.b"),
    "guarded": ("if hasattr(flashinfer.norm, 'a'):\n    flashinfer.norm.a(x)", ""),
    "guarded-misfit": (
        "if hasattr(flashinfer.norm, 'rmsnorm'):\n    flashinfer.norm.rmsnorm(x, w, z=1)",
        "unexpected keyword argument 'z'",
    ),
    "from-import": ("from flashinfer.page import get_page_module as g\ng(1)", "too many positional arguments"),
    "class": ("flashinfer.BatchAttention(layout='NHD')", "unexpected keyword argument 'layout'"),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("code", "expected"), CALLS.values(), ids=CALLS.keys())
def test_the_check_sees_what_is_wrong(code, expected, version, sources_of):
    found = misfits(f"import flashinfer\n{code}", sources_of(version))
    assert [expected in line for line in found] == ([True] if expected else [])
