"""What a process would load, proven against the dynamic linker of this machine."""

import os
import shutil
import subprocess
import sys

import pytest

from fi_doctor import sandbox
from fi_doctor.facts import libraries, loader
from fi_doctor.facts.libraries import Target, Wheel, find_libraries
from fi_doctor.facts.loader import Process, Unresolved
from fi_doctor.facts.torch_loading import Torch, parse_preloads
from fi_doctor.model import Library, Missing
from fi_doctor.sandbox import Result

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="builds shared objects with gcc")

# Prints what it mapped, or what the dynamic linker said, after dlopen of each argument in turn.
CHILD = """
import ctypes, sys
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        print("error:", error)
for line in open("/proc/self/maps"):
    print(line.split(maxsplit=5)[-1].strip())
"""


def build(folder, name, *, needs=(), rpath="", runpath=""):
    """A shared object with its own name as SONAME; it links what it needs by path and so records only their names."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    options = ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"] if rpath else []
    options += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"] if runpath else []
    output = ["-x", "none", "-o", path, f"-Wl,-soname,{name}", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", *output, *options, *needs]
    subprocess.run(command, input=b"int answer;", check=True)
    return path


def really_mapped(*names, environ=None):
    """The files that the real dynamic linker maps for these dlopens, and its error messages."""
    result = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, names)],
        env={**os.environ, "LD_LIBRARY_PATH": "", **(environ or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = dict.fromkeys(result.stdout.splitlines())
    return {line for line in lines if line.startswith("/")}, [line for line in lines if line.startswith("error:")]


def imagined(*names, library_path=""):
    """The same of the imagined process."""
    process = Process(library_path=library_path, cache=loader.read_cache(os.environ), program=sys.executable)
    missing = tuple(each for name in names for each in process.open(str(name)))
    return {os.path.realpath(each.path) for each in process.mapped}, missing


@needs_gcc
@pytest.mark.parametrize(
    ("kind", "winner"),
    [pytest.param("rpath", "named", id="RPATH-wins"), pytest.param("runpath", "listed", id="RUNPATH-loses")],
)
@pytest.mark.parametrize("origin", [False, True], ids=["absolute", "$ORIGIN"])
def test_ld_library_path_beats_a_runpath_and_loses_to_an_rpath(tmp_path, kind, winner, origin):
    named = build(tmp_path / "named", "libx.so.1")
    listed = build(tmp_path / "listed", "libx.so.1")
    path = "$ORIGIN/../named" if origin else str(tmp_path / "named")
    root = build(tmp_path / "app", "libroot.so", needs=[named], **{kind: path})
    mapped, missing = imagined(root, library_path=str(tmp_path / "listed"))
    expected = {"named": named, "listed": listed}[winner]
    assert str(expected) in mapped
    assert missing == ()
    assert mapped <= really_mapped(root, environ={"LD_LIBRARY_PATH": str(tmp_path / "listed")})[0]


@needs_gcc
def test_an_rpath_serves_what_its_dependencies_need_and_a_runpath_does_not(tmp_path):
    deep = build(tmp_path / "libs", "libdeep.so.1")
    middle = build(tmp_path / "libs", "libmiddle.so.1", needs=[deep])
    heir = build(tmp_path / "app", "libheir.so", needs=[middle], rpath="$ORIGIN/../libs")
    loner = build(tmp_path / "app", "libloner.so", needs=[middle], runpath="$ORIGIN/../libs")
    assert imagined(heir) == ({str(heir), str(middle), str(deep)}, ())
    assert {str(heir), str(middle), str(deep)} <= really_mapped(heir)[0]
    assert imagined(loner) == (set(), (Unresolved("libdeep.so.1", str(tmp_path / "app/../libs/libmiddle.so.1")),))
    mapped, errors = really_mapped(loner)
    assert "libdeep.so.1" in errors[0]
    assert str(loner) not in mapped


@needs_gcc
def test_a_runpath_of_the_requester_shuts_out_the_rpath_of_its_loaders(tmp_path):
    deep = build(tmp_path / "libs", "libdeep.so.1")
    middle = build(tmp_path / "libs", "libmiddle.so.1", needs=[deep], runpath="/nowhere")
    root = build(tmp_path / "app", "libroot.so", needs=[middle], rpath="$ORIGIN/../libs")
    assert [each.name for each in imagined(root)[1]] == ["libdeep.so.1"]
    assert "libdeep.so.1" in really_mapped(root)[1][0]


@needs_gcc
def test_a_name_that_is_mapped_is_not_searched_again(tmp_path):
    first = build(tmp_path / "first", "libx.so.1")
    second = build(tmp_path / "second", "libx.so.1")
    root = build(tmp_path / "app", "libroot.so", needs=[second], rpath="$ORIGIN/../second")
    assert imagined(first, root) == ({str(first), str(root)}, ())
    real = really_mapped(first, root)[0]
    assert str(first) in real
    assert str(second) not in real


@needs_gcc
def test_a_second_file_of_a_mapped_name_is_mapped_when_it_is_opened_by_path(tmp_path):
    first = build(tmp_path / "first", "libx.so.1")
    second = build(tmp_path / "second", "libx.so.1")
    link = tmp_path / "libx.so.1"
    link.symlink_to(first)
    assert imagined(first, second, link) == ({str(first), str(second)}, ())
    assert {str(first), str(second)} <= really_mapped(first, second, link)[0]


@needs_gcc
def test_origin_is_the_folder_of_the_link_by_which_an_object_was_found(tmp_path):
    beside_file = build(tmp_path / "real", "libx.so.1")
    beside_link = build(tmp_path / "links", "libx.so.1")
    root = build(tmp_path / "real", "libroot.so", needs=[beside_file], runpath="$ORIGIN")
    link = tmp_path / "links" / "libroot.so"
    link.symlink_to(root)
    assert str(beside_link) in imagined(link)[0]
    assert str(beside_link) in really_mapped(link)[0]


@needs_gcc
def test_an_object_for_another_machine_is_passed_over(tmp_path):
    foreign = build(tmp_path / "foreign", "libx.so.1")
    data = bytearray(foreign.read_bytes())
    data[18] = 8  # e_machine: MIPS
    foreign.write_bytes(data)
    native = build(tmp_path / "native", "libx.so.1")
    root = build(tmp_path / "app", "libroot.so", needs=[native], rpath=f"{tmp_path}/foreign:{tmp_path}/native")
    assert imagined(root) == ({str(root), str(native)}, ())
    assert str(native) in really_mapped(root)[0]


@needs_gcc
def test_the_rpath_of_the_program_serves_every_dlopen(tmp_path):
    inner = build(tmp_path / "libs", "libx.so.1")
    program = tmp_path / "bin" / "program"
    program.parent.mkdir()
    source = b"""#include <dlfcn.h>
        int main(int n, char **v) { return n > 1 && dlopen(v[1], RTLD_NOW) ? 0 : 1; }"""
    rpath = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../libs"]
    subprocess.run(["gcc", "-x", "c", "-", "-o", program, *rpath, "-ldl"], input=source, check=True)
    assert subprocess.run([program, "libx.so.1"], check=False).returncode == 0
    found = Process(program=str(program)).find("libx.so.1")
    assert found is not None
    assert os.path.realpath(found.path) == str(inner)
    assert Process().find("libx.so.1") is None


def test_the_cache_answers_what_the_dynamic_linker_takes_from_it():
    cache = loader.read_cache(os.environ)
    name = next(name for name in ("libz.so.1", "libstdc++.so.6", "libcrypt.so.1") if name in cache)
    found = Process(cache=cache).find(name)
    assert found is not None
    assert found.how == "ld.so.cache"
    assert os.path.realpath(found.path) in really_mapped(name)[0]


def test_the_cache_is_read_for_one_kind_of_machine_and_its_plain_variant():
    text = (
        "3 libs found in cache `/etc/ld.so.cache'\n"
        '\tlibnccl.so.2 (libc6,x86-64, hwcap: "x86-64-v3") => /lib/glibc-hwcaps/x86-64-v3/libnccl.so.2\n'
        "\tlibnccl.so.2 (libc6) => /lib32/libnccl.so.2\n"
        "\tlibnccl.so.2 (libc6,x86-64) => /lib/libnccl.so.2\n"
        "\tlibnccl.so.2 (libc6,AArch64) => /arm/libnccl.so.2\n"
        "Cache generated by: ldconfig (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36\n"
    )
    assert loader.parse_cache(text, "x86-64") == {"libnccl.so.2": "/lib/libnccl.so.2"}
    assert loader.parse_cache(text, "AArch64") == {"libnccl.so.2": "/arm/libnccl.so.2"}


# torch/__init__.py, shortened: 2.5 and 2.6; 2.13; 2.14.
TORCH_SINGLE = """
        if "nvidia/cuda_runtime/lib/libcudart.so" not in _maps:
            return
        _preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")
        _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
    except OSError as err:
        cuda_libs: Dict[str, str] = {
            "cublas": "libcublas.so.*[0-9]",
            "cudnn": "libcudnn.so.*[0-9]",
            "cuda_nvrtc": "libnvrtc.so.*[0-9]",
            "cuda_runtime": "libcudart.so.*[0-9]",
        }
        for lib_folder, lib_name in cuda_libs.items():
            _preload_cuda_deps(lib_folder, lib_name)
