"""What is remembered of shared objects: they are read again when they are not as they were, and only then."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from fi_doctor.facts import libraries, packages, remembered
from fi_doctor.locking import readings

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="builds shared objects with gcc")


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Finds the libraries, and says which files were read for it."""
    monkeypatch.setattr(remembered, "FRESH_NS", -(10**18))  # files count as old enough to be remembered at once
    build(tmp_path / "ld" / "libcudart.so.13", "libhelper.so.1")
    build(tmp_path / "ld" / "libhelper.so.1")
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "ld")}
    # Nothing of what is installed beside the tests: a torch with CUDA brings libraries of its own, which come first.
    survey = replace(packages.survey(sys.executable, environ), sys_path=(), distributions=(), modules={})
    files = []

    def told(path):
        files.append(Path(path).name)
        return libraries.read_elf(path)

    monkeypatch.setattr(readings, "read_elf", told)

    def again():
        files.clear()
        found = readings.Readings(tmp_path / "memory").libraries(environ, survey)
        assert found == libraries.read_libraries(environ, survey)
        return found, [*files]

    return again


def build(path, *needs):
    path.parent.mkdir(exist_ok=True)
    options = ["-Wl,--no-as-needed", f"-L{path.parent}", *(f"-l:{name}" for name in needs)]
    for name in needs:
        build(path.parent / name)
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-x", "none", "-o", path, *options]
    subprocess.run(command, input=b"int answer;", check=True)


def test_nothing_is_read_twice(read):
    found, files = read()
    assert found["cudart"].path.endswith("/ld/libcudart.so.13")
    assert "libcudart.so.13" in files
    assert read() == (found, [])


def test_a_file_that_changes_is_read_again_alone(read, tmp_path):
    read()
    library = tmp_path / "ld" / "libcudart.so.13"
    library.write_bytes(b"no library any more")
    found, files = read()
    assert set(files) == {"libcudart.so.13"}
    assert getattr(found["cudart"], "path", "") != str(library)


def test_a_library_that_comes_is_found_and_one_that_goes_is_not(read, tmp_path):
    read()
    shutil.move(tmp_path / "ld" / "libcudart.so.13", tmp_path / "ld" / "libcudart.so.99")
    found, files = read()
    assert found["cudart"].path.endswith("/ld/libcudart.so.99")
    assert files == ["libcudart.so.99"]


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b'["1", {"/x": 1}]', b'["0", {}]'])
def test_a_memory_that_cannot_be_used_is_none(read, tmp_path, text):
    found, files = read()
    (tmp_path / "memory" / "elves.json").write_bytes(text)
    assert read() == (found, files)
