"""Names found in source without importing it: small packages that the tests write, and whole real ones."""

import ast
import gc
import os
import py_compile
import re
from pathlib import Path

import pytest
from flashinfer_wheels import VERSIONS

from fi_doctor.facts.compiled import Compiled
from fi_doctor.facts.symbols import Source, Symbols
from fi_doctor.model import Missing

FILES = {
    "__init__.py": '''
"""The package.

def in_prose(): not code
"""
from . import norm as norm
from .decode import Wrapper as Wrapper
from .decode import decode as renamed
try:
    from .fused import optional
except ImportError:
    optional = None
if TYPE_CHECKING:
    from .decode import typing_only
from .gone import lost
from math import pi as pi
''',
    "norm.py": '''
@decorate(
    "x",
)
def rmsnorm(
    x,
    y="def inner(): pass",
) -> None:
    """A string
def not_here():
at the first column."""
    def local():
        pass


class Config(
    object,
):
    r"""One line.

At the first column.
    """

    size = 3

    def run(self):
        def inner(self):
            pass

    @property
    def width(self): return 1
TABLE = {"a": 1}
typed: int = 2
declared: int
one, (two, three) = 1, (2, 3)
''',
    "decode/__init__.py": """
from ._core import *
from .._shared import shared
LAZY = frozenset({"late"})
def __getattr__(name):
    return name
""",
    "decode/_core.py": """
class Wrapper:
    def run(self): ...
def decode(): ...
_hidden = 1
from pkg.norm import rmsnorm
""",
    "decode/sub.py": "",
    "_shared.py": "shared = 1\n",
    "fused.py": "if True:\n    def optional(): ...\nelse:\n    optional = None\n",
    "never.py": "if not True or x and 0:\n gone = 1\nif not TYPE_CHECKING:\n there = 1\nelse:\n also_gone = 1\n",
    "broken.py": "from x import (\n",
    "loop_a.py": "from .loop_b import name\n",
    "loop_b.py": "from .loop_a import name\n",
}


@pytest.fixture
def symbols(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "pkg" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
    return Symbols(tmp_path / "pkg", "pkg 1.0")


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("pkg.norm", "norm.py:1"),
        ("pkg.norm.rmsnorm", "norm.py:4"),
        ("pkg.norm.Config", "norm.py:15"),
        ("pkg.norm.Config.run", "norm.py:25"),
        ("pkg.norm.Config.width", "norm.py:30"),
        ("pkg.norm.Config.size", "norm.py:23"),
        ("pkg.norm.TABLE", "norm.py:31"),
        ("pkg.norm.typed", "norm.py:32"),
        ("pkg.norm.three", "norm.py:34"),
        ("pkg.never.there", "never.py:4"),
        ("pkg.Wrapper", "decode/_core.py:1"),
        ("pkg.Wrapper.run", "decode/_core.py:2"),
        ("pkg.renamed", "decode/_core.py:3"),
        ("pkg.decode.decode", "decode/_core.py:3"),
        ("pkg.decode.shared", "_shared.py:1"),
        ("pkg.decode.rmsnorm", "norm.py:4"),
        ("pkg.decode.sub", "decode/sub.py:1"),
        ("pkg.decode.late", "decode/__init__.py:3"),
        ("pkg.optional", "fused.py:2"),
        ("pkg.pi", "__init__.py:15"),
    ],
)
def test_a_name_is_found_where_it_is_defined(symbols, name, place):
    assert symbols.where(name) == place


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pkg.norm.layernorm", "pkg 1.0 has no pkg.norm.layernorm (norm.py read)"),
        ("pkg.norm.not_here", "pkg 1.0 has no pkg.norm.not_here (norm.py read)"),
        ("pkg.norm.local", "pkg 1.0 has no pkg.norm.local (norm.py read)"),
        ("pkg.norm.declared", "pkg 1.0 has no pkg.norm.declared (norm.py read)"),
        ("pkg.norm.run", "pkg 1.0 has no pkg.norm.run (norm.py read)"),
        ("pkg.norm.Config.inner", "pkg 1.0 has no pkg.norm.Config.inner (norm.py:15 was read, not what it inherits)"),
        ("pkg.in_prose", "pkg 1.0 has no pkg.in_prose (__init__.py read)"),
        ("pkg.typing_only", "pkg 1.0 has no pkg.typing_only (__init__.py read)"),
        ("pkg.never.gone", "pkg 1.0 has no pkg.never.gone (never.py read)"),
        ("pkg.never.also_gone", "pkg 1.0 has no pkg.never.also_gone (never.py read)"),
        ("pkg.decode._hidden", "pkg 1.0 has no pkg.decode._hidden (decode/__init__.py read)"),
        ("pkg.nothing.at_all", "pkg 1.0 has no pkg.nothing.at_all (__init__.py read)"),
        ("pkg.lost", "pkg 1.0: __init__.py:14 imports lost from .gone, which is not there"),
        ("pkg.loop_a.name", "pkg 1.0 has no pkg.loop_a.name (loop_a.py read)"),
        ("other.norm", "other.norm is no name of the package pkg"),
        ("pkg", "pkg is no name of the package pkg"),
    ],
)
def test_what_is_not_there_says_what_was_read(symbols, name, reason):
    # What a base class or a module that is not there may bring is not known to be absent.
    assert symbols.where(name) == Missing(reason=reason, absent=reason.endswith(" read)"))