"""
TORCH_TABLE = """
def _preload_cuda_deps(err: OSError | None = None) -> None:
    cuda_libs: list[tuple[str, str]] = [
        ("cublas", "libcublasLt.so.*[0-9]"),
        ("cuda_runtime", "libcudart.so.*[0-9]"),
        ("nccl", "libnccl.so.*[0-9]"),
    ]
    try:
            _preload_cuda_deps()
    except OSError as err:
        _preload_cuda_deps(err)
"""


def test_the_preloads_of_torch_are_read_from_its_source():
    single = parse_preloads(TORCH_SINGLE)
    assert single.after_success == (("cuda_nvrtc", "libnvrtc.so.*[0-9]"), ("nvjitlink", "libnvJitLink.so.*[0-9]"))
    assert ("cublas", "libcublas.so.*[0-9]") in single.after_failure
    assert single.only_beside == "nvidia/cuda_runtime/lib/libcudart.so"
    table = parse_preloads(TORCH_TABLE)
    assert table.after_success == table.after_failure
    assert [folder for folder, _ in table.after_success] == ["cublas", "cuda_runtime", "nccl"]
    assert table.all_required
    relaxed = parse_preloads(TORCH_TABLE.replace("deps()", "deps(required=False)"))
    assert relaxed.after_success == table.after_success
    assert not relaxed.all_required
    assert parse_preloads("") == ((), (), "libcudart.so", True)


class Site:
    """A site-packages with a torch whose objects are real and empty, and wheels that own libraries."""

    def __init__(self, root):
        self.root = root
        self.torch = root / "torch"
        self.wheels = []
        self.torch.mkdir(parents=True)
        (self.torch / "__init__.py").write_text(TORCH_TABLE)

    def wheel(self, name, version, *files):
        """Install libraries under the name of a wheel; the last built is its content."""
        info = self.root / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        built = [build((self.root / file).parent, (self.root / file).name) for file in files]
        rows = [f"{file},sha256=x,{path.stat().st_size}" for file, path in zip(files, built, strict=True)]
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]) + "\n")
        self.wheels.append(Wheel(name, version, str(self.root), str(info / "RECORD")))
        return built

    def link(self, *needed, rpath):
        """torch's own objects: the first opened brings the CUDA runtime, the extension module all."""
        build(self.torch / "lib", "libtorch_global_deps.so", needs=needed[:1], rpath=rpath)
        build(self.torch / "lib", "libtorch_cuda.so", needs=needed, rpath=rpath)
        build(self.torch, "_C.so", needs=[self.torch / "lib" / "libtorch_cuda.so"], rpath="$ORIGIN/lib")

    def target(self, *more, cuda_major="13"):
        sys_path = (str(self.root), *(str(site.root) for site in more))
        wheels = tuple(wheel for site in (self, *more) for wheel in site.wheels)
        return Target(sys.executable, sys_path, Torch(str(self.torch), cuda_major), wheels)


