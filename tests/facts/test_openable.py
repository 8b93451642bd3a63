"""Where the dynamic linker would look for a library, and what would hold it there."""

import os

import pytest
from elf_samples import elf

from fi_doctor.facts import nvml_reasons
from fi_doctor.facts.openable import why_not_openable

NAME = "libcuda.so.1"


def why(folders, cache="/nowhere"):
    looked = []
    environ = {"LD_LIBRARY_PATH": ":".join(map(str, folders))} if folders else {}
    return why_not_openable(NAME, environ, looked.append, str(cache)), looked


@pytest.fixture
def folders(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_a_pipe_that_comes_first_is_named(folders):
    os.mkfifo(folders[1] / NAME)
    said, looked = why(folders)
    assert said == f"{folders[1]}/{NAME} is not a file"
    assert looked[-1] == f"{folders[1]}/{NAME}"


def test_what_comes_after_the_library_is_not_looked_at(folders):
    (folders[0] / NAME).write_bytes(elf(b""))
    os.mkfifo(folders[1] / NAME)
    assert why(folders)[0] == ""


def test_what_no_loader_takes_hides_nothing(folders):
    (folders[0] / NAME).mkdir()
    os.mkfifo(folders[1] / NAME)
    assert why(folders)[0]


def test_the_cache_of_the_loader_is_looked_into(folders, tmp_path):
    os.mkfifo(folders[0] / NAME)
    (tmp_path / "cache").write_bytes(b"glibc\0" + str(folders[0] / NAME).encode() + b"\0")
    assert why((), tmp_path / "cache")[0] == f"{folders[0]}/{NAME} is not a file"


def test_a_file_system_that_hangs_is_named_with_the_file():
    words = nvml_reasons.why_hung("/mnt/x/libnvidia-ml.so.1 was being opened", 10)
    assert (
        words
        == "NVML was not asked: /mnt/x/libnvidia-ml.so.1 was being opened, and not within 10 s: its file system hangs"
    )
