"""Which copy of a package counts, what its files say, and every way in which an interpreter can be unusable."""

import os
import sys

import pytest

from fi_doctor.errors import TargetError
from fi_doctor.facts import packages as installed
from fi_doctor.facts.packages import Distribution, Survey, jit_cache_cuda, package, packages, survey, torch_cuda
from fi_doctor.model import Missing, Package

NONE = Missing(reason="not there")


def distribution(name, version, location, **changes):
    values = {"metadata": f"{location}/x.dist-info", "editable": False, "source": NONE, "commit": NONE, "requires": ()}
    return Distribution(name=name, version=version, location=str(location), **{**values, **changes})


def seen(*distributions, **modules):
    return Survey(
        executable="/venv/bin/python",
        version="3.12.1",
        implementation="cpython",
        prefix="/venv",
        base_prefix="/usr",
        sys_path=(),
        distributions=distributions,
        modules={name: str(origin) for name, origin in modules.items()},
        problems=(),
    )


def module(folder, name, **files):
    (folder / name).mkdir(parents=True)
    for file, text in {"__init__": "", **files}.items():
        (folder / name / f"{file}.py").write_text(text)
    return folder / name / "__init__.py"


def test_what_is_absent_says_in_which_interpreter():
    found = packages(seen())
    assert {"torch", "flashinfer-python", "flashinfer-cubin", "vllm", "ninja"} <= set(found)
    assert found["vllm"] == Missing(reason="not installed in /venv/bin/python")


def test_the_first_copy_counts_and_the_others_are_shadowed():
    found = package(seen(distribution("ninja", "1.13", "/a"), distribution("ninja", "1.11", "/b")), "ninja")
    assert isinstance(found, Package)
    assert (found.version, found.location, found.shadowed) == ("1.13", "/a", ("1.11 in /b",))


@pytest.mark.parametrize(
    ("files", "installed_as", "version", "claims"),
    [
        ("0.7.2", ["0.5.3", "0.7.2"], "0.7.2", ""),
        ("0.7.2", ["0.7.2", "0.5.3"], "0.7.2", ""),
        ("0.7.2", ["0.5.3", "0.6.13"], "0.7.2", "0.5.3"),
        ("0.7.2", ["0.5.3"], "0.7.2", "0.5.3"),
        ("0.7.2", ["banana"], "0.7.2", "banana"),
        ("0.7.2", ["0.7.2+cu130"], "0.7.2+cu130", ""),
        ("dev", ["0.7.2"], "0.7.2", ""),
        ("0.0.0+unknown", ["0.7.2"], "0.7.2", ""),
    ],
)
def test_the_files_and_not_the_metadata_say_which_version_it_is(tmp_path, files, installed_as, version, claims):
    origin = module(tmp_path, "flashinfer", _build_meta=f"__version__ = {files!r}\n")
    copies = [
        distribution("flashinfer-python", one, str(tmp_path), metadata=f"{tmp_path}/{one}.dist-info")
        for one in installed_as
    ]
    found = package(seen(*copies, flashinfer=origin), "flashinfer-python")
    assert (found.version, found.claims, found.shadowed) == (version, claims, ())
    assert found.leftovers == tuple(
        f"{tmp_path}/{one}.dist-info" for one in installed_as if one not in {version, claims}
    )


def test_providers_of_the_jit_cache_are_packages_of_their_own():
    found = packages(seen(distribution("flashinfer-jit-cache-sm90a", "0.7.2+cu130", "/a")))
    provider = found["flashinfer-jit-cache-sm90a"]
    assert isinstance(provider, Package)
    assert provider.version == "0.7.2+cu130"


def test_a_source_tree_that_is_imported_in_place_of_the_installed_package_counts(tmp_path):
    text = '__version__ = "0.6.0"\n__git_version__ = "0e68a2febc58df99429f652769c5c485ca67fc39"\n'
    origin = module(tmp_path / "tree", "flashinfer", _build_meta=text)
    found = package(seen(distribution("flashinfer-python", "0.7.2", "/site"), flashinfer=origin), "flashinfer-python")
    assert isinstance(found, Package)
    assert (found.version, found.location, found.shadowed) == ("0.6.0", str(tmp_path / "tree"), ("0.7.2 in /site",))
    assert found.commit == "0e68a2febc58df99429f652769c5c485ca67fc39"