@pytest.fixture
def toolkits(monkeypatch):
    """No toolkit of this machine counts."""
    monkeypatch.setattr(libraries, "_toolkits", lambda environ: ())


CU13 = "$ORIGIN/../../nvidia/cu13/lib:$ORIGIN/../../nvidia/nccl/lib"


@needs_gcc
@pytest.mark.parametrize(
    ("name", "file", "rpath"),
    [
        pytest.param("nvidia-cuda-runtime", "nvidia/cu13/lib/libcudart.so.13", CU13, id="cu13"),
        pytest.param(
            "nvidia-cuda-runtime-cu12",
            "nvidia/cuda_runtime/lib/libcudart.so.12",
            "$ORIGIN/../../nvidia/cuda_runtime/lib",
            id="cu12",
        ),
    ],
)
def test_a_library_of_a_wheel_is_named_with_the_version_of_the_wheel(tmp_path, toolkits, name, file, rpath):
    site = Site(tmp_path / "site")
    built = site.wheel(name, "12.8.90", file)
    site.link(*built, rpath=rpath)
    assert find_libraries({}, site.target(), {})["cudart"] == Library(
        name="cudart", path=str(built[0]), version="12.8.90", origin="wheel", package=f"{name} 12.8.90", copies=()
    )


@needs_gcc
def test_a_toolkit_on_ld_library_path_does_not_replace_a_wheel_that_torch_names_by_rpath(tmp_path, toolkits):
    site = Site(tmp_path / "site")
    built = site.wheel("nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13")
    site.link(*built, rpath=CU13)
    other = build(tmp_path / "toolkit", "libcudart.so.13")
    found = find_libraries({"LD_LIBRARY_PATH": str(other.parent)}, site.target(), {})["cudart"]
    assert isinstance(found, Library)
    assert (found.path, found.origin, found.copies) == (str(built[0]), "wheel", (str(other),))


