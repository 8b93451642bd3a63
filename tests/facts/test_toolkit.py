"""The toolkit of FlashInfer's JIT by FlashInfer's own rule, and what its build lines find."""

import os
import shutil
import stat
import subprocess
import time

import pytest

from fi_doctor.facts import toolchain, toolkit
from fi_doctor.facts.commandline import option_values
from fi_doctor.facts.nvcc import Folders, parse_dryrun, parse_gpu_code, parse_nvcc_version
from fi_doctor.facts.toolchain import parse_cccl, parse_linker_dirs, parse_search_dirs, parse_search_list
from fi_doctor.facts.toolkit import Home, ask_compilers, compiler_command, conclude, find_home
from fi_doctor.model import JitToolkit, Missing, Nvcc

NO_TORCH = Missing(reason="torch is not installed")
NO_CACHE = Missing(reason="flashinfer-jit-cache is not installed")

needs_cxx = pytest.mark.skipif(shutil.which("c++") is None, reason="asks a real C++ compiler and linker")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="asks a real nvcc")

NVCC_13_0 = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
GPU_CODE_13_0 = "sm_75\nsm_80\nsm_86\nsm_87\nsm_88\nsm_89\nsm_90\nsm_100\nsm_110\nsm_103\nsm_120\nsm_121\n"
TARGET_13_0 = "/usr/local/cuda-13.0/bin/../targets/x86_64-linux"
# nvcc 13.0.88 with NVCC_PREPEND_FLAGS=-I/foo, the lists of variables and flags shortened.
DRYRUN_13_0 = f"""#$ _HERE_=/usr/local/cuda-13.0/bin
#$ _TARGET_DIR_=targets/x86_64-linux
#$ TOP=/usr/local/cuda-13.0/bin/..
#$ INCLUDES="-I{TARGET_13_0}/include"\x20\x20
#$ SYSTEM_INCLUDES="-isystem" "{TARGET_13_0}/include/cccl"\x20\x20
#$ LIBRARIES=  "-L{TARGET_13_0}/lib/stubs" "-L{TARGET_13_0}/lib"
#$ CUDAFE_FLAGS=
#$ gcc -D__CUDA_ARCH__=750 -E -x c++ -D__CUDACC__ -I"/foo" "-I{TARGET_13_0}/include"   "-isystem" \
"{TARGET_13_0}/include/cccl"    -D__CUDACC_VER_MAJOR__=13 -include "cuda_runtime.h" -m64 "/dev/null"
"""
DRYRUN_WITHOUT_GCC = """#$ _HERE_=/usr/local/cuda-13.0/bin
gcc: No such file or directory
nvcc fatal   : Failed to preprocess host compiler properties.
"""


def test_release_and_build_are_read_from_what_nvcc_prints():
    assert parse_nvcc_version(NVCC_13_0) == ("13.0", "13.0.88")
    assert parse_nvcc_version("Cuda compilation tools, release 12.6, V12.6.85\n") == ("12.6", "12.6.85")
    release, build = parse_nvcc_version("usage: nvcc\n")
    assert isinstance(release, Missing)
    assert "usage: nvcc" in release.reason
    assert isinstance(build, Missing)


def test_architectures_keep_the_order_and_suffixes_of_nvcc():
    architectures = parse_gpu_code(GPU_CODE_13_0)
    assert isinstance(architectures, tuple)
    assert (len(architectures), architectures[6], architectures[-1]) == (12, "sm_90", "sm_121")
    assert parse_gpu_code("sm_90\nsm_90a\n") == ("sm_90", "sm_90a")
    assert isinstance(parse_gpu_code("nvcc fatal : Unknown option\n"), Missing)


def test_a_dry_run_names_the_folders_of_nvcc_and_of_its_variables():
    assert parse_dryrun(DRYRUN_13_0) == Folders(
        includes=("/foo", f"{TARGET_13_0}/include"),
        system_includes=(f"{TARGET_13_0}/include/cccl",),
        libraries=(f"{TARGET_13_0}/lib/stubs", f"{TARGET_13_0}/lib"),
    )