def test_a_source_tree_without_version_is_not_given_the_version_of_the_installed_one(tmp_path):
    origin = module(tmp_path, "flashinfer")
    found = package(seen(distribution("flashinfer-python", "0.7.2", "/site"), flashinfer=origin), "flashinfer-python")
    assert isinstance(found, Package)
    assert isinstance(found.version, Missing)


def test_the_copy_beside_the_imported_module_counts_even_if_another_comes_first(tmp_path):
    origin = module(tmp_path / "b", "vllm")
    left_over = distribution("vllm", "0.9", tmp_path / "a")
    found = package(seen(left_over, distribution("vllm", "0.11", tmp_path / "b"), vllm=origin), "vllm")
    assert isinstance(found, Package)
    assert (found.version, found.shadowed) == ("0.11", (f"0.9 in {tmp_path / 'a'}",))


def test_an_editable_package_lies_in_its_source_tree(tmp_path):
    origin = module(tmp_path / "vllm" / "src", "vllm")
    copy = distribution("vllm", "0.11", "/site", editable=True, source=str(tmp_path / "vllm"))
    found = package(seen(copy, vllm=origin), "vllm")
    assert isinstance(found, Package)
    assert (found.editable, found.location, found.shadowed) == (True, str(tmp_path / "vllm"), ())


def test_a_package_whose_folder_is_a_link_lies_where_the_link_is(tmp_path):
    module(tmp_path / "store", "flashinfer")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/flashinfer").symlink_to(tmp_path / "store/flashinfer")
    copy = distribution("flashinfer-python", "0.7.2", tmp_path / "site")
    found = package(seen(copy, flashinfer=tmp_path / "site/flashinfer/__init__.py"), "flashinfer-python")
    assert isinstance(found, Package)
    assert (found.version, found.location, found.shadowed) == ("0.7.2", str(tmp_path / "site"), ())


@pytest.mark.parametrize(
    ("name", "files", "version", "commit"),
    [
        ("flashinfer", {"_build_meta": '__git_commit__ = "abcdef1234"'}, "0.7.2", "abcdef1234"),
        ("vllm", {"_version": "__commit_id__ = commit_id = 'g1a2b3c4'"}, "0.11", "1a2b3c4"),
        ("vllm", {"_version": "commit_id = None"}, "0.11.1.dev3+g1a2b3c4d5", "1a2b3c4d5"),
        ("vllm", {}, "0.11.1.dev3+cu129.g1a2b3c4d5", "1a2b3c4d5"),
        ("torch", {"version": "git_version: str = 'cf30153c4c131c81'"}, "2.9", "cf30153c4c131c81"),
        ("flashinfer", {"_build_meta": '__git_version__ = "unknown"'}, "0.5.3", None),
        ("torch", {"version": "this is no python ("}, "2.9", None),
    ],
    ids=["flashinfer", "vllm", "vllm of a tag", "vllm wheel", "torch", "unknown", "broken file"],
)  # fmt: skip
def test_the_commit_comes_from_the_package_s_own_files(tmp_path, name, files, version, commit):
    dist = "flashinfer-python" if name == "flashinfer" else name
    found = package(seen(distribution(dist, version, tmp_path), **{name: module(tmp_path, name, **files)}), dist)
    assert isinstance(found, Package)
    assert found.commit == (commit or Missing(reason="neither its metadata nor its files name a commit"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from typing import Optional\n__version__ = '2.9.1+cu130'\ncuda: Optional[str] = '13.0'\n", "13.0"),
        ("__version__ = '2.8.0'\ncuda = '12.8'\n", "12.8"),
        (
            "__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n",
            Missing(reason="torch 2.13.0+cpu is built without CUDA"),
        ),
        ("__version__ = '2.9'\ncuda = None\nhip = '6.4'\n", Missing(reason="torch 2.9 is built for ROCm 6.4")),
    ],
    ids=["annotated", "plain", "cpu", "rocm"],
)
def test_torch_names_the_cuda_that_it_was_built_with(tmp_path, text, expected):
    assert torch_cuda(seen(torch=module(tmp_path, "torch", version=text))) == expected