def test_a_file_that_cannot_be_parsed_gives_a_reason(symbols):
    found = symbols.where("pkg.broken.f")
    assert isinstance(found, Missing)
    assert "broken.py cannot be parsed" in found.reason


@pytest.mark.parametrize(
    "text", ["x = " + "-" * 100_000 + "1\n", "x = a" + ".b" * 30_000 + "\n"], ids=["signs", "dots"]
)
def test_a_file_that_is_too_deep_for_the_parser_gives_a_reason(symbols, tmp_path, text):
    (tmp_path / "pkg" / "broken.py").write_text(text)
    found = symbols.where("pkg.broken.f")
    assert isinstance(found, Missing)
    assert re.search(r"broken.py cannot be parsed by Python [\d.]+: nested too deeply, or too long$", found.reason)


BODIES = {"function": "def f(x):\n    return (\n", "class": "class A:\n    def run(self):\n        x = = 1\n"}


@pytest.mark.parametrize("text", BODIES.values(), ids=BODIES.keys())
def test_an_error_inside_a_body_is_found_where_the_whole_file_is_parsed(tmp_path, text):
    path = tmp_path / "pkg" / "__init__.py"
    path.parent.mkdir()
    path.write_text(f"def good(): ...\n{text}")
    size = len(path.read_text())
    found = Symbols(tmp_path / "pkg", "pkg 1.0", whole=size).where("pkg.good")
    assert isinstance(found, Missing)
    assert not found.absent
    assert "__init__.py cannot be parsed by Python" in found.reason
    assert Symbols(tmp_path / "pkg", "pkg 1.0", whole=size - 1).where("pkg.good") == "__init__.py:1"


def test_files_are_parsed_whole_until_as_much_as_was_said_is_parsed(tmp_path):
    write_all(tmp_path / "pkg", {"__init__.py": "", "a.py": BROKEN, "b.py": BROKEN})
    symbols = Symbols(tmp_path / "pkg", "pkg 1.0", whole=len(BROKEN))
    assert isinstance(symbols.where("pkg.a.good"), Missing)
    assert symbols.where("pkg.b.good") == "b.py:1"


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.CHECKED_HASH]
)
def test_what_python_has_compiled_is_not_parsed_until_it_is_changed(tmp_path, mode):
    write_all(tmp_path / "pkg", {"__init__.py": "", "a.py": BROKEN.replace("return (", "return 1")})
    path = tmp_path / "pkg" / "a.py"
    compiled = Path(py_compile.compile(str(path), invalidation_mode=mode, doraise=True))
    assert Compiled().has(path)
    state = path.stat()
    path.write_text(BROKEN)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    is_trusted = mode is py_compile.PycInvalidationMode.TIMESTAMP  # Python would not look at the source either
    assert Compiled().has(path) is is_trusted
    assert isinstance(Symbols(tmp_path / "pkg", "pkg", whole=100).where("pkg.a.good"), str) is is_trusted
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 10**9))
    assert not Compiled().has(path)
    assert isinstance(Symbols(tmp_path / "pkg", "pkg", whole=100).where("pkg.a.good"), Missing)
    compiled.write_bytes(b"cut")
    assert not Compiled().has(path)


BROKEN = "def good():\n    return (\n"


def write_all(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)


def test_a_file_is_read_once(symbols, tmp_path):
    assert symbols.where("pkg.norm.rmsnorm") == "norm.py:4"
    (tmp_path / "pkg" / "norm.py").unlink()
    (tmp_path / "pkg" / "norm.py").write_text("")
    assert symbols.where("pkg.norm.Config") == "norm.py:15"


@pytest.fixture
def no_collections():
    """Syntax trees have no cycles, and the collector would look through millions of nodes again and again."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.wheels
@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_top_level_function_and_class_of_the_real_package_is_on_its_line(unpacked, version):
    """The reduction must lose nothing and invent nothing: compared with the syntax tree of the whole file."""
    package = unpacked(version)
    files = [*package.glob("*.py"), *package.glob("*/*.py")]
    assert len(files) > 50
    for path in files:
        tree = ast.parse(path.read_bytes())
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        assigned = {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        defined = {node.name: node.lineno for node in tree.body if isinstance(node, kinds)}
        expected = {name: line for name, line in defined.items() if name not in assigned}
        source = Source(path)
        assert {name: source.names[name].line for name in expected} == expected, path
        imported = {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
        assert assigned | imported - {"*"} <= set(source.names), path
        nodes = list(ast.walk(tree))
        nested = {n.name for n in nodes if isinstance(n, kinds)}
        bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
        aliases = {(a.asname or a.name).partition(".")[0] for n in imports for a in n.names}
        assert set(source.names) <= nested | bound | aliases, path
