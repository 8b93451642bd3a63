"""A cache as FlashInfer leaves it, and what can go wrong with it: each fault is found, and only such are removed."""

import fcntl
import mmap
import os
import shutil
import threading
import time
from pathlib import Path

import factory as make
import pytest
from elf_samples import CUBIN, FAMILY, PTX, SPECIFIC, container, elf, entry, for_another, library
from msgspec.structs import replace
from ninja_samples import write_deps

from fi_doctor import pruning
from fi_doctor.diagnosis import cached
from fi_doctor.facts import builds
from fi_doctor.facts.caches import read_modules, read_others
from fi_doctor.facts.torch_symbols import TVM_FFI, LibrarySymbols
from fi_doctor.model import CacheState

SM90 = container(entry(CUBIN, 90, SPECIFIC), entry(PTX, 90, SPECIFIC))
NINJA = """ninja_required_version = 1.3
name = norm
cuda_home = {cuda}
cxx = c++
nvcc = $cuda_home/bin/nvcc

common_cflags = -DPy_LIMITED_API=0x03090000 $
    -fPIC
cuda_cflags = $common_cflags $
    -gencode=arch=compute_90a,code=sm_90a $
    -O3

rule cuda_compile
  command = $nvcc $cuda_cflags -c $in -o $out

build $name/norm.cuda.o: cuda_compile {source}
build $name/norm.so: link $name/norm.cuda.o
default $name/norm.so
"""


class Cache:
    """FlashInfer 0.7.2.post1's cache for 90a with one module that is well."""

    def __init__(self, folder):
        self.base = folder / ".cache" / "flashinfer"
        self.cuda = folder / "cuda"
        self.source, self.header = folder / "norm.cu", folder / "include" / "vec.cuh"
        for path in (self.source, self.header, self.cuda / "bin" / "nvcc"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (1, 1))
        self.module = self.add("0.7.2.post1", "90a", "norm")
        self.facts = make.facts(
            flashinfer=make.flashinfer("0.7.2.post1", architectures=("90a",), cache_base=str(self.base)),
            libraries={"cudart": make.library("cudart", "13.0.96")},
        )

    def add(self, version, architectures, name):
        module = self.base / version / architectures / "cached_ops" / name
        module.mkdir(parents=True)
        self.write_ninja(self.cuda, module)
        (module / f"{name}.cuda.o").write_bytes(elf())
        (module / f"{name}.so").write_bytes(elf(SM90, needed=(b"libcudart.so.13",)))
        return module

    def log(self):
        """What ninja keeps of the object's dependencies."""
        self.header.touch()
        write_deps(self.module, "norm", [self.source, self.header], output="norm.cuda.o")

    def write_ninja(self, cuda, module=None):
        (module or self.module).joinpath("build.ninja").write_text(NINJA.format(cuda=cuda, source=self.source))

    @property
    def library(self):
        return self.module / "norm.so"

    def entries(self):
        def difference(head):
            return builds.difference(head, str(self.cuda), {})

        return [cached.entry(module, self.facts, difference) for module in read_modules(self.base)]

    def only(self):
        [found] = self.entries()
        return found


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path)


