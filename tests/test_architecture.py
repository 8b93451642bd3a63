"""The import table: data flows one way, and nothing imports against the stream."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "fi_doctor"
PURE = {"model", "errors"}
# part -> the parts of ours that it may import, itself aside. A new arrow here is a design discussion, not a fix.
ARROWS = {
    "__init__": PURE | {"api"},
    "model": set(),
    "errors": set(),
    "conditions": PURE,
    "guarding": set(),
    "processes": {"guarding"},
    "acting": set(),
    "sandbox": PURE | {"acting", "processes"},
    "workers": set(),
    "reports": PURE,
    "facts": PURE | {"acting", "sandbox", "workers"},
    "probing": PURE | {"acting", "sandbox", "conditions", "workers"},
    "knowledge": PURE | {"conditions"},
    "diagnosis": PURE | {"conditions"},
    "locking": PURE | {"facts"},
    "choosing": PURE | {"diagnosis", "facts", "knowledge", "workers"},
    "settings": PURE | {"conditions", "diagnosis", "facts", "knowledge"},
    "upgraded": PURE | {"conditions", "diagnosis", "facts", "knowledge"},
    "consequences": PURE | {"diagnosis", "knowledge", "probing", "settings", "upgraded"},
    "upgrading": PURE | {"conditions", "consequences", "diagnosis", "knowledge", "upgraded"},
    "targeting": PURE | {"conditions", "facts", "knowledge", "upgraded"},
    "leaning": PURE | {"knowledge"},
    "stopped": PURE | {"diagnosis", "knowledge", "probing"},
    "expecting": PURE | {"diagnosis", "knowledge", "probing", "stopped"},
    "proving": PURE | {"diagnosis", "facts", "probing"},
    "filling": PURE | {"diagnosis", "facts", "probing"},
    "pipeline": PURE
    | {
        "__init__",
        "choosing",
        "leaning",
        "expecting",
        "proving",
        "settings",
        "targeting",
        "upgrading",
        "facts",
        "probing",
        "knowledge",
        "diagnosis",
    },
    "moving": PURE
    | {
        "__init__",
        "conditions",
        "consequences",
        "diagnosis",
        "expecting",
        "facts",
        "knowledge",
        "pipeline",
        "probing",
        "settings",
        "targeting",
        "upgraded",
    },
    "pruning": PURE,
    "endpoint": PURE | {"reports", "sandbox"},
    "cluster": PURE | {"processes", "sandbox"},
    "explaining": PURE | {"conditions", "knowledge"},
    "knowing": PURE | {"facts", "knowledge", "probing"},
    "locked": PURE | {"__init__", "pipeline", "facts", "probing", "knowledge", "diagnosis", "locking"},
    "fleet": PURE | {"__init__", "pipeline", "conditions", "diagnosis", "reports"},
    "cli": PURE
    | {
        "__init__",
        "fleet",
        "acting",
        "processes",
        "filling",
        "pipeline",
        "facts",
        "probing",
        "knowledge",
        "diagnosis",
        "reports",
        "locking",
        "locked",
        "knowing",
        "explaining",
        "cluster",
        "endpoint",
        "pruning",
        "settings",
        "targeting",
        "upgraded",
        "moving",
        "conditions",
    },
    "api": PURE | {"cli", "facts", "knowing", "processes", "reports"},
    "__main__": {"__init__", "cli"},
    "inside": set(),
}
LONGER = {"harness.py": 335, "template.py": 350}  # they run alone, in the examined interpreter
FORBIDDEN = {"torch", "flashinfer", "vllm", "numpy", "triton"}


def part_of(path: pathlib.Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@functools.cache
def read(path: pathlib.Path) -> tuple[str | None, set[str]]:
    """A file's docstring, and what it imports."""
    tree, names = ast.parse(path.read_text()), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return ast.get_docstring(tree), names


def imported(path: pathlib.Path) -> set[str]:
    return read(path)[1]


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path):
    part = part_of(path)
    parts = {
        name.split(".")[1] if len(name.split(".")) > 1 else "__init__"
        for name in imported(path)
        if name.split(".")[0] == "fi_doctor"
    }
    ours = {p if (PACKAGE / p).exists() or (PACKAGE / f"{p}.py").exists() else "__init__" for p in parts}
    assert ours - {part} <= ARROWS[part]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_what_is_examined_is_never_imported_by_the_cli_process(path):
    tops = {name.split(".")[0] for name in imported(path)}
    if path.relative_to(PACKAGE).as_posix() in ("inside/harness.py", "inside/rank.py"):
        return  # they run in the examined interpreter, and what they import there is what they measure
    assert not tops & FORBIDDEN


@pytest.mark.parametrize(
    "path", [f for f in FILES if f.name != "sandbox.py"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_only_the_sandbox_starts_processes(path):
    if part_of(path) == "inside" or path == PACKAGE / "cluster/sent.py":
        return  # not ours at run time: it lives in the child, or in a worker of Ray's where nothing of ours is yet
    text = path.read_text()
    tops = {name.split(".")[0] for name in imported(path)}
    assert "subprocess" not in tops
    assert "multiprocessing" not in tops
    assert "os.system" not in text
    assert "os.fork" not in text


@pytest.mark.parametrize("path", sorted((ROOT / "probes").glob("*.py")), ids=lambda p: p.name)
def test_a_probe_knows_nothing_of_ours(path):
    assert not {name for name in imported(path) if name.startswith("fi_doctor")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_says_what_it_owns_and_stays_short(path):
    assert read(path)[0], "a module starts with a docstring"
    # The harness runs alone, without fi_doctor beside it, and so stays one file.
    assert len(path.read_text().splitlines()) <= LONGER.get(path.name, 300)


# Ages of files and what is told of a moment; whatever is waited for goes by time.monotonic, which nobody sets.
WALL_CLOCK = {"probing/parts.py", "facts/remembered.py", "inside/remembered.py"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_is_waited_for_by_the_wall_clock(path):
    assert ("time.time()" in path.read_text()) == (path.relative_to(PACKAGE).as_posix() in WALL_CLOCK)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_version_of_any_length_is_none_where_it_cannot_be_compared(path):
    """InvalidVersion is only one of the errors that Version raises: conditions/ranges.py's parse_version knows all."""
    assert not re.search(r"^from .*\bInvalidVersion\b|except .*InvalidVersion", path.read_text(), re.MULTILINE)


def test_no_two_files_of_tests_have_one_name():
    """pytest imports them by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