@needs_gcc
def test_wheels_in_another_folder_of_sys_path_come_by_hand_after_what_the_loader_found_itself(tmp_path, toolkits):
    """torch in a virtual environment, its wheels in another folder, and a CUDA runtime on LD_LIBRARY_PATH."""
    site, wheels = Site(tmp_path / "venv"), Site(tmp_path / "base")
    cublas = wheels.wheel("nvidia-cublas", "13.1.1.3", "nvidia/cu13/lib/libcublasLt.so.13")
    runtime = wheels.wheel("nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13")
    nccl = wheels.wheel("nvidia-nccl-cu13", "2.30.7", "nvidia/nccl/lib/libnccl.so.2")
    system = build(tmp_path / "system", "libcudart.so.13")
    site.link(*runtime, *cublas, *nccl, rpath=CU13)
    with_system = find_libraries({"LD_LIBRARY_PATH": str(system.parent)}, site.target(wheels), {})
    assert _place(with_system["cudart"]) == (str(system), "LD_LIBRARY_PATH")
    assert _place(with_system["nccl"]) == (str(nccl[0]), "wheel")
    without = find_libraries({}, site.target(wheels), {})
    assert _place(without["cudart"]) == (str(runtime[0]), "wheel")
    assert _place(without["cublasLt"]) == (str(cublas[0]), "wheel")


@needs_gcc
def test_a_library_that_torch_needs_and_nobody_has_is_missing_with_who_needs_it(tmp_path, toolkits):
    site = Site(tmp_path / "site")
    runtime = site.wheel("nvidia-cuda-runtime", "13.0.96", "nvidia/cu13/lib/libcudart.so.13")
    nccl = build(tmp_path / "elsewhere", "libnccl.so.2")
    site.link(*runtime, nccl, rpath=CU13)
    found = find_libraries({}, site.target(), {})
    assert _place(found["cudart"]) == (str(runtime[0]), "wheel")
    assert isinstance(found["nccl"], Missing)
    assert found["nccl"].reason == (
        f"libnccl.so.2, which {site.torch}/lib/libtorch_cuda.so needs, is not found, so that import torch fails"
    )


