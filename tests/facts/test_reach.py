"""Whether another user reaches the interpreter and the packages, through the folders of links too."""

import os

import pytest
import serving
from permissions import printed_by

from fi_doctor.facts import permissions, reach
from fi_doctor.facts.packages import Survey

OTHER = serving.user(4242, is_own=False)


@pytest.fixture
def closed(monkeypatch):
    """Folders that the other user may not enter, beside those that all may."""
    names = set()

    def may(path, user, wanted, filesystem=""):
        return permissions.Answer(path not in names, f"{path} is closed")

    monkeypatch.setattr(permissions, "may", may)
    return names


def survey(executable, **modules):
    return Survey(
        executable=str(executable),
        version="3.12.1",
        implementation="cpython",
        prefix="/",
        base_prefix="/",
        sys_path=(),
        distributions=(),
        modules={name: str(path) for name, path in modules.items()},
        problems=(),
    )


def test_the_first_closed_folder_on_the_way_of_a_link_is_named(tmp_path, closed):
    (tmp_path / "pyenv/bin").mkdir(parents=True)
    (tmp_path / "pyenv/bin/python3").touch()
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to("python3")
    (tmp_path / "venv/bin/python3").symlink_to("../../pyenv/bin/python3")
    found = survey(tmp_path / "venv/bin/python")
    assert reach.read_unreachable(found, OTHER, []) == ()
    closed |= {str(tmp_path / "pyenv"), str(tmp_path / "pyenv/bin")}
    assert reach.read_unreachable(found, OTHER, []) == (f"{found.executable}: {tmp_path}/pyenv is closed",)


def test_folders_of_packages_count_and_this_user_is_never_asked_about(tmp_path, closed):
    (tmp_path / "site/vllm").mkdir(parents=True)
    found = survey("/bin/sh", vllm=tmp_path / "site/vllm/__init__.py")
    closed.add(str(tmp_path / "site"))
    told = reach.read_unreachable(found, OTHER, [])
    assert [words.partition(": ")[0] for words in told] == [str(tmp_path / "site"), str(tmp_path / "site/vllm")]
    assert reach.read_unreachable(found, serving.user(), []) == ()


def test_a_loop_of_links_comes_to_an_end(tmp_path, closed):
    (tmp_path / "loop").symlink_to("loop")
    assert reach.read_unreachable(survey(tmp_path / "loop"), OTHER, []) == ()
    assert os.path.lexists(tmp_path / "loop")


def test_a_cache_behind_a_closed_folder_is_not_writable_for_who_asks(tmp_path):
    code = """
import sys
from fi_doctor.facts import folders
from fi_doctor.facts.users import own_user
around = folders.Surroundings(user=own_user({}), environ={}, mounts=[])
print(folders._read("jit-cache", sys.argv[1], around).writable)
"""
    (tmp_path / "closed").mkdir(mode=0)
    assert printed_by(code, tmp_path / "closed" / "x" / "y") == "False\n"
