"""GPU code in shared objects: real ones that nvcc made, written ones, and files that only look like some."""

import os
import random
import shutil
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.facts import binaries, loader
from fi_doctor.facts.elf import ElfFile, NotReadableError
from fi_doctor.facts.fatbin import gpu_code
from fi_doctor.model import Binary, Loads, Missing, cuda_of_ptx, loads

FILES = {
    "vllm/_C.abi3.so": "vllm",
    "vllm/vllm_flash_attn/fa.so": "vllm",
    "torch/lib/libtorch_cuda.so": "torch",
    "ops/cached_ops/norm/norm.so": "JIT cache",
    "flashinfer_jit_cache/jit_cache/page/page.so": "flashinfer-jit-cache",
    "mine/deep/x.so.1": "--binary",
}
KERNEL = '__global__ void k(int *p) { *p = 1; }\nextern "C" int answer() { return 42; }\n'
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="builds shared objects with gcc")


def entry(kind, architecture, *, flags=0x11, size=24, header=64, version=(9, 0), told=None):
    told = size if told is None else told
    words = struct.pack("<HHIQ8xHHI8xQ", kind, 0x101, header, told, *reversed(version), architecture, flags)
    return words.ljust(header, b"\0") + b"\1" * size


def container(*entries, told=None, magic=0xBA55ED50):
    payload = b"".join(entries)
    return struct.pack("<IHHQ", magic, 1, 16, len(payload) if told is None else told) + payload


def shared_object(folder, section, name="code.so", needs=()):
    """A shared object with that section, made by gcc."""
    raw, path = folder / "raw", folder / name
    raw.write_bytes(section)
    source = f'.section .nv_fatbin,"a"\n.incbin "{raw}"\n'
    options = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", *needs]
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-x", "assembler", "-", "-x", "none", "-o", path, *options],
        input=source.encode(),
        check=True,
    )
    return path


def code_of(path):
    with closing(ElfFile(str(path))) as elf:
        return gpu_code(elf)


@pytest.mark.jit
@pytest.mark.skipif(shutil.which("nvcc") is None or "FI_DOCTOR_NO_JIT" in os.environ, reason="no nvcc, or not wanted")
def test_what_nvcc_has_put_there_is_read(tmp_path):
    (tmp_path / "k.cu").write_text(KERNEL)
    wanted = ["arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a", "arch=compute_120f,code=sm_120f"]
    options = [word for one in (*wanted, "arch=compute_80,code=compute_80") for word in ("-gencode", one)]
    subprocess.run(["nvcc", "-fatbin", *options, "k.cu", "-o", "k.fatbin"], cwd=tmp_path, check=True)
    found = code_of(shared_object(tmp_path, (tmp_path / "k.fatbin").read_bytes()))
    assert set(found.entries) == {"sm_80", "sm_90a", "sm_120f", "compute_80"}
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    assert f"release {cuda_of_ptx(found.ptx)}," in release


@needs_gcc
def test_entries_of_several_containers_are_counted(tmp_path):
    first = container(entry(2, 90, flags=0x108011), entry(2, 90, header=112), entry(1, 80, header=80, version=(8, 8)))
    second = container(entry(2, 100, flags=0x1208011), entry(1, 75, header=80, version=(8, 5)), entry(8, 80))
    found = code_of(shared_object(tmp_path, first + b"\0" * 8 + second))
    assert found.entries == {"compute_75": 1, "compute_80": 1, "sm_100f": 1, "sm_90": 1, "sm_90a": 1}
    assert found.ptx == "8.8"


@needs_gcc
@pytest.mark.parametrize(
    ("section", "why"),
    [
        (container(entry(2, 90, told=1 << 40)), "no whole entry at"),
        (container(entry(2, 90, header=64, told=2**64 - 64)), "no whole entry at"),
        (container(struct.pack("<HHIQ", 2, 0x101, 0, 0).ljust(64, b"\0")), "no whole entry at"),
        (container(entry(2, 90), told=1 << 50), "no whole container at"),
        (container(entry(2, 90), magic=7), "no whole container at"),
    ],
    ids=["long", "wraps", "still", "long-container", "magic"],
)
def test_sizes_that_lie_are_a_reason_and_no_loop(tmp_path, section, why):
    found = binaries.read_binary(str(shared_object(tmp_path, section)), "vllm", None)
    assert isinstance(found, Missing)
    assert why in found.reason


@needs_gcc
def test_a_file_that_is_cut_off_anywhere_is_a_reason(tmp_path):
    whole = shared_object(tmp_path, container(entry(2, 90))).read_bytes()
    cut = tmp_path / "cut.so"
    read = 0
    for size in range(0, len(whole), 37):
        cut.write_bytes(whole[:size])
        found = binaries.read_binary(str(cut), "vllm", None)
        read += isinstance(found, Binary)
        assert isinstance(found, Binary) or str(cut) in found.reason
    assert read == 0


