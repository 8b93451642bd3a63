"""What lies around packages and toolkit: leftovers, CUDA majors, limits of nvcc, tables of Ray's variables."""

from __future__ import annotations

import os

import factory as make
import pytest
from environment_on_disk import HOST_CONFIG, RAY
from msgspec.structs import replace

from fi_doctor.facts.host_limits import find_compiler, parse_limits, parse_version
from fi_doctor.facts.ray import parse
from fi_doctor.facts.site import cuda_major, read_site
from fi_doctor.model import Missing, Site


@pytest.mark.parametrize(
    ("name", "major"),
    [
        ("nvidia-cudnn-cu12", 12),
        ("nvidia-cublas", 0),
        ("cupy-cuda12x", 12),
        ("nvidia-cutlass-dsl-libs-cu12", 0),
        ("nvshmem4py-cu13", 13),
        ("torch", 0),
    ],
)
def test_a_name_tells_its_cuda_major(name, major):
    assert cuda_major(name) == major


def _site(folder, *names):
    for name in names:
        (folder / name).mkdir()
    return read_site(replace(make.survey(), sys_path=(str(folder),), prefix=str(folder)), {})


def test_leftovers_of_other_packages_are_none_of_ours(tmp_path):
    site = _site(tmp_path, "~lashinfer_python-0.5.3.dist-info", "~%vllm", "~equests", "~", "flashinfer")
    assert isinstance(site, Site)
    assert site.leftovers == (f"{tmp_path}/~%vllm", f"{tmp_path}/~lashinfer_python-0.5.3.dist-info")


def test_what_cannot_be_listed_has_a_reason(tmp_path):
    survey = replace(make.survey(), sys_path=(str(tmp_path / "gone"),))
    assert isinstance(read_site(survey, {}), Missing)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    info = tmp_path / "vllm-0.33.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: vllm\n")
    os.mkfifo(info / "INSTALLER")
    os.mkfifo(tmp_path / "pyvenv.cfg")
    site = _site(tmp_path)
    assert isinstance(site, Site)
    assert (site.broken, site.by_uv) == ({}, False)


def test_the_limits_are_those_of_the_header():
    assert parse_limits(HOST_CONFIG) == (15, 20)
    assert all(isinstance(limit, Missing) for limit in parse_limits("#pragma once\n"))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ("gcc", "PATH", True)),
        ({"NVCC_CCBIN": "g++-14", "CC": "gcc-15"}, ("gcc-15", "CC", True)),
        ({"CC": "gcc-15", "FLASHINFER_EXTRA_CUDAFLAGS": "-ccbin clang"}, ("clang", "FLASHINFER_EXTRA_CUDAFLAGS", True)),
        ({"NVCC_APPEND_FLAGS": "-allow-unsupported-compiler"}, ("gcc", "PATH", False)),
    ],
)
def test_the_last_word_on_the_host_compiler_counts(environ, expected):
    assert find_compiler(environ) == expected


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0", ("gcc", 13)),
        ("x86_64-conda-linux-gnu-c++ (conda-forge gcc 12.4.0-1) 12.4.0", ("gcc", 12)),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", ("clang", 18)),
    ],
)
def test_a_compiler_tells_its_family_and_major(line, found):
    assert parse_version(line) == found


def test_the_tables_of_ray_are_read_and_others_are_not_guessed():
    copies = parse(RAY)
    assert not isinstance(copies, Missing)
    assert copies.prefixes == ("HF_", "NCCL_", "VLLM_")
    assert "PYTHONHASHSEED" in copies.names
    assert isinstance(parse("PREFIXES = prefix()\ndef get_env_vars_to_copy(): ...\n"), Missing)
    assert isinstance(parse("DEFAULT_ENV_VAR_PREFIXES = other()\ndef get_env_vars_to_copy(): ...\n"), Missing)
    assert parse("def get_env_vars_to_copy(): ...\n").prefixes == ()


@pytest.mark.parametrize(
    ("kept", "prefix", "expected"),
    [("", "", True), ("vllm/__pycache__", "", False), ("vllm/__pycache__", "/pyc", True), ("pyc", "/pyc", False)],
    ids=["none", "beside", "elsewhere than looked for", "below the prefix"],
)
def test_packages_without_bytecode_are_told(tmp_path, kept, prefix, expected):
    module = tmp_path / "vllm"
    module.mkdir()
    (module / "__init__.py").touch()
    survey = replace(make.survey(), sys_path=(str(tmp_path),), modules={"vllm": f"{module}/__init__.py"})
    if kept:
        folder = tmp_path / kept if kept != "pyc" else tmp_path / f"pyc{module}"
        folder.mkdir(parents=True)
        (folder / f"__init__.cpython-{''.join(survey.version.split('.')[:2])}.pyc").touch()
    seen = read_site(survey, {"PYTHONPYCACHEPREFIX": f"{tmp_path}{prefix}"} if prefix else {})
    assert seen.uncompiled == ((str(module),) if expected else ())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("torch-2.14.0.dist-info", {"torch": "2.14.0"}),
        ("Some.Thing_x-1.0+cu130.dist-info", {"some-thing-x": "1.0+cu130"}),
        ("PyYAML-6.0.2-py3.11.egg-info", {"pyyaml": "6.0.2"}),
        ("vllm.egg-info", {"vllm": ""}),
        ("~orch-2.14.0.dist-info", {}),
        ("torch", {}),
    ],
)
def test_every_distribution_is_told_by_the_name_of_its_metadata(tmp_path, name, expected):
    (tmp_path / name).mkdir()
    assert _site(tmp_path).installed == expected


def test_of_two_versions_in_one_folder_neither_is_taken(tmp_path):
    for name in ("x-1.0.dist-info", "x-2.0.dist-info"):
        (tmp_path / name).mkdir()
    assert _site(tmp_path).installed == {"x": ""}


def test_where_a_folder_is_an_archive_it_is_not_known_what_is_installed(tmp_path):
    (tmp_path / "all.zip").touch()
    survey = replace(make.survey(), sys_path=(str(tmp_path), f"{tmp_path}/all.zip"))
    assert read_site(survey, {}).unlisted == f"{tmp_path}/all.zip cannot be listed"
