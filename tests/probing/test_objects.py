import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from fi_doctor.model import Missing
from fi_doctor.probing import objects

NINJA = "rule cuda\nbuild norm/a.cuda.o: cuda a.cu\nbuild b.o: cxx b.cpp\nbuild norm/norm.so: link norm/a.cuda.o b.o\n"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "cached_ops" / "norm"
    folder.mkdir(parents=True)
    return folder


def test_objects_are_counted_as_they_appear(tmp_path, folder):
    module = objects.Module("norm", tmp_path, prebuilt=False)
    assert module.progress() is None
    (folder / "build.ninja").write_text(NINJA)
    assert module.progress() == (0, 2)
    (folder / "a.cuda.o").touch()
    assert module.progress() == (1, 2)


def test_a_module_that_nothing_was_compiled_of_was_finished(tmp_path, folder):
    (folder / "norm.so").touch()
    (folder / "a.cuda.o").touch()
    (folder / "build.ninja").write_text(NINJA)
    module = objects.Module("norm", tmp_path, prebuilt=False)
    assert module.was_finished()
    assert module.progress() is None
    os.utime(folder / "norm.so", ns=(1, 1))
    assert not module.was_finished()


def test_a_module_that_was_not_there_was_not_finished(tmp_path, folder):
    module = objects.Module("norm", tmp_path, prebuilt=False)
    (folder / "norm.so").touch()
    assert not module.was_finished()


def test_names_that_go_on_are_counted_when_the_exact_one_is_absent(tmp_path):
    long = tmp_path / "cached_ops" / "batch_decode_with_kv_bf16"
    long.mkdir(parents=True)
    (long / "build.ninja").write_text(NINJA)
    assert objects.Module("batch_decode", tmp_path, prebuilt=False).progress() == (0, 2)


def test_the_same_place_under_another_base_is_looked_at(tmp_path, flashinfer_facts):
    folder = tmp_path / ".cache/flashinfer/0.7.2.post1/90a/cached_ops/norm"
    folder.mkdir(parents=True)
    (folder / "build.ninja").write_text(NINJA)
    assert objects.module_of("norm", flashinfer_facts, tmp_path).progress() == (0, 2)
    assert objects.module_of("norm", flashinfer_facts, Path("/nowhere")).progress() is None


def test_builds_lock_the_folder_of_all_modules_where_they_share_a_log(flashinfer_facts):
    shared = replace(flashinfer_facts, shared_ninja_log=True, jit_cache_modules=("norm",))
    place = Path(".cache/flashinfer/0.7.2.post1/90a/cached_ops")
    assert objects.build_lock("page", shared, None) == Path("/home/me") / place
    assert objects.build_lock("page", shared, Path("/scratch")) == Path("/scratch") / place
    assert objects.build_lock("norm", shared, None) is None  # prebuilt
    assert objects.build_lock("page", flashinfer_facts, None) is None
    assert objects.build_lock("page", replace(shared, cache_dir=Missing(reason="no GPU")), None) is None
    assert objects.build_lock("page", Missing(reason="not installed"), None) is None


def test_a_prebuilt_module_is_finished_and_no_module_never_is(flashinfer_facts):
    facts = replace(flashinfer_facts, jit_cache_modules=("norm", ""))
    assert objects.module_of("norm", facts, None).was_finished()
    assert not objects.module_of("", facts, None).was_finished()
