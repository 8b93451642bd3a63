"""inside/survey.py in real interpreters over site folders that the tests build."""

import ast
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest
from permissions import printed_by

from fi_doctor import sandbox
from fi_doctor.facts.packages import SURVEY_SCRIPT, survey
from fi_doctor.model import Missing


def install(folder, name, version, *, lines=(), module="", direct_url=None):
    """A distribution as pip leaves it: its .dist-info, and a module that must never run."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    text = "\n".join(
        ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines, "", "Version: 9 in prose"]
    )
    (info / "METADATA").write_text(text)
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    if module:
        put_module(folder, module)
    return info


def put_module(folder, name):
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} was imported')\n")


def look(*folders, **variables):
    path = os.pathsep.join(str(folder) for folder in folders)
    return survey(sys.executable, {**os.environ, "PYTHONPATH": path, **variables})


def copies(seen, name):
    return [d for d in seen.distributions if d.name == name]


def test_it_is_one_file_that_python_3_8_can_read_and_that_needs_only_the_standard_library():
    tree = ast.parse(SURVEY_SCRIPT.read_text(), feature_version=(3, 8))
    imported = {a.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imported |= {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names


def test_the_interpreter_says_who_it_is():
    seen = look()
    assert Path(seen.executable).resolve() == Path(sys.executable).resolve()
    assert (seen.version, seen.implementation) == (sys.version.split()[0], sys.implementation.name)
    assert Path(seen.prefix) == Path(sys.prefix)


def test_watched_packages_are_found_and_nothing_is_imported(tmp_path):
    install(
        tmp_path,
        "flashinfer-python",
        "0.5.3",
        module="flashinfer",
        lines=[
            "Requires-Dist: torch",
            "Requires-Dist: tqdm",
            'Requires-Dist: x; python_version > "3" and extra == "y"',
        ],
    )
    install(tmp_path, "nvidia-cutlass-dsl", "4.8.0", lines=["Requires-Dist: numpy", "Requires-Dist: cuda-python"])
    install(tmp_path, "nvidia-cublas-cu12", "12.8.4.1")
    install(tmp_path, "flashinfer-jit-cache-sm90a", "0.7.2+cu130")
    install(tmp_path, "Some.Thing", "1.0")
    seen = look(tmp_path)
    (found,) = copies(seen, "flashinfer-python")
    assert (found.version, found.location, found.editable) == ("0.5.3", str(tmp_path), False)
    assert found.requires == ("torch", "tqdm")
    assert copies(seen, "nvidia-cutlass-dsl")[0].requires == ("cuda-python",)
    assert seen.modules["flashinfer"] == str(tmp_path / "flashinfer" / "__init__.py")
    assert [d.version for d in copies(seen, "nvidia-cublas-cu12")] == ["12.8.4.1"]
    assert [d.version for d in copies(seen, "flashinfer-jit-cache-sm90a")] == ["0.7.2+cu130"]
    assert copies(seen, "some-thing") == []


def test_every_copy_is_listed_in_the_order_of_the_path_and_the_same_folder_once(tmp_path):
    first, second, link = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    install(first, "vllm", "0.11.0")
    install(second, "vllm", "0.14.0")
    link.symlink_to(first)
    seen = look(first, second, link)
    assert [(d.version, d.location) for d in copies(seen, "vllm")] == [("0.11.0", str(first)), ("0.14.0", str(second))]


def test_it_agrees_with_importlib_metadata(tmp_path):
    """Of two versions in one folder (a failed upgrade) it must take the one that Python takes."""
    for version in ("0.5.2", "0.5.3", "0.6.7"):
        install(tmp_path, "flashinfer-python", version)
    code = "import importlib.metadata as m; print(m.version('flashinfer-python'))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    told = sandbox.run([sys.executable, "-c", code], timeout_s=30, env=env).stdout.decode().strip()
    assert copies(look(tmp_path), "flashinfer-python")[0].version == told


def test_pip_editable_names_the_source_tree(tmp_path):
    url = {"url": "file:///src/my%20vllm", "dir_info": {"editable": True}}
    install(tmp_path, "vllm", "0.11.1.dev3", direct_url=url)
    (found,) = copies(look(tmp_path), "vllm")
    assert (found.editable, found.source) == (True, "/src/my vllm")


def test_an_editable_finder_is_asked_for_the_module(tmp_path):
    """Setuptools' finder sits on sys.meta_path; only find_spec knows what it maps."""
    site, tree = tmp_path / "site", tmp_path / "tree"
    put_module(tree / "src", "flashinfer")
    site.mkdir()
    target = str(tree / "src" / "flashinfer" / "__init__.py")
    (site / "sitecustomize.py").write_text(f"""
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "flashinfer":
            return importlib.util.spec_from_file_location(name, {target!r})
        if name == "vllm":
            raise RuntimeError("finder is broken")
sys.meta_path.insert(0, Finder)
""")
    seen = look(site)
    assert seen.modules["flashinfer"] == target
    broken = seen.modules["vllm"]
    assert isinstance(broken, Missing)
    assert "RuntimeError: finder is broken" in broken.reason


def test_a_repository_install_names_its_commit(tmp_path):
    url = {"url": "https://example.org/vllm.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b3c4d"}}
    install(tmp_path, "vllm", "0.11.0", direct_url=url)
    assert copies(look(tmp_path), "vllm")[0].commit == "1a2b3c4d"