def test_a_torch_without_version_file_gives_a_reason(tmp_path):
    found = torch_cuda(seen(torch=module(tmp_path, "torch")))
    assert isinstance(found, Missing)
    assert "version.py: No such file" in found.reason
    assert torch_cuda(seen()) == Missing(reason="torch is not installed in /venv/bin/python")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.3+cu129", "12.9"),
        ("0.7.2+cu130", "13.0"),
        ("0.7.2.dev20260101+g1234567.cu134", "13.4"),
        ("0.7.2+cu130.d20260101", "13.0"),
        ("0.5.3", Missing(reason="the version 0.5.3 of flashinfer-jit-cache has no +cuXYZ tag")),
    ],
)
def test_the_jit_cache_names_its_cuda_in_its_version(version, expected):
    assert jit_cache_cuda(seen(distribution("flashinfer-jit-cache", version, "/a"))) == expected


def script(folder, text, name="python"):
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def failure(python, **environ):
    with pytest.raises(TargetError) as caught:
        survey(python, {**os.environ, **environ})
    assert caught.value.todo
    assert python in caught.value.what
    return caught.value.why


def test_an_interpreter_that_is_not_there_says_so(tmp_path):
    assert failure(str(tmp_path / "none")) == "there is no such file"
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    assert str(tmp_path / "gone") in failure(str(tmp_path / "dangling"))
    assert failure("no-such-python-here") == "there is no 'no-such-python-here' on PATH"


def test_a_folder_is_no_interpreter_but_the_one_inside_is_proposed(tmp_path):
    (tmp_path / "bin").mkdir()
    inner = script(tmp_path / "bin", "")
    with pytest.raises(TargetError) as caught:
        survey(str(tmp_path), os.environ)
    assert caught.value.why == "it is a directory"
    assert caught.value.todo == f"fi-doctor check --python {inner}"


def test_the_interpreter_in_a_folder_is_named_so_that_it_can_be_pasted(tmp_path):
    inner = tmp_path / "my env/bin/python"
    inner.parent.mkdir(parents=True)
    inner.touch()
    with pytest.raises(TargetError) as caught:
        survey(str(tmp_path / "my env"), os.environ)
    assert caught.value.todo == f"fi-doctor check --python '{inner}'"


def test_a_file_that_is_not_executable_says_so(tmp_path):
    (tmp_path / "python").write_text("")
    assert failure(str(tmp_path / "python")) == "it is not executable"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/bin/sh\necho error while loading shared libraries >&2\nexit 127\n", "code 127 after"),
        ("#!/bin/sh\nkill -SEGV $$\n", "signal 11 ended it"),
        ("#!/bin/sh\necho hello\n", "it is not a Python"),
        ('#!/bin/sh\necho "$2{}$2"\n', "something else than a survey"),
        ('#!/bin/sh\necho "$2[rubbish$2"\n', "something else than a survey"),
        ("#!/nowhere/interpreter\n", "could not be started"),
        ("\x00\x01\x02", "could not be started"),
    ],
    ids=["loader fails", "crashes", "another program", "empty answer", "rubbish", "no shebang target", "no program"],
)
def test_an_interpreter_without_an_answer_says_how_it_ended(tmp_path, text, words):
    assert words in failure(script(tmp_path, text))


def test_its_last_words_are_told(tmp_path):
    assert failure(script(tmp_path, "#!/bin/sh\necho libpython3.12.so.1.0: cannot open >&2\nexit 1\n")).endswith(
        "cannot open"
    )


def test_an_interpreter_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(installed, "SURVEY_TIMEOUT_S", 0.3)
    assert "no answer within" in failure(script(tmp_path, "#!/bin/sh\nsleep 60\n"))


def test_a_name_is_looked_up_on_the_given_path(tmp_path):
    (tmp_path / "mine").symlink_to(sys.executable)
    assert survey("mine", {**os.environ, "PATH": str(tmp_path)}).version == sys.version.split()[0]


def test_a_wrapper_may_tell_what_it_runs(tmp_path):
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho "$@" "$@"\n{sys.executable} "$@"\necho done "$@"\n')
    wrapper.chmod(0o755)
    assert survey(str(wrapper), dict(os.environ)).prefix == sys.prefix