def test_a_dry_run_without_a_host_compiler_finds_no_header():
    found = parse_dryrun(DRYRUN_WITHOUT_GCC)
    assert found == Missing(
        reason="nvcc cannot preprocess: nvcc fatal   : Failed to preprocess host compiler properties."
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("#define CCCL_VERSION 3000001\n#define CCCL_MAJOR_VERSION (CCCL_VERSION / 1000000)\n", "3.0.1"),
        ("#define CCCL_VERSION 2007000 // 2.7.0\n", "2.7.0"),
        ("#define THRUST_VERSION 200302 // macro expansion with ## requires this to be a single value\n", "2.3.2"),
    ],
    ids=["13.0", "12.8", "12.4-thrust"],
)
def test_the_version_of_cccl_is_read_from_either_header(text, version):
    assert parse_cccl(text) == version


def test_a_header_without_a_version_is_missing():
    assert isinstance(parse_cccl("#pragma once\n"), Missing)


def test_search_lists_of_compiler_and_linker_are_read():
    listed = "ignoring\n#include <...> search starts here:\n /a b\n /usr/include\nEnd of search list.\n# 1\n"
    assert parse_search_list(listed) == ("/a b", "/usr/include")
    assert parse_search_list("clang: error\n") == ()
    dirs = "install: /usr/lib/gcc/\nprograms: =/p/one/:/p/two/\nlibraries: =/l/one/:/l/two/../\n"
    assert parse_search_dirs(dirs, "libraries") == ("/l/one/", "/l/two/../")
    assert parse_search_dirs(dirs, "programs") == ("/p/one/", "/p/two/")
    assert parse_linker_dirs('SEARCH_DIR("=/usr/lib"); SEARCH_DIR("/opt/lib");', "/root") == (
        "/root/usr/lib",
        "/opt/lib",
    )
    assert option_values("-L", ["-L/a", "-lx", "-L", "/b", "-L"]) == ("/a", "/b")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_nvcc(home, release="12.6", *, before=""):
    """An nvcc that answers as a real one does, with the include folder of its own home."""
    return script(
        home / "bin" / "nvcc",
        f"""{before}
case "$*" in
*--version*) echo "Cuda compilation tools, release {release}, V{release}.85" ;;
*--list-gpu-code*) echo sm_80; echo sm_90 ;;
*--dryrun*) echo '#$ LIBRARIES= "-L{home}/targets/lib"' >&2; echo '#$ gcc -E "-I{home}/targets/include" x' >&2 ;;
esac""",
    )


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A PATH with the compilers of this machine and no nvcc, and a machine without /usr/local/cuda."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("which", "sh", "c++", "gcc", "ld", "as", "ninja", "echo"):
        found = shutil.which(name)
        if found:
            (folder / name).symlink_to(found)
    monkeypatch.setattr(toolkit, "DEFAULT_HOME", str(tmp_path / "default"))
    return folder


def read(environ, torch_cuda=NO_TORCH):
    return conclude(ask_compilers(environ), environ, torch_cuda=torch_cuda, jit_cache_cuda=NO_CACHE)


def jit_of(facts):
    assert isinstance(facts.jit, JitToolkit), facts.jit
    return facts.jit


def test_cuda_home_comes_before_cuda_path_and_both_before_path(tmp_path, tools):
    nvcc = fake_nvcc(tmp_path / "onpath")
    path = f"{nvcc.parent}:{tools}"
    assert find_home({"PATH": path, "CUDA_HOME": "/a", "CUDA_PATH": "/b"}) == Home("/a", "CUDA_HOME")
    assert find_home({"PATH": path, "CUDA_HOME": "", "CUDA_PATH": "/b"}) == Home("/b", "CUDA_PATH")
    assert find_home({"PATH": path, "CUDA_HOME": ""}) == Home(str(tmp_path / "onpath"), "which nvcc")


