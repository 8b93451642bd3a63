"""Device nodes, and whether libcuda.so.1 is a driver's or the toolkit's stub."""

import os

import pytest

from fi_doctor.facts.driver_files import read_driver_files
from fi_doctor.model import Missing

LARGE = 2 << 20


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dev").mkdir()
    return tmp_path


def library(folder, name, size):
    """libcuda.so.1 in a folder, a link to a file of that size."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as file:
        file.truncate(size)
    if name != "libcuda.so.1":
        (folder / "libcuda.so.1").symlink_to(name)
    return {"LD_LIBRARY_PATH": f"/nowhere:{folder}"}


def test_nodes_of_gpus_are_listed_and_no_others(root):
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia-caps", "nvidia-uvm-tools", "null"):
        (root / "dev" / name).touch()
    nodes = read_driver_files({}, root).nodes
    assert nodes == ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia12", "/dev/nvidiactl")


def test_nothing_there_has_reasons(tmp_path):
    files = read_driver_files({}, tmp_path)
    assert isinstance(files.nodes, Missing)
    if not any(os.path.lexists(f"{folder}/libcuda.so.1") for folder in ("/usr/lib64", "/usr/lib/x86_64-linux-gnu")):
        assert files.libcuda.absent


@pytest.mark.parametrize(
    ("folder", "name", "size", "is_stub"),
    [
        ("lib", "libcuda.so.580.159.04", LARGE, False),
        ("lib", "libcuda.so.580.159.04", 1000, False),  # a driver's by its name
        ("lib64/stubs", "libcuda.so", LARGE, True),
        ("lib", "libcuda.so", 100_000, True),
        ("wsl/lib", "libcuda.so.1.1", 150_000, False),
        ("lib", "libcuda.so.1", LARGE, False),
    ],
)
def test_a_stub_is_told_by_its_folder_or_its_size(root, folder, name, size, is_stub):
    files = read_driver_files(library(root / folder, name, size), root)
    assert files.libcuda == f"{root}/{folder}/{name}"
    assert bool(files.stub) is is_stub


def test_a_link_into_the_stubs_is_one(root):
    library(root / "stubs", "libcuda.so", LARGE)
    (root / "lib").mkdir()
    (root / "lib/libcuda.so.1").symlink_to("../stubs/libcuda.so")
    files = read_driver_files({"LD_LIBRARY_PATH": f"{root}/lib"}, root)
    assert files.stub == f"{root}/lib/libcuda.so.1 lies among the CUDA toolkit's stubs"


def test_a_broken_link_is_passed_over_and_the_cache_is_looked_at(root):
    (root / "lib").mkdir()
    (root / "lib/libcuda.so.1").symlink_to("gone")
    library(root / "far", "libcuda.so.580.95.05", LARGE)
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(b"libcuda.so.1\0" + f"{root}/far/libcuda.so.1".encode() + b"\0")
    files = read_driver_files({"LD_LIBRARY_PATH": f"{root}/lib"}, root)
    assert files.libcuda == f"{root}/far/libcuda.so.580.95.05"


def test_a_compat_library_is_told_from_the_driver_s_wherever_it_comes_first(root):
    library(root / "usr/lib64", "libcuda.so.580.95.05", LARGE)
    library(root / "usr/local/cuda-12.9/compat", "libcuda.so.575.57.08", LARGE)
    compat = f"{root}/usr/local/cuda-12.9/compat/libcuda.so.575.57.08"
    files = read_driver_files({}, root)
    assert (files.libcuda, files.compat) == (f"{root}/usr/lib64/libcuda.so.580.95.05", (compat,))
    files = read_driver_files({"LD_LIBRARY_PATH": f"{root}/usr/local/cuda-12.9/compat"}, root)
    assert (files.libcuda, files.own_folder) == (compat, f"{root}/usr/lib64")
