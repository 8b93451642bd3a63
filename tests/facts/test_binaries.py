"""What is read of shared objects, of those that are none, and what is remembered of them."""

from __future__ import annotations

import os
import pathlib
import time

import factory as make
import pytest
from elf_samples import CUBIN, FAMILY, LZ4, PTX, SPECIFIC, ZSTD, container, elf, entry, for_another, library

from fi_doctor.facts import binaries as reading
from fi_doctor.facts.binaries import Reader, read_binary
from fi_doctor.facts.elf import Unreadable
from fi_doctor.facts.torch_symbols import TORCH, TVM_FFI, LibrarySymbols
from fi_doctor.model import Missing
from fi_doctor.reports import binaries as reports

REAL = pathlib.Path(__file__).parent / "data" / "nvcc_13_0.so"
NO_CACHE = make.missing("not known")
ONE = container(entry(CUBIN, 90, SPECIFIC))


def _write(path: pathlib.Path, data: bytes, *, age_s: int = 60) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return str(path)


def _read(tmp_path: pathlib.Path, data: bytes):
    return read_binary(_write(tmp_path / "x.so", data), "vllm")


def _found(tmp_path: pathlib.Path, *named: object, survey=None, cache=NO_CACHE):
    reader = Reader(tuple(map(str, named)), tmp_path / "memory")
    return reader.read_packages(survey or make.survey()).finish(cache)


def test_a_library_that_nvcc_has_made_is_read_as_cuobjdump_reads_it():
    """cuobjdump -lelf -lptx lists 8 cubins and 2 PTX; of sm_100f it leaves the f out, which its arch line has."""
    binary, problem = read_binary(str(REAL), "--binary")
    assert binary.units == {
        "sm_80 sm_90a sm_100f sm_120a": 1,
        "sm_80 sm_90a sm_100f sm_120a compute_80 compute_120a": 1,
    }
    assert binary.ptx == {"compute_120a": "9.0", "compute_80": "9.0"}
    assert binary.needed == ("libcudart.so.13", "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6")
    assert not problem


def test_compressed_entries_are_read_by_their_headers(tmp_path):
    fatbin = container(entry(CUBIN, 100, FAMILY | ZSTD), entry(PTX, 80, LZ4, version=(8, 7)), entry(PTX, 80))
    binary, _ = _read(tmp_path, elf(fatbin, needed=(b"libcudart.so.12", b"lib\xff.so")))
    assert binary.units == {"sm_100f compute_80": 1}
    assert binary.ptx == {"compute_80": "8.7"}
    assert binary.needed == ("libcudart.so.12", "lib\\xff.so")


def test_a_library_without_gpu_code_has_no_units(tmp_path):
    assert _read(tmp_path, elf())[0].units == {}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"#!/bin/sh\n", "not ELF"),
        (b"\x7fELF\x02\x01", "cut off in its ELF header"),
        (b"\x7fELF\x01\x01" + bytes(80), "32-bit"),
        (b"\x7fELF\x02\x02" + bytes(80), "little-endian"),
        (elf(ONE)[:-10], "cut off before its section headers"),
        (elf(ONE)[:64] + bytes(0), "cut off before its section headers"),
    ],
    ids=["empty", "script", "short", "32-bit", "big-endian", "cut-off", "head-only"],
)
def test_what_is_no_whole_library_has_a_reason(tmp_path, data, why):
    with pytest.raises(Unreadable, match=why):
        _read(tmp_path, data)


@pytest.mark.parametrize(
    ("fatbin", "why"),
    [
        (ONE + container(entry(CUBIN, 90), size=2**63), "longer than its section"),
        (ONE + container(entry(CUBIN, 90, size=2**64 - 1)), "longer than the fatbin"),
        (ONE + container(entry(CUBIN, 90, size=2**64 - 64)), "longer than the fatbin"),
        (ONE + b"\1" * 64, "no fatbin header"),
        (ONE + bytes(1 << 16), "no fatbin header"),
    ],
    ids=["container", "entry", "backwards", "rubbish", "hole"],
)
def test_sizes_that_lie_end_the_reading_and_what_stood_before_is_kept(tmp_path, fatbin, why):
    binary, problem = _read(tmp_path, elf(fatbin))
    assert why in problem
    assert binary.units["sm_90a"] == 1