def test_an_empty_cuda_path_is_taken_as_the_home(tmp_path, tools):
    nvcc = fake_nvcc(tmp_path / "onpath")
    environ = {"PATH": f"{nvcc.parent}:{tools}", "CUDA_PATH": ""}
    assert find_home(environ) == Home("", "CUDA_PATH")
    jit = jit_of(read(environ))
    assert jit.cuda_home == ""
    assert jit.nvcc == Missing(reason="bin/nvcc does not exist")
    assert isinstance(jit.libraries["cudart"], Missing)
    assert "/lib64/stubs" in jit.libraries["cudart"].reason


def test_the_home_of_a_linked_nvcc_is_the_folder_of_the_link(tmp_path, tools):
    real = fake_nvcc(tmp_path / "cuda-12.6")
    link = tmp_path / "local" / "bin" / "nvcc"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    facts = read({"PATH": f"{link.parent}:{tools}"})
    jit = jit_of(facts)
    assert (jit.cuda_home, jit.found_by) == (str(tmp_path / "local"), "which nvcc")
    assert isinstance(jit.nvcc, Nvcc)
    assert (jit.nvcc.path, jit.nvcc.resolved) == (str(link), str(real))
    assert str(real) not in [nvcc.resolved for nvcc in facts.others]


def test_without_nvcc_the_default_home_counts_if_it_exists(tmp_path, tools):
    missing = find_home({"PATH": str(tools)})
    assert isinstance(missing, Missing)
    assert "does not exist" in missing.reason
    (tmp_path / "default").mkdir()
    assert find_home({"PATH": str(tools)}) == Home(str(tmp_path / "default"), "default")


def test_without_the_program_which_flashinfer_cannot_look_for_nvcc(tmp_path, tools):
    nvcc = fake_nvcc(tmp_path / "onpath")
    (tools / "which").unlink()
    found = find_home({"PATH": f"{nvcc.parent}:{tools}"})
    assert isinstance(found, Missing)
    assert '"which"' in found.reason


def test_the_gate_is_nvcc_and_only_without_its_answer_torch(tmp_path, tools):
    home = tmp_path / "cuda"
    environ = {"PATH": str(tools), "CUDA_HOME": str(home)}
    absent = read(environ, torch_cuda="12.8")
    assert (absent.gate_version, absent.gate_source) == ("12.8", "torch.version.cuda")
    assert jit_of(absent).nvcc == Missing(reason=f"{home}/bin/nvcc does not exist")
    fake_nvcc(home, "12.6")
    present = read(environ, torch_cuda="12.8")
    assert (present.gate_version, present.gate_source) == ("12.6", "nvcc")
    fake_nvcc(home, before="exit 1")
    failing = read(environ, torch_cuda="12.8")
    assert (failing.gate_version, failing.gate_source) == ("12.8", "torch.version.cuda")
    neither = read(environ)
    assert isinstance(neither.gate_version, Missing)
    assert "exits with code 1" in neither.gate_version.reason
    assert "torch is not installed" in neither.gate_version.reason


def test_an_nvcc_that_cannot_be_started_is_an_error_that_flashinfer_does_not_catch(tmp_path, tools):
    nvcc = fake_nvcc(tmp_path / "cuda")
    nvcc.write_text("no program\n")
    facts = read({"PATH": str(tools), "CUDA_HOME": str(tmp_path / "cuda")}, torch_cuda="12.8")
    assert isinstance(facts.gate_version, Missing)
    assert "Exec format error" in facts.gate_version.reason
    nvcc.unlink()
    script(nvcc, "").write_text("#!/no/such/shell\n")
    lost = read({"PATH": str(tools), "CUDA_HOME": str(tmp_path / "cuda")}, torch_cuda="12.8")
    assert (lost.gate_version, lost.gate_source) == ("12.8", "torch.version.cuda")


