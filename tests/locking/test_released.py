"""What is shipped of releases is taken for what is installed only while that is the release, as it was installed."""

import ast
import hashlib
import os
from pathlib import Path

import factory as make
import pytest
from watched_readers import FILES, watch, write

from fi_doctor import facts, knowledge
from fi_doctor.diagnosis import symbols
from fi_doctor.facts import released
from fi_doctor.facts.named import read_named
from fi_doctor.locking.readings import Readings
from fi_doctor.model import Calls, Named, Vllm
from fi_doctor.probing import catalog

RECORDS = {"vllm-0.33.0+cu130.dist-info/RECORD": "", "flashinfer_python-0.7.2.dist-info/RECORD": ""}
SHIPPED = sorted(released.FOLDER.glob(f"*{released.ENDING}"))


@pytest.fixture
def site(tmp_path, monkeypatch):
    write(tmp_path / "site", FILES)
    write(tmp_path / "site", RECORDS)
    monkeypatch.setattr(released, "FOLDER", tmp_path / "shipped")
    return tmp_path / "site"


@pytest.fixture
def read(site, tmp_path, monkeypatch):
    """What the readers say without a memory, and which of them had to read."""
    done = watch(monkeypatch)
    survey = make.survey(vllm=str(site / "vllm/__init__.py"), flashinfer=str(site / "flashinfer/__init__.py"))

    def again():
        done.clear()
        fresh = Readings(tmp_path / "no memory" / str(os.getpid()))
        (tmp_path / "no memory").write_text("")
        return fresh.calls(survey), fresh.vllm(survey), sorted(done)

    return again


@pytest.fixture
def shipped(read, monkeypatch):
    """The same once it is shipped."""
    asked = []
    with monkeypatch.context() as patch:
        patch.setattr(released, "recall", lambda *words: asked.append(words))
        said = read()
    for name, key, kind in asked:
        found = next(one for one in said[:2] if isinstance(one, kind))
        released.write(released.FOLDER / f"{name}{released.ENDING}", key, found)
    return said[:2]


def test_a_release_is_read_only_where_it_is_not_shipped(read, shipped):
    assert shipped[0].fitting == 2
    assert read() == (*shipped, [])


def younger(site, name):
    os.utime(site / name, ns=(2**62, 2**62))


def add_kernel(folder):
    folder.mkdir()
    (folder / "kernel.py").write_text("")


CHANGES = {
    "a longer file": (lambda site: (site / "vllm/layer.py").write_text("# longer than it was\n" * 9), True, True),
    "a file that is changed after its package was installed": (lambda site: younger(site, "vllm/layer.py"), True, True),
    "a file of the other package": (lambda site: younger(site, "flashinfer/norm.py"), True, False),
    "a new file": (lambda site: (site / "flashinfer/new.py").write_text(""), True, False),
    "a lost file": (lambda site: (site / "vllm/config/kernel.py").unlink(), True, True),
    "a lost RECORD": (lambda site: (site / "vllm-0.33.0+cu130.dist-info/RECORD").unlink(), True, True),
    "two RECORDs": (lambda site: (site / "vllm-0.1.dist-info").mkdir(), True, True),
    "another version": (
        lambda site: (site / "vllm-0.33.0+cu130.dist-info").rename(site / "vllm-0.33.1.dist-info"),
        True,
        True,
    ),
    "a kernel": (
        lambda site: (site / "flashinfer/data").mkdir() or (site / "flashinfer/data/x.py").touch(),
        False,
        False,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_as_it_was_installed_is_read(read, shipped, site, change):
    how, calls_again, vllm_again = CHANGES[change]
    how(site)
    again = [*(["read_calls"] if calls_again else []), *(["read_vllm"] if vllm_again else [])]
    assert read()[2] == again


def test_what_other_readers_read_is_read_again(read, shipped, monkeypatch):
    monkeypatch.setattr(released, "readers", lambda: "others")
    assert read() == (*shipped, ["read_calls", "read_vllm"])


def test_a_damaged_file_is_as_good_as_none(read, shipped):
    for path in released.FOLDER.iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    assert read() == (*shipped, ["read_calls", "read_vllm"])


def test_another_place_is_told_as_it_is(read, shipped, site, tmp_path):
    site.rename(tmp_path / "moved")
    survey = make.survey(vllm=str(tmp_path / "moved/vllm/__init__.py"))
    assert Readings(tmp_path / "memory").vllm(survey).root == str(tmp_path / "moved/vllm")


def test_every_module_that_decides_what_is_read_is_named():
    folder = Path(facts.__file__).parent
    reached, rest = set(), ["sources", "calls"]
    while rest:
        name = rest.pop()
        if name in reached or name == "remembered":
            continue
        reached.add(name)
        paths = (folder / name).glob("*.py") if (folder / name).is_dir() else [folder / f"{name}.py"]
        for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text()))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fi_doctor.facts"):
                named = node.module.split(".")[2:3] or [alias.name for alias in node.names]
                rest.extend(name for name in named if name != "remembered")
    assert {*released.READERS, "calls"} == reached


def test_releases_are_shipped():
    assert {path.name.partition("-")[0] for path in SHIPPED} == {"vllm", "flashinfer_python"}
    assert sum("-with-" in path.name for path in SHIPPED) >= 6


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_what_is_shipped_was_read_by_these_readers_and_for_these_names(path):
    """Else it is not used: benchmarks/releases.py reads it anew."""
    kind = Calls if "-with-" in path.name else Vllm if path.name.startswith("vllm") else Named
    name = path.name.removesuffix(released.ENDING)
    key = released.key_of(path)
    assert key.startswith(released.readers())
    assert released.recall(name, key, kind) is not None
    if kind is Named:
        version = f"flashinfer {name.partition('-')[2]}"
        named = symbols.of(knowledge.load(), catalog.discover())
        assert key.endswith(hashlib.sha256("\0".join((version, *named)).encode()).hexdigest())


@pytest.mark.wheels
def test_what_is_shipped_of_a_release_is_what_its_files_say(unpacked):
    name = "flashinfer_python-0.5.3"
    key = released.key_of(released.FOLDER / f"{name}{released.ENDING}")
    named = symbols.of(knowledge.load(), catalog.discover())
    said = read_named(unpacked("0.5.3"), "flashinfer 0.5.3", named)
    assert released.recall(name, key, Named) == said