@needs_gcc
def test_without_torch_the_plain_search_counts_and_copies_out_of_reach_are_named(tmp_path, toolkits):
    older = build(tmp_path / "ld", "libcudart.so.12.4.127")
    (tmp_path / "ld" / "libcudart.so.12").symlink_to(older.name)
    (tmp_path / "ld" / "libcudart.so").symlink_to("libcudart.so.12")
    nccl = build(tmp_path / "site" / "nvidia" / "nccl" / "lib", "libnccl.so.2")
    target = Target(sys.executable, (str(tmp_path / "site"),), None, ())
    found = find_libraries({"LD_LIBRARY_PATH": str(tmp_path / "ld")}, target, {})
    assert isinstance(found["cudart"], Library)
    assert (found["cudart"].version, found["cudart"].origin, found["cudart"].copies) == (
        "12.4.127",
        "LD_LIBRARY_PATH",
        (),
    )
    assert isinstance(found["nccl"], Missing)
    assert found["nccl"].reason.endswith(f"; the loader does not look at {nccl}")


@needs_gcc
def test_the_driver_library_is_found_through_the_cache_with_the_version_of_its_file(tmp_path, toolkits):
    driver = build(tmp_path, "libcuda.so.580.159.04")
    (tmp_path / "libcuda.so.1").symlink_to(driver.name)
    target = Target(sys.executable, (), None, ())
    found = find_libraries({}, target, {"libcuda.so.1": str(tmp_path / "libcuda.so.1")})["cuda"]
    assert isinstance(found, Library)
    assert (found.path, found.version, found.origin) == (str(tmp_path / "libcuda.so.1"), "580.159.04", "system")


@needs_gcc
def test_of_two_wheels_that_record_the_same_file_the_one_of_its_size_owns_it(tmp_path, toolkits):
    site = Site(tmp_path / "site")
    file = "nvidia/nccl/lib/libnccl.so.2"
    site.wheel("nvidia-nccl-cu12", "2.27.3", file)
    (site.root / "nvidia_nccl_cu12-2.27.3.dist-info" / "RECORD").write_text(f"{file},sha256=x,12\n")
    nccl = site.wheel("nvidia-nccl-cu13", "2.30.7", file)
    site.link(*nccl, rpath=CU13)
    found = find_libraries({}, site.target(), {})["nccl"]
    assert isinstance(found, Library)
    assert (found.package, found.version) == ("nvidia-nccl-cu13 2.30.7", "2.30.7")
    (site.root / "nvidia_nccl_cu12-2.27.3.dist-info" / "RECORD").write_text(f"{file},sha256=x,\n")
    (site.root / "nvidia_nccl_cu13-2.30.7.dist-info" / "RECORD").write_text(f"{file},sha256=x,\n")
    contested = find_libraries({}, site.target(), {})["nccl"]
    assert isinstance(contested, Library)
    assert isinstance(contested.package, Missing)
    assert "nvidia-nccl-cu12 2.27.3 and nvidia-nccl-cu13 2.30.7 both record" in contested.package.reason


def _place(found):
    assert isinstance(found, Library), found
    return found.path, found.origin


def test_an_ldconfig_that_hangs_is_named_where_its_answer_is_needed(tmp_path, monkeypatch):
    late = Result(
        argv=("/sbin/ldconfig", "-p"), returncode=None, signal=9, timed_out=True, stdout=b"", stderr=b"", seconds=5.0,
        truncated=False, error="",
    )  # fmt: skip
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: late)
    said = Missing(reason="/sbin/ldconfig did not answer -p within 5 s")
    assert loader.read_cache({}) == said
    target = Target(program="", sys_path=(), torch=None, wheels=())
    monkeypatch.setattr(libraries, "make_target", lambda _: target)
    monkeypatch.setattr(loader, "default_folders", lambda: (str(tmp_path),))
    assert set(libraries.read_libraries({}, None).values()) == {said}