def test_a_module_for_another_tvm_ffi_is_poisoned(cache, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtvm_ffi.so").write_bytes(library(b"TVMFFIErrorSetRaised", b"other"))
    undefined = (b"TVMFFIHandleInitOnce", b"TVMFFIErrorSetRaised")
    cache.library.write_bytes(elf(SM90, needed=(b"libcudart.so.13",), undefined=undefined))
    [module] = read_modules(cache.base, tvm_ffi=LibrarySymbols(tmp_path / "lib", TVM_FFI))
    found = cached.entry(module, cache.facts, make.missing("nobody asks"))
    assert found.state is CacheState.POISONED
    assert found.why == "the installed apache-tvm-ffi lacks what its library needs: TVMFFIHandleInitOnce"


def test_headers_that_are_older_make_nothing_stale(cache):
    cache.log()
    os.utime(cache.header, (1, 1))
    assert cache.only().state is CacheState.VALID


def test_a_module_that_is_well_is_valid(cache):
    found = cache.only()
    assert (found.state, found.why) == (CacheState.VALID, "")
    assert (found.module.name, found.module.version, found.module.architectures) == ("norm", "0.7.2.post1", ("90a",))
    assert (found.cuda_home, found.flags) == (str(cache.cuda), ("arch=compute_90a,code=sm_90a",))
    assert found.module.library.needed == ("libcudart.so.13",)
    assert found.module.files == 3


@pytest.mark.parametrize(
    ("lost", "nvcc_is_newer", "expected"), [((), False, 0), (("norm.so",), False, 1), ((), True, 2)]
)
def test_what_a_next_use_compiles_is_counted(cache, lost, nvcc_is_newer, expected):
    ninja = (cache.module / "build.ninja").read_text()
    more = ninja.replace(
        "build $name/norm.so", f"build $name/more.cuda.o: cuda_compile {cache.source}.more\n\nbuild $name/norm.so"
    )
    (cache.module / "build.ninja").write_text(more)
    cache.source.with_name("norm.cu.more").touch()
    os.utime(cache.source.with_name("norm.cu.more"), (1, 1))
    for name in lost:
        (cache.module / name).unlink()
    if nvcc_is_newer:
        os.utime(cache.cuda / "bin/nvcc")
    assert cached.compiled_next(cache.only()) == expected


def _truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


def _other_gpu(cache):
    cache.library.write_bytes(elf(container(entry(CUBIN, 100, FAMILY)), needed=(b"libcudart.so.13",)))


FAULTS = {
    "empty library": (lambda cache: cache.library.write_bytes(b""), CacheState.POISONED, "loaded: it is empty"),
    "cut in its header": (lambda cache: _truncate(cache.library, 40), CacheState.POISONED, "cut off in its ELF header"),
    "cut in the middle": (lambda cache: _truncate(cache.library, 400), CacheState.POISONED, "loaded: it is cut"),
    "no ELF": (lambda cache: cache.library.write_text("<html>"), CacheState.POISONED, "it is not ELF"),
    "link to nowhere": (
        lambda cache: (cache.library.unlink(), cache.library.symlink_to("gone")),
        CacheState.POISONED,
        "No such file",
    ),
    "folder for a library": (
        lambda cache: (cache.library.unlink(), cache.library.mkdir()),
        CacheState.POISONED,
        "it is not a file",
    ),
    "empty object": (
        lambda cache: (cache.module / "norm.cuda.o").write_bytes(b""),
        CacheState.POISONED,
        "objects are empty, cut off or for another processor: norm.cuda.o",
    ),
    "object cut off": (
        lambda cache: (_truncate(cache.module / "norm.cuda.o", 100), cache.library.unlink()),
        CacheState.POISONED,
        "objects are empty, cut off or for another processor: norm.cuda.o",
    ),
    "other libcudart": (
        lambda cache: cache.library.write_bytes(elf(SM90, needed=(b"libcudart.so.12",))),
        CacheState.POISONED,
        "linked with libcudart.so.12, torch loads libcudart.so.13",
    ),
    "other GPU": (_other_gpu, CacheState.POISONED, "has code for sm_100f only"),
    "other processor": (
        lambda cache: cache.library.write_bytes(for_another(cache.library.read_bytes())),
        CacheState.POISONED,
        "its library cannot be loaded: it is for another processor (",
    ),
    "object for another processor": (
        lambda cache: (cache.module / "norm.cuda.o").write_bytes(for_another(elf())),
        CacheState.POISONED,
        "for another processor: norm.cuda.o",
    ),
    "other toolkit": (
        lambda cache: cache.write_ninja("/usr/local/cuda-12"),
        CacheState.STALE,
        "built with cuda_home = /usr/local/cuda-12; now ",
    ),
    "younger source": (lambda cache: os.utime(cache.source), CacheState.STALE, "younger than it: "),
    "younger nvcc": (lambda cache: os.utime(cache.cuda / "bin" / "nvcc"), CacheState.STALE, "bin/nvcc"),
    "source gone": (lambda cache: cache.source.unlink(), CacheState.STALE, "sources are gone: "),
    "younger header": (
        lambda cache: (cache.log(), os.utime(cache.header, (time.time() + 60, time.time() + 60))),
        CacheState.STALE,
        "younger than it: /",
    ),
    "header gone": (lambda cache: (cache.log(), cache.header.unlink()), CacheState.STALE, "sources are gone: /"),
    "no build.ninja": (lambda cache: (cache.module / "build.ninja").unlink(), CacheState.STALE, "no build.ninja"),
    "half built": (lambda cache: cache.library.unlink(), CacheState.UNFINISHED, "goes on compiling"),
    "asked for": (
        lambda cache: (cache.library.unlink(), (cache.module / "norm.cuda.o").unlink()),
        CacheState.PLANNED,
        "nothing of it is compiled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_named(cache, name):
    seed, state, why = FAULTS[name]
    os.utime(cache.library, (time.time() - 60, time.time() - 60))
    seed(cache)
    found = cache.only()
    assert found.state is state
    assert why in found.why


@pytest.mark.parametrize(("version", "architectures"), [("0.6.13", "90a"), ("0.7.2.post1", "100a")])
def test_what_others_left_is_unused_and_not_bad(cache, version, architectures):
    other = cache.add(version, architectures, "page")
    (other / "page.so").write_bytes(b"")
    found = {one.module.name: one for one in cache.entries()}
    assert (found["page"].state, found["norm"].state) == (CacheState.UNUSED, CacheState.VALID)
    assert not found["page"].state.is_bad


def test_a_lock_counts_while_somebody_holds_it_and_a_file_of_that_name_does_not(cache):
    lock = cache.module.parent / "tmp" / "norm.lock"
    lock.parent.mkdir()
    lock.touch()
    cache.library.write_bytes(b"")
    assert cache.only().state is CacheState.POISONED
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = cache.only()
        assert (found.state, found.why) == (CacheState.LOCKED, f"process {os.getpid()} holds its lock")


def test_several_architectures_need_code_for_one_of_them_only(cache):
    _other_gpu(cache)
    both = replace(cache.only().module, architectures=("90a", "100a"))
    facts = replace(cache.facts, flashinfer=replace(cache.facts.flashinfer, architectures=("90a", "100a")))
    assert cached.entry(both, facts, lambda _: "").state is CacheState.VALID


def test_what_is_bad_is_removed_and_nothing_else(cache):
    other = cache.add("0.7.2.post1", "90a", "page")
    (other / "link").symlink_to(cache.source)
    module = next(one.module for one in cache.entries() if one.module.name == "page")
    assert pruning.remove(module, str(cache.base)) == ""
    assert not other.exists()
    assert cache.source.exists()
    assert [one.module.name for one in cache.entries()] == ["norm"]
    assert pruning.remove(module, str(cache.base)) == ""  # it is gone by now
    assert not (other / "link").exists()


def _left(cache):
    """What lies there, locks aside."""
    return sorted(
        str(path) for path in cache.base.parent.rglob("*") if "tmp" not in path.relative_to(cache.base.parent).parts
    )


def _replaced(cache):
    shutil.copytree(cache.module, cache.module.with_name("new"))
    shutil.rmtree(cache.module)
    cache.module.with_name("new").rename(cache.module)


def _rebuilt_with_an_old_time(cache):
    state = cache.library.stat()
    cache.library.write_bytes(b"x" * state.st_size)
    os.utime(cache.library, ns=(state.st_atime_ns, state.st_mtime_ns))


def _led_out(cache):
    outside = cache.base.parent / "outside"
    cache.module.parent.rename(outside)
    cache.module.parent.symlink_to(outside)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_replaced, "not the folder that was looked at"),
        (_led_out, "Not a directory"),
        (lambda cache: (cache.module / "norm.so").write_bytes(b"new"), "has changed since"),
        (_rebuilt_with_an_old_time, "has changed since"),
        (lambda cache: (shutil.move(cache.module, cache.base), cache.module.symlink_to("/etc")), "not the folder"),
    ],
    ids=["replaced", "led-out", "rebuilt", "rebuilt-old", "link"],
)
def test_what_is_not_as_it_was_looked_at_is_kept(cache, change, why):
    module = cache.only().module
    time.sleep(0.01)
    change(cache)
    before = _left(cache)
    assert why in pruning.remove(module, str(cache.base))
    assert _left(cache) == before
    assert Path("/etc").is_dir()