def test_an_egg_link_makes_its_tree_editable(tmp_path):
    site, tree = tmp_path / "site", tmp_path / "tree"
    (tree / "vllm.egg-info").mkdir(parents=True)
    (tree / "vllm.egg-info" / "PKG-INFO").write_text("Name: vllm\nVersion: 0.9\n")
    site.mkdir()
    (site / "vllm.egg-link").write_text(f"{tree}\n.\n")
    (found,) = copies(look(site, tree), "vllm")
    assert (found.version, found.editable, found.location) == ("0.9", True, str(tree))


def test_old_eggs_and_archives_are_read(tmp_path):
    (tmp_path / "site" / "ninja-1.10-py3.9.egg-info").mkdir(parents=True)
    (tmp_path / "site" / "ninja-1.10-py3.9.egg-info" / "PKG-INFO").write_text("Name: ninja\nVersion: 1.10\n")
    (tmp_path / "site" / "pynvml-11.0.egg-info").write_text("Name: pynvml\nVersion: 11.0\n")
    egg = tmp_path / "triton-3.0.egg"
    (egg / "EGG-INFO").mkdir(parents=True)
    (egg / "EGG-INFO" / "PKG-INFO").write_text("Name: triton\nVersion: 3.0\n")
    wheel = tmp_path / "sglang-0.5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("sglang/__init__.py", "")
        archive.writestr("sglang-0.5.dist-info/METADATA", "Name: sglang\nVersion: 0.5\n\n")
    seen = look(tmp_path / "site", egg, wheel)
    found = {d.name: d.version for d in seen.distributions if d.location.startswith(str(tmp_path))}
    assert found == {"ninja": "1.10", "pynvml": "11.0", "triton": "3.0", "sglang": "0.5"}
    assert seen.modules["sglang"] == str(wheel / "sglang" / "__init__.py")


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "No such file"),
        (b"Name: vllm\n\nVersion: 1.0\n", "has no Version line"),
        (b"Name: vllm\nVersion: 1.\xff\n\n", "not valid UTF-8"),
        (b"", "has no Version line"),
        (b"\x00\xff\xfe", "has no Version line"),
    ],
    ids=["no file", "version only in prose", "broken bytes", "empty", "binary"],
)
def test_metadata_without_a_version_gives_a_reason(tmp_path, metadata, words):
    info = tmp_path / "vllm-1.0.dist-info"
    info.mkdir()
    if metadata is not None:
        (info / "METADATA").write_bytes(metadata)
    (found,) = copies(look(tmp_path), "vllm")
    assert isinstance(found.version, Missing)
    assert words in found.version.reason


def test_windows_line_ends_and_a_broken_direct_url_are_read_over(tmp_path):
    info = install(tmp_path, "vllm", "1.0")
    (info / "METADATA").write_bytes(b"Name: vllm\r\nVersion: 1.0\r\nRequires-Dist: torch==2.9\r\n\r\nVersion: 2\r\n")
    (info / "direct_url.json").write_text("[not json")
    (found,) = copies(look(tmp_path), "vllm")
    assert (found.version, found.requires, found.editable) == ("1.0", ("torch==2.9",), False)


def test_a_folder_without_init_is_no_module(tmp_path):
    (tmp_path / "flashinfer").mkdir()
    found = look(tmp_path).modules["flashinfer"]
    assert isinstance(found, Missing)
    assert str(tmp_path / "flashinfer") in found.reason


def test_an_unreadable_folder_is_a_problem_and_no_end(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    code = (
        "import os, sys; from fi_doctor.facts.packages import survey\n"
        "print(*survey(sys.executable, {**os.environ, 'PYTHONPATH': sys.argv[1]}).problems)"
    )
    assert f"{closed}: Permission denied" in printed_by(code, closed)


def test_a_file_that_is_no_archive_is_a_problem_and_no_end(tmp_path):
    (tmp_path / "file").write_text("text")
    seen = look(tmp_path / "file", tmp_path / "nowhere")
    assert [problem.split(":")[0] for problem in seen.problems] == [str(tmp_path / "file")]


def test_chatter_of_the_interpreter_is_told_from_the_answer(tmp_path):
    text = (
        'import sys, atexit\nprint("{hello" * 9)\natexit.register(print, "}bye")\nsys.stdout = open("/dev/null", "w")\n'
    )
    (tmp_path / "sitecustomize.py").write_text(text)
    assert look(tmp_path).implementation == sys.implementation.name


def test_the_current_directory_is_not_searched_but_pythonpath_is(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    put_module(here, "vllm")
    put_module(there, "flashinfer")
    monkeypatch.chdir(here)
    seen = look(there)
    assert isinstance(seen.modules["vllm"], Missing)
    assert seen.modules["flashinfer"] == str(there / "flashinfer" / "__init__.py")
    assert str(SURVEY_SCRIPT.parent) not in seen.sys_path


def test_an_interpreter_that_ignores_the_safe_path_still_loses_our_folder(tmp_path):
    """Python 3.10 and older know no PYTHONSAFEPATH and put the script's folder first."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    result = sandbox.run([sys.executable, str(SURVEY_SCRIPT), "word"], timeout_s=30, env=env)
    answer = json.loads(result.stdout.split(b"word")[1])
    assert str(SURVEY_SCRIPT.parent) not in answer["sys_path"]