def test_flashinfer_nvcc_replaces_the_compiler_and_not_the_gate(tmp_path, tools):
    fake_nvcc(tmp_path / "old", "12.6")
    new = fake_nvcc(tmp_path / "new", "12.9")
    environ = {"PATH": str(tools), "CUDA_HOME": str(tmp_path / "old"), "FLASHINFER_NVCC": str(new)}
    facts = read(environ)
    jit = jit_of(facts)
    assert facts.gate_version == "12.6"
    assert isinstance(jit.compiler, Nvcc)
    assert (jit.compiler.version, jit.compiler.found_by) == ("12.9", "FLASHINFER_NVCC")
    assert isinstance(jit.nvcc, Nvcc)
    assert (jit.nvcc.version, jit.nvcc.found_by) == ("12.6", "CUDA_HOME")


@pytest.mark.parametrize(
    ("value", "words"),
    [("$cuda_home/bin/nvcc", ("/c/bin/nvcc",)), ("ccache ${cuda_home}/bin/nvcc", ("ccache", "/c/bin/nvcc"))],
)
def test_flashinfer_nvcc_may_use_a_variable_of_ninja_and_a_launcher(value, words):
    command = compiler_command(Home("/c", "CUDA_HOME"), {"FLASHINFER_NVCC": value})
    assert not isinstance(command, Missing)
    assert command.words == words


def test_an_empty_flashinfer_nvcc_leaves_no_compiler():
    assert isinstance(compiler_command(Home("/c", "CUDA_HOME"), {"FLASHINFER_NVCC": ""}), Missing)


def test_every_other_nvcc_is_listed_once_and_wrappers_as_they_are(tmp_path, tools):
    used = fake_nvcc(tmp_path / "used", "12.6")
    other = fake_nvcc(tmp_path / "other", "13.0")
    wrapper = script(tmp_path / "wrapped" / "nvcc", f'exec {other} "$@"')
    twin = tmp_path / "twin" / "nvcc"
    twin.parent.mkdir()
    twin.symlink_to(other)
    path = ":".join(str(folder) for folder in (used.parent, other.parent, twin.parent, wrapper.parent, tools))
    facts = read({"PATH": path, "CUDA_HOME": str(tmp_path / "used")})
    mine = [(nvcc.path, nvcc.version) for nvcc in facts.others if nvcc.path.startswith(str(tmp_path))]
    assert mine == [(str(other), "13.0"), (str(wrapper), "13.0")]


HANGS = "while :; do sleep 60; done"


def test_an_nvcc_that_hangs_is_named_and_holds_nobody_up(tmp_path, tools, monkeypatch):
    monkeypatch.setattr("fi_doctor.facts.asking.TIMEOUT_S", 2.0)
    nvcc = fake_nvcc(tmp_path / "cuda", before=HANGS)
    begun = time.monotonic()
    facts = read({"PATH": str(tools), "CUDA_HOME": str(tmp_path / "cuda")}, torch_cuda="12.8")
    assert time.monotonic() - begun < 3.8  # once, although there are three questions
    said = Missing(reason=f"{nvcc} did not answer --version within 2 s")
    assert (jit_of(facts).nvcc.version, jit_of(facts).nvcc.build) == (said, said)
    assert jit_of(facts).nvcc.architectures == Missing(reason=f"{nvcc} did not answer --list-gpu-code within 2 s")
    assert jit_of(facts).headers["cuda_runtime.h"].reason.startswith(f"{nvcc} did not answer --dryrun")
    assert facts.gate_version == Missing(reason=f"get_cuda_version fails: {said.reason}")


def test_what_an_nvcc_leaves_when_it_is_asked_is_removed(tmp_path, tools):
    litter = f'case "$*" in *--dryrun*) : > "$TMPDIR/tmpxft"; echo "$TMPDIR"/* > {tmp_path}/seen ;; esac'
    fake_nvcc(tmp_path / "cuda", before=litter)
    (tmp_path / "own").mkdir()
    read({"PATH": str(tools), "CUDA_HOME": str(tmp_path / "cuda"), "TMPDIR": str(tmp_path / "own")}, torch_cuda="12.8")
    assert (tmp_path / "seen").read_text().startswith(f"{tmp_path}/own/fi-doctor-nvcc-")
    assert list((tmp_path / "own").iterdir()) == []