def test_two_removals_wait_for_each_other(cache):
    modules = [cache.only().module]
    held = os.open(cache.module.parent, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [held]).start()
    assert [pruning.remove(module, str(cache.base)) for module in modules] == [""]


def test_what_a_process_has_loaded_is_kept(cache):
    module = cache.only().module
    library = cache.module / "norm.so"
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert pruning.remove(module, str(cache.base)) == f"process {os.getpid()} has it loaded"
        assert library.exists()
    assert pruning.remove(module, str(cache.base)) == ""


@pytest.mark.parametrize("name", ["norm", "flashinfer_jit"])
def test_what_somebody_builds_is_kept(cache, name):
    module = cache.only().module
    lock = cache.module.parent / "tmp" / f"{name}.lock"
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert pruning.remove(module, str(cache.base)) == "a process builds it"
    assert pruning.remove(module, str(cache.base)) == ""


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "{base}",
        "{base}/0.7.2.post1/90a/cached_ops/..",
        "{base}/a/b/c/norm",
        "{base}/0.7.2.post1/90a/cached_ops/tmp",
    ],
)
def test_no_other_folder_is_ever_removed(cache, path):
    module = replace(cache.only().module, path=path.format(base=cache.base))
    assert pruning.remove(module, str(cache.base)).startswith("it is no module below ")


