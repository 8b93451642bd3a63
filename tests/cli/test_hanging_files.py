"""Files that are none: a pipe to which nobody writes, where a library, a build file or metadata should be."""

import os
import time

import pytest
from cli_command import ROOT

LIMIT_S = 30


@pytest.fixture
def site(tmp_path):
    """A folder with a FlashInfer that has nothing but its version, and a cache with one module."""
    folder = tmp_path / "site"
    (folder / "flashinfer").mkdir(parents=True)
    (folder / "flashinfer" / "__init__.py").touch()
    (folder / "flashinfer" / "_build_meta.py").write_text('__version__ = "0.7.2.post1"\n')
    (tmp_path / ".cache/flashinfer/0.7.2.post1/90a/cached_ops/norm").mkdir(parents=True)
    return folder


@pytest.fixture
def ends(doctor, site):
    """ends(*words): the command, which has to end by itself, and not at the limit of the test."""

    def run(*words, **environ):
        begun = time.monotonic()
        is_of_examined = "LD_LIBRARY_PATH" not in environ  # else the command itself loads what is there
        done = doctor(*words, env={"PYTHONPATH": f"{site}:{ROOT}", **environ}, of_examined=is_of_examined)
        assert time.monotonic() - begun < LIMIT_S
        return done

    return run


def test_a_pipe_in_place_of_a_build_file_holds_nobody(ends, tmp_path):
    os.mkfifo(tmp_path / ".cache/flashinfer/0.7.2.post1/90a/cached_ops/norm/build.ninja")
    assert ends("cache").returncode == 0
    assert ends("check", "--depth", "static").returncode == 3


@pytest.mark.parametrize("name", ["libnvidia-ml.so.1", "libcuda.so.1"])
def test_a_pipe_in_place_of_a_library_of_the_driver_is_named(ends, tmp_path, name):
    (tmp_path / "driver").mkdir()
    os.mkfifo(tmp_path / "driver" / name)
    done = ends("check", "--depth", "static", "-f", "json", LD_LIBRARY_PATH=f"/nowhere:{tmp_path / 'driver'}")
    assert done.returncode == 3, done.stderr
    if name != "libcuda.so.1":  # which a static check without NVML does not ask
        assert f"{tmp_path}/driver/{name} is not a file" in done.stdout


@pytest.mark.parametrize("name", ["METADATA", "direct_url.json"])
def test_a_pipe_in_place_of_metadata_is_named(ends, site, name):
    info = site / "flashinfer_python-0.7.2.post1.dist-info"
    info.mkdir()
    if name != "METADATA":
        (info / "METADATA").write_text("Name: flashinfer-python\nVersion: 0.7.2.post1\n\n")
    os.mkfifo(info / name)
    done = ends("check", "--depth", "static", "-f", "json")
    assert done.returncode == 3, done.stderr
    if name == "METADATA":
        assert f"{info}/METADATA: it is not a file" in done.stdout


def test_metadata_larger_than_any_is_named(ends, site):
    info = site / "flashinfer_python-0.7.2.post1.dist-info"
    info.mkdir()
    with (info / "METADATA").open("wb") as file:
        file.truncate(3 << 30)
    done = ends("check", "--depth", "static", "-f", "json")
    assert done.returncode == 3, done.stderr
    assert f"{info}/METADATA: it is larger than 8 MiB" in done.stdout


@pytest.mark.parametrize(
    "name",
    ["flashinfer/__init__.py", "flashinfer/jit/core.py", "flashinfer/compilation_context.py", "torch/version.py"],
)
def test_a_pipe_in_place_of_source_holds_nobody(ends, site, name):
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).unlink(missing_ok=True)
    os.mkfifo(site / name)
    assert ends("check", "--depth", "static").returncode == 3