def test_entries_of_no_size_are_counted_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("fi_doctor.facts.fatbin._MOST_STEPS", 50)
    _, problem = _read(tmp_path, elf(container(*[entry(CUBIN, 90, payload=0)] * 100)))
    assert "more entries than are read" in problem


def test_containers_of_no_size_are_counted_to_the_same_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("fi_doctor.facts.fatbin._MOST_STEPS", 50)
    _, problem = _read(tmp_path, elf(container() * 100))
    assert "more entries than are read" in problem


def test_every_cut_of_a_library_gives_a_reason_or_a_reading(tmp_path):
    whole = elf(ONE, needed=(b"libc.so.6",), undefined=(b"_ZN3c105ErrorC1Ev",))
    for length in range(0, len(whole), 7):
        with pytest.raises(Unreadable):
            _read(tmp_path, whole[:length])


def test_odd_files_have_reasons_and_block_nothing(tmp_path):
    (tmp_path / "loop.so").symlink_to("loop.so")
    os.mkfifo(tmp_path / "pipe.so")
    (tmp_path / "folder.so").mkdir()
    with (tmp_path / "sparse.so").open("wb") as file:
        file.truncate(3 << 30)
    (tmp_path / os.fsdecode(b"\xff.so")).write_bytes(elf(ONE))
    found = _found(tmp_path, tmp_path)
    reasons = {pathlib.Path(path).name: why for path, why in found.unread.items()}
    assert reasons == {
        "loop.so": "Too many levels of symbolic links",
        "pipe.so": "it is not a file",
        "folder.so": "it is not a file",
        "sparse.so": "it is not ELF",
    }
    assert [one.units for one in found.files] == [{"sm_90a": 1}]


def test_a_place_that_is_not_there_and_an_empty_folder_are_said(tmp_path):
    (tmp_path / "empty").mkdir()
    found = _found(tmp_path, tmp_path / "none.so", tmp_path / "empty")
    assert found.unread == {
        str(tmp_path / "empty"): "there is no shared object in this folder",
        str(tmp_path / "none.so"): "No such file or directory",
    }


def test_what_is_named_is_told_also_where_it_belongs_to_a_package(tmp_path):
    path = _write(tmp_path / "site/vllm/_C.so", elf())
    survey = make.survey(vllm=str(tmp_path / "site/vllm/__init__.py"))
    found = _found(tmp_path, path, survey=survey)
    assert [one.owner for one in found.files] == ["vllm"]
    assert found.named == (path,)
    facts = make.facts(binaries=found)
    assert f"{path}: no GPU code" in reports.lines(facts)
    assert reports.lines(make.facts(binaries=_found(tmp_path, survey=survey))) == []


@pytest.mark.parametrize("name", ["libx.so.12", "x.libs/a.so"])
def test_a_folder_that_is_named_is_looked_through_whole(tmp_path, name):
    path = _write(tmp_path / "named" / name, elf(ONE))
    assert [one.path for one in _found(tmp_path, tmp_path / "named").files] == [path]


def test_a_library_for_another_processor_is_refused(tmp_path):
    with pytest.raises(Unreadable, match=r"it is for another processor \("):
        _read(tmp_path, for_another(elf(ONE)))


def test_libraries_of_packages_and_of_the_cache_are_found(tmp_path):
    site = tmp_path / "my site"
    for name in (
        "vllm/_C.abi3.so",
        "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",
        "vllm/third_party/deep_gemm/_C.so",
        "torch/lib/libtorch_cuda.so",
        "flashinfer_jit_cache/jit_cache/norm/norm.so",
        "flashinfer_jit_cache_sm90a/jit_cache/moe/moe.so",
        "cache/cached_ops/page/page.so",
    ):
        _write(site / name, elf(ONE))
    modules = {name: str(site / name / "__init__.py") for name in ("vllm", "torch")}
    survey = make.replace(make.survey(**modules), sys_path=("", str(site)))
    found = _found(tmp_path, survey=survey, cache=str(site / "cache"))
    owners = [one.owner for one in found.files]
    assert {name: owners.count(name) for name in owners} == {
        "vllm": 3,
        "torch": 1,
        "flashinfer-jit-cache": 2,
        "flashinfer cache": 1,
    }


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path, monkeypatch):
    # What has just been written is not trusted, whatever its times were set to; the clock is put forward instead.
    path, now = _write(tmp_path / "x.so", elf(ONE)), time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**11)
    opened = []
    real = read_binary
    monkeypatch.setattr(reading, "read_binary", lambda *given, **more: opened.append(given) or real(*given, **more))
    first, second = _found(tmp_path, path), _found(tmp_path, path)
    assert first == second
    assert len(opened) == 1
    _write(tmp_path / "x.so", elf(container(entry(CUBIN, 100))))
    assert [one.units for one in _found(tmp_path, path).files] == [{"sm_100": 1}]
    assert len(opened) == 2