@pytest.mark.parametrize(
    ("make_file", "why"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_text("INPUT(libcudart.so.13)"), "is no ELF file"),
        (lambda path: path.write_bytes(b"\x7fELF\1\1".ljust(64, b"\0")), "for 32 bits"),
        (lambda path: path.write_bytes(b"\x7fELF\2\1".ljust(30, b"\0")), "within its header"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("gone"), "No such file"),
        (os.mkfifo, "is no plain file"),
        (lambda path: path.mkdir(), "is no plain file"),
        (lambda path: (path.touch(), os.truncate(path, 3 << 30)), "is no ELF file"),
    ],
    ids=["empty", "script", "32-bit", "header", "loop", "dangling", "fifo", "folder", "3GiB"],
)
def test_what_is_no_shared_object_is_a_reason(tmp_path, make_file, why):
    path = tmp_path / "bäd name.so"
    make_file(path)
    found = binaries.read_binary(str(path), "vllm", None)
    assert isinstance(found, Missing)
    assert found.reason.startswith(str(path))
    assert why in found.reason


def test_random_headers_are_never_a_crash(tmp_path):
    chance = random.Random(7)
    whole = Path(sys.executable).read_bytes()[: 1 << 16]
    path = tmp_path / "bad.so"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 9)):
            data[chance.randrange(4, 1024)] = chance.randrange(256)
        path.write_bytes(data)
        assert isinstance(binaries.read_binary(str(path), "vllm", None), Binary | Missing)


@needs_gcc
def test_what_the_loader_would_miss_is_named_and_the_driver_is_not(tmp_path):
    names = ("libcudart.so.12", "libcuda.so.1", "libhere.so")
    for name in names:
        shared_object(tmp_path, b"", name)
    section = container(entry(2, 90))
    path = shared_object(tmp_path, section, needs=[f"-L{tmp_path}", *(f"-l:{name}" for name in names)])
    (tmp_path / "libcudart.so.12").unlink()
    (tmp_path / "libcuda.so.1").unlink()
    found = binaries.read_binary(str(path), "vllm", loader.Process(library_path=str(tmp_path), defaults=()))
    assert (found.not_found, found.needs) == (("libcudart.so.12",), ("libcudart.so.12",))
    assert isinstance(binaries.read_binary(str(path), "vllm", None).not_found, Missing)


@needs_gcc
def test_binaries_of_packages_caches_and_named_ones_are_found(tmp_path):
    section = container(entry(2, 90))
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(shared_object(tmp_path, section), tmp_path / name)
    shutil.copy(shared_object(tmp_path, b""), tmp_path / "vllm/cumem.so")
    survey = make.survey(**{name: str(tmp_path / name / "__init__.py") for name in ("vllm", "torch")})
    survey = replace(survey, sys_path=(str(tmp_path),))
    flashinfer = make.flashinfer(cache_dir=str(tmp_path / "ops"), cached_modules=("norm",), jit_cache_modules=("page",))
    found = binaries.read_binaries(survey, flashinfer, None, (str(tmp_path / "mine"), str(tmp_path / "gone.so")))
    told = {os.path.relpath(path, tmp_path): getattr(one, "package", "?") for path, one in found.items()}
    assert told == {**FILES, "gone.so": "?"}


@pytest.mark.parametrize(
    ("code", "sm", "how"),
    [
        ("sm_80", 86, Loads.NATIVE),
        ("sm_86", 80, Loads.NOT),
        ("sm_80", 90, Loads.NOT),
        ("sm_90a", 90, Loads.NATIVE),
        ("sm_100a", 103, Loads.NOT),
        ("sm_100f", 103, Loads.NATIVE),
        ("sm_103f", 100, Loads.NOT),
        ("sm_100f", 110, Loads.NOT),
        ("sm_120f", 121, Loads.NATIVE),
        ("sm_120a", 121, Loads.NOT),
        ("compute_80", 120, Loads.PTX),
        ("compute_90", 89, Loads.NOT),
        ("compute_90a", 90, Loads.PTX),
        ("compute_90a", 100, Loads.NOT),
        ("compute_100f", 103, Loads.PTX),
        ("compute_100f", 120, Loads.NOT),
        ("", 90, Loads.HOST),
    ],
)
def test_which_code_runs_where(code, sm, how):
    assert loads([code] if code else [], sm) is how


@pytest.mark.parametrize(
    ("ptx", "cuda"),
    [("7.8", "11.8"), ("8.0", "12.0"), ("8.5", "12.5"), ("8.7", "12.8"), ("8.8", "12.9"), ("9.1", "13.1"), ("?", "")],
)
def test_which_cuda_brought_a_version_of_ptx(ptx, cuda):
    assert cuda_of_ptx(ptx) == cuda


def test_a_file_that_grows_shorter_while_it_is_read_is_a_reason(tmp_path):
    path = tmp_path / "short.so"
    path.write_bytes(Path(sys.executable).read_bytes()[:4096])
    with closing(ElfFile(str(path))) as elf:
        os.truncate(path, 100)
        with pytest.raises(NotReadableError, match="is cut off"):
            elf.read(64, 4000)