def test_without_a_toolkit_nothing_is_called_stale_and_that_is_said(cache):
    found = cached.entry(cache.only().module, cache.facts, make.missing("nvcc does not answer"))
    assert (found.state, found.why) == (
        CacheState.VALID,
        "not compared with what would be built today: nvcc does not answer",
    )


def test_a_folder_that_is_no_cache_of_flashinfers_is_never_touched(cache, tmp_path):
    module = cache.only().module
    cache.base.rename(tmp_path / "elsewhere")
    moved = replace(module, path=module.path.replace(str(cache.base), str(tmp_path / "elsewhere")))
    assert pruning.remove(moved, str(tmp_path / "elsewhere")).startswith("it is no module below ")


def test_other_caches_are_measured(tmp_path, cache):
    for name in ("cubins/a.cubin", "cubins/b.cubin"):
        path = cache.base / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"" if "a." in name else b"x" * 5000)
    triton = tmp_path / "triton"
    triton.mkdir()
    found = {one.name: one for one in read_others(cache.base, {"HOME": str(tmp_path), "TRITON_CACHE_DIR": str(triton)})}
    assert (found["cubins"].files, found["cubins"].empty, found["cubins"].owner) == (2, 1, os.getuid())
    assert found["cubins"].bytes >= 5000
    assert found["Triton"].path == str(triton)
    assert "DeepGEMM" not in found


def test_a_cache_that_cannot_be_read_or_is_none_has_no_modules(tmp_path):
    assert read_modules(tmp_path / "gone") == ()
    (tmp_path / "file").touch()
    assert read_modules(tmp_path / "file") == ()