@pytest.mark.parametrize("memory", [b"", b'["1", {"x": 3}]', b'["0", {}]', b"\xff"], ids=["empty", "odd", "old", "raw"])
def test_a_memory_that_is_spoilt_is_not_taken(tmp_path, memory):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "binaries.json").write_bytes(memory)
    assert len(_found(tmp_path, _write(tmp_path / "x.so", elf(ONE))).files) == 1


@pytest.mark.parametrize(
    ("needed", "unresolved"),
    [
        ((b"_ZN3c105ErrorC1Ev", b"aoti_torch_free"), ()),
        ((b"_ZN3c105ErrorC1Ei", b"torch_later", b"cudaMalloc"), ("_ZN3c105ErrorC1Ei", "torch_later")),
    ],
    ids=["defined", "undefined"],
)
def test_symbols_of_torch_are_looked_up_in_its_libraries(tmp_path, needed, unresolved):
    _write(tmp_path / "lib" / "libc10.so", library(b"_ZN3c105ErrorC1Ev"))
    _write(tmp_path / "lib" / "libtorch_cpu.so", library(b"other", b"aoti_torch_free", b"third"))
    symbols = LibrarySymbols(tmp_path / "lib", TORCH)
    path = _write(tmp_path / "x.so", elf(ONE, needed=(b"libtorch.so",), undefined=needed))
    assert read_binary(path, "vllm", symbols)[0].unresolved == unresolved
    symbols.close()


def test_a_torch_that_cannot_be_read_leaves_symbols_unknown(tmp_path):
    _write(tmp_path / "lib" / "libc10.so", b"no ELF")
    symbols = LibrarySymbols(tmp_path / "lib", TORCH)
    path = _write(tmp_path / "x.so", elf(ONE, needed=(b"libtorch.so",), undefined=(b"torch_x",)))
    found = read_binary(path, "vllm", symbols)[0].unresolved
    assert isinstance(found, Missing)
    assert "not ELF" in found.reason
    symbols.close()


def test_symbols_of_tvm_ffi_are_looked_up_for_modules_of_flashinfers(tmp_path):
    _write(tmp_path / "tvm_ffi" / "lib" / "libtvm_ffi.so", library(b"TVMFFIErrorSetRaised", b"other"))
    (tmp_path / "tvm_ffi" / "__init__.py").touch()
    undefined = (b"TVMFFIErrorSetRaised", b"TVMFFIHandleInitOnce", b"_ZN3tvm3ffi8DeepCopyERKNS0_3AnyE", b"cudaMalloc")
    _write(tmp_path / "cache" / "cached_ops" / "norm" / "norm.so", elf(ONE, undefined=undefined))
    survey = make.survey(tvm_ffi=str(tmp_path / "tvm_ffi" / "__init__.py"))
    [found] = _found(tmp_path, survey=survey, cache=str(tmp_path / "cache")).files
    assert found.unresolved == ("TVMFFIHandleInitOnce", "_ZN3tvm3ffi8DeepCopyERKNS0_3AnyE")


def test_without_tvm_ffi_nothing_is_known_of_what_modules_need(tmp_path):
    symbols = LibrarySymbols(tmp_path / "gone", TVM_FFI)
    path = _write(tmp_path / "x.so", elf(ONE, undefined=(b"TVMFFIHandleInitOnce",)))
    assert isinstance(read_binary(path, "flashinfer cache", tvm_ffi=symbols)[0].unresolved, Missing)