def test_two_compilers_that_hang_are_waited_for_once(tmp_path, tools, monkeypatch):
    monkeypatch.setattr("fi_doctor.facts.asking.TIMEOUT_S", 2.0)
    nvcc = fake_nvcc(tmp_path / "cuda", before=HANGS)
    other = fake_nvcc(tmp_path / "other", before=HANGS)
    (tools / "c++").unlink(missing_ok=True)
    script(tools / "c++", HANGS)
    environ = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "CUDA_HOME": str(tmp_path / "cuda"),
        "FLASHINFER_NVCC": str(other),
    }
    begun = time.monotonic()
    facts = read(environ, torch_cuda="12.8")
    assert time.monotonic() - begun < 3.8
    assert jit_of(facts).nvcc.version == Missing(reason=f"{nvcc} did not answer --version within 2 s")
    assert jit_of(facts).compiler.version == Missing(reason=f"{other} did not answer --version within 2 s")
    assert facts.host_compiler_version == Missing(reason="c++ did not answer --version within 2 s")
    assert jit_of(facts).host_headers["cuda.h"] == Missing(reason="c++ did not answer -v -E within 2 s")
    assert jit_of(facts).libraries["cudart"] == Missing(reason="c++ did not answer -print-search-dirs within 2 s")


@needs_cxx
def test_headers_are_found_where_the_compiler_takes_them(tmp_path, tools):
    home, extra = tmp_path / "cuda", tmp_path / "extra"
    fake_nvcc(home)
    for path in ("cuda/include/cuda_bf16.h", "cuda/targets/include/cuda_runtime.h", "extra/nv/target"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    version = tmp_path / "cuda/include/cccl/cuda/std/__cccl/version.h"
    version.parent.mkdir(parents=True)
    version.write_text("#define CCCL_VERSION 2005000\n")
    jit = jit_of(read({"PATH": str(tools), "CUDA_HOME": str(home), "CPATH": str(extra)}))
    assert jit.headers["cuda_bf16.h"] == f"{home}/include/cuda_bf16.h"
    assert jit.headers["cuda_runtime.h"] == f"{home}/targets/include/cuda_runtime.h"
    assert jit.headers["nv/target"] == f"{extra}/nv/target"
    assert jit.cccl == "2.5.0"
    assert isinstance(jit.headers["cuda/std/optional"], Missing)
    assert f"{home}/include" in jit.headers["cuda/std/optional"].reason
    # c++ compiles the .cpp files and does not know the folder of nvcc.
    assert isinstance(jit.host_headers["cuda_runtime.h"], Missing)
    assert isinstance(jit.module_headers["cublasLt.h"], Missing)


@needs_cxx
def test_headers_of_a_home_without_nvcc_are_found_and_those_of_an_nvcc_without_gcc_are_not(tmp_path, tools):
    home = tmp_path / "cuda"
    (home / "include").mkdir(parents=True)
    (home / "include" / "cuda_runtime.h").write_text("")
    environ = {"PATH": str(tools), "CUDA_HOME": str(home)}
    assert jit_of(read(environ)).headers["cuda_runtime.h"] == f"{home}/include/cuda_runtime.h"
    fake_nvcc(home, before='case "$*" in *--dryrun*) echo "gcc: No such file or directory"; exit 1 ;; esac')
    broken = jit_of(read(environ)).headers["cuda_runtime.h"]
    assert broken == Missing(reason="nvcc cannot preprocess: gcc: No such file or directory")


@needs_cxx
@pytest.mark.parametrize("first", ["first", "second"])
def test_the_order_of_includes_is_that_of_the_compiler(tmp_path, first):
    """-I, CPATH, -isystem, CPLUS_INCLUDE_PATH: of two folders with a header the compiler's own choice is ours."""
    folders = {name: tmp_path / name for name in ("option", "cpath", "system", "plus")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "cuda_runtime.h").write_text("")
    if first == "second":
        (folders["option"] / "cuda_runtime.h").unlink()
        (folders["cpath"] / "cuda_runtime.h").unlink()
    environ = {**os.environ, "CPATH": str(folders["cpath"]), "CPLUS_INCLUDE_PATH": str(folders["plus"])}
    options = [f"-I{folders['option']}", "-isystem", str(folders["system"])]
    used = subprocess.run(
        ["c++", "-M", "-x", "c++", *options, "-"],
        input="#include <cuda_runtime.h>",
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    given = {"first": [str(folders["option"])], "system": [str(folders["system"])]}
    compiler = toolchain.find_host_compiler(environ)
    asked = toolchain.read_include_folders(compiler, environ, **given)
    documented = toolchain.read_include_folders(Missing(reason="none"), environ, **given)
    assert toolchain.find_header("cuda_runtime.h", asked) == used[-1]
    assert toolchain.find_header("cuda_runtime.h", documented) == used[-1]


def linked_by_the_real_linker(cuda_home, name, environ):
    """The file that FlashInfer's link line takes for -lNAME."""
    line = ["c++", "-shared", "-Wl,--trace", "-o", os.fspath(cuda_home / "out.so")]
    folders = [f"-L{cuda_home}/lib64", f"-L{cuda_home}/lib64/stubs"]
    extra = environ.get("FLASHINFER_EXTRA_LDFLAGS", "").split()
    result = subprocess.run(
        [*line, *folders, f"-l{name}", *extra], env=environ, capture_output=True, text=True, check=False
    )
    if result.returncode:
        return result.stderr
    return next(line for line in result.stdout.splitlines() if f"lib{name}." in line)


@needs_cxx
@pytest.mark.parametrize(
    ("files", "environ", "winner"),
    [
        pytest.param(["lib64/libcudart.so"], {}, "lib64/libcudart.so", id="lib64"),
        pytest.param(["lib64/stubs/libcudart.so"], {}, "lib64/stubs/libcudart.so", id="stubs"),
        pytest.param(["lib64/libcudart.a"], {}, "lib64/libcudart.a", id="archive"),
        pytest.param(["lib64/libcudart.a", "lib64/libcudart.so"], {}, "lib64/libcudart.so", id="shared-first"),
        pytest.param(["lib64/libcudart.a", "lib64/stubs/libcudart.so"], {}, "lib64/libcudart.a", id="folder-first"),
        pytest.param(["other/libcudart.so"], {"LIBRARY_PATH": "{home}/other"}, "other/libcudart.so", id="LIBRARY_PATH"),
        pytest.param(
            ["other/libcudart.so", "flag/libcudart.so"],
            {"LIBRARY_PATH": "{home}/other", "FLASHINFER_EXTRA_LDFLAGS": "-L{home}/flag"},
            "flag/libcudart.so",
            id="EXTRA_LDFLAGS",
        ),
        pytest.param(["lib64/libcudart.so.13"], {}, "", id="only-versioned"),
        pytest.param(["other/libcudart.so"], {"LD_LIBRARY_PATH": "{home}/other"}, "", id="LD_LIBRARY_PATH-is-no-help"),
    ],
)
def test_libraries_are_found_where_the_real_linker_takes_them(tmp_path, files, environ, winner):
    for file in files:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".a"):
            subprocess.run(["ar", "rc", path], check=True)
        else:
            subprocess.run(["c++", "-shared", "-o", path, "-x", "c++", "-"], input=b"int x;", check=True)
    environ = {**os.environ, **{name: value.format(home=tmp_path) for name, value in environ.items()}}
    folders = toolchain.read_link_folders(toolchain.find_host_compiler(environ), str(tmp_path), environ)
    found = toolchain.find_library("cudart", folders)
    real = linked_by_the_real_linker(tmp_path, "cudart", environ)
    if winner:
        assert found == str(tmp_path / winner)
        assert found in real
    else:
        assert isinstance(found, Missing)
        assert "cannot find -lcudart" in real


@needs_cxx
def test_a_missing_library_comes_with_what_there_is_instead(tmp_path, tools):
    home = tmp_path / "cuda"
    fake_nvcc(home)
    (home / "lib64").mkdir()
    (home / "lib64" / "libcudart.so.13").write_text("")
    (home / "targets" / "lib").mkdir(parents=True)
    (home / "targets" / "lib" / "libcuda.so").write_text("")
    libraries = jit_of(read({"PATH": str(tools), "CUDA_HOME": str(home)})).libraries
    assert isinstance(libraries["cudart"], Missing)
    assert libraries["cudart"].reason.startswith(
        f"libcudart.so is in none of: {home}/lib64, {home}/lib64/stubs (does not exist), "
    )
    assert libraries["cudart"].reason.endswith(f"; libcudart.so.13 without the unversioned link is in {home}/lib64")
    assert isinstance(libraries["cuda"], Missing)
    assert libraries["cuda"].reason.endswith(
        f"; libcuda.so is in {home}/targets/lib, which the link line does not name"
    )


def test_the_host_compiler_is_cxx_or_cplusplus_without_its_launcher(tmp_path, tools):
    mine = script(tmp_path / "bin" / "my-c++", "echo 'my-c++ 99.1'")
    script(tools / "ccache", 'exec "$@"')
    facts = read({"PATH": str(tools), "CUDA_HOME": "/nowhere", "CXX": f"ccache {mine}"})
    assert (facts.host_compiler, facts.host_compiler_version) == (str(mine), "my-c++ 99.1")
    empty = read({"PATH": str(tools), "CUDA_HOME": "/nowhere", "CXX": ""})
    assert isinstance(empty.host_compiler, Missing)
    assert "CXX" in empty.host_compiler.reason
    absent = read({"PATH": str(tmp_path), "CUDA_HOME": "/nowhere"})
    assert absent.host_compiler == Missing(reason="c++ is not on PATH")
    assert absent.host_compiler_version == absent.host_compiler
    assert isinstance(absent.ninja, Missing)


@needs_nvcc
@needs_cxx
def test_a_wrapper_around_a_real_nvcc_compiles_but_does_not_link(tmp_path, tools):
    """The folder above the wrapper becomes cuda_home: nvcc finds its own headers, the link line finds no library."""
    wrapper = script(tmp_path / "local" / "bin" / "nvcc", f'exec {shutil.which("nvcc")} "$@"')
    environ = {**os.environ, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    for name in ("CUDA_HOME", "CUDA_PATH", "LIBRARY_PATH", "FLASHINFER_NVCC", "FLASHINFER_EXTRA_LDFLAGS"):
        environ.pop(name, None)
    facts = read(environ)
    jit = jit_of(facts)
    assert jit.cuda_home == str(tmp_path / "local")
    assert isinstance(jit.nvcc, Nvcc)
    assert jit.nvcc.path == jit.nvcc.resolved == str(wrapper)
    assert jit.nvcc.version == facts.gate_version
    source = tmp_path / "x.cu"
    source.write_text("#include <cuda_bf16.h>\n#include <cuda/std/optional>\n#include <nv/target>\n")
    common = ["-isystem", f"{jit.cuda_home}/include"]
    used = subprocess.run(
        [wrapper, *common, "-M", source], env=environ, capture_output=True, text=True, check=True
    ).stdout
    opened = {os.path.realpath(word) for word in used.split() if word.startswith("/")}
    for name, place in jit.headers.items():
        assert isinstance(place, str), name
        assert place in opened
    assert isinstance(jit.libraries["cudart"], Missing)
    assert f"{jit.cuda_home}/lib64 (does not exist)" in jit.libraries["cudart"].reason
    assert "cannot find -lcudart" in linked_by_the_real_linker(tmp_path / "local", "cudart", environ)
