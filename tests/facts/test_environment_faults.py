"""Faults seeded one at a time into a healthy environment on disk, read by the real readers and named by their rules."""

from __future__ import annotations

import shutil

import pytest
from elf_samples import elf
from environment_on_disk import KB, VERSION, Environment, ptxas, script, toolkit, write

from fi_doctor.diagnosis import findings
from fi_doctor.facts import libraries
from fi_doctor.facts import toolkit as reading
from fi_doctor.facts.libraries import read_libraries


@pytest.fixture
def environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = Environment(tmp_path)
    monkeypatch.setattr(reading, "LOCAL", str(environment.local))
    return environment


def _shipped_cache(e, version):
    e.install("flashinfer_jit_cache", version, "flashinfer_jit_cache")


def _old_cubin(e):
    e.install("flashinfer_cubin", "0.6.13", "flashinfer_cubin")


def _disabled_check(e):
    _old_cubin(e)
    e.environ["FLASHINFER_DISABLE_VERSION_CHECK"] = "1"


def _uninstall(e, name, module):
    e.remove(name)
    shutil.rmtree(e.site / module)


def _without_record(e):
    (e.info("flashinfer_python") / "RECORD").unlink()


def _empty_metadata(e):
    write(e.info("nvidia_cutlass_dsl") / "METADATA", "")


def _second_copy(e, name, version, module):
    tree = e.folder / "src"
    write(tree / module / "__init__.py", f'__version__ = "{version}"\n')
    e.environ["PYTHONPATH"] = str(tree)
    write(tree / f"{name}-{version}.dist-info" / "METADATA", f"Name: {name}\nVersion: {version}\n\n")


def _metadata(e, name, version):
    write(
        e.site / f"{name}-{version}.dist-info" / "METADATA", f"Name: {name.replace('_', '-')}\nVersion: {version}\n\n"
    )
    write(e.site / f"{name}-{version}.dist-info" / "RECORD", "")


def _recorded(e, text, size):
    [record] = e.site.glob("flashinfer_python-*.dist-info/RECORD")
    record.write_text(f"{record.read_text()}flashinfer/page.py,sha256=x,{size}\n")
    (e.site / "flashinfer/page.py").unlink(missing_ok=True)
    if text is not None:
        write(e.site / "flashinfer/page.py", text)


def _blank(e):
    (e.folder / "my cuda").symlink_to(e.environ["CUDA_HOME"])
    e.environ["CUDA_HOME"] = str(e.folder / "my cuda")


def _other_files(e):
    write(e.site / "flashinfer/_build_meta.py", '__version__ = "0.6.13"\n')


def _tree(e):
    write(e.folder / "src/vllm/__init__.py", "")
    e.environ["PYTHONPATH"] = str(e.folder / "src")


def _torch(e, version, cuda):
    e.change("torch", version)
    write(e.site / "torch/version.py", f"__version__ = {version!r}\ncuda = {cuda!r}\n")


def _wrapper(e):
    """An nvcc of /usr/local/bin, so to speak, that starts the toolkit's."""
    del e.environ["CUDA_HOME"]
    local = e.folder / "local/bin"
    local.mkdir(parents=True)
    (local / "nvcc").symlink_to(e.cuda / "bin/nvcc")
    e.environ["PATH"] += f":{local}"


def _no_nvcc(e):
    (e.cuda / "bin/nvcc").unlink()


def _hidden_nvcc(e):
    e.environ["PATH"] += f":{e.cuda}/bin"
    e.environ["CUDA_HOME"] = str(e.folder / "gone")


def _old_toolkit(e, version, codes):
    shutil.rmtree(e.cuda)
    toolkit(e.cuda, version, codes)


def _nvcc_variable(e, version):
    toolkit(e.folder / "other", version)
    e.environ["FLASHINFER_NVCC"] = f"{e.folder}/other/bin/nvcc"


def _lacks(e, *names):
    for name in names:
        (e.cuda / name).unlink()


def _cccl(e, flashinfer, nvcc, number):
    """A toolkit with these CUDA C++ headers under a FlashInfer that brings none."""
    e.cccl.unlink()
    e.change("flashinfer_python", flashinfer)
    write(e.site / "flashinfer/_build_meta.py", f'__version__ = "{flashinfer}"\n')
    _old_toolkit(e, nvcc, "sm_80 sm_90")
    write(e.cuda / "include/cuda/std/__cccl/version.h", f"#define CCCL_VERSION {number}\n")


def _second_nvcc(e):
    toolkit(e.folder / "cuda-12.8", "12.8")
    e.environ["PATH"] += f":{e.folder}/cuda-12.8/bin"


def _system_first(e):
    """A home whose include folder is also that of the system, under another name."""
    write(e.cuda / "include/stdlib.h", "")
    write(e.cxx / "cstdlib", "#include_next <stdlib.h>\n")


def _ptxas(e, sm, common, blackwell=""):
    folder = e.site / "triton/backends/nvidia/bin"
    e.sm = sm
    script(folder / "ptxas", ptxas(common))
    (folder / "ptxas-blackwell").unlink()
    if blackwell:
        script(folder / "ptxas-blackwell", ptxas(blackwell))


def _ptxas_variable(e):
    e.sm = 121
    script(e.folder / "old/ptxas", ptxas("12.8"))
    e.environ["TRITON_PTXAS_BLACKWELL_PATH"] = str(e.folder / "old/ptxas")


def _compat(e, version, gpu="NVIDIA H200"):
    """A cuda-compat library before the driver's, 580.159.04."""
    folder = e.folder / "cuda-12.9/compat"
    write(folder / f"libcuda.so.{version}", "")
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    e.environ["LD_LIBRARY_PATH"], e.gpu = str(folder), gpu


def _older_flashinfer(e):
    e.change("flashinfer_python", "0.6.7.post3")
    write(e.site / "flashinfer/_build_meta.py", '__version__ = "0.6.7.post3"\n')


def _ray(e):
    e.install("ray", "2.50.0")


def _pth(e, module):
    """A source tree that a .pth file puts before site-packages."""
    write(e.folder / "src" / module / "__init__.py", "")
    write(e.site / "zz.pth", f"import sys; sys.path.insert(0, {str(e.folder / 'src')!r})\n")


def _loop(e, name):
    place = e.info(name) if (e.site / name).is_dir() is False else e.site / name
    shutil.rmtree(place)
    place.symlink_to(place.name)


def _three_toolkits(e):
    """CUDA_HOME is one, nvcc on PATH another, and the folder of NVIDIA's packages has a third."""
    _second_nvcc(e)
    toolkit(e.local / "cuda-12.4", "12.4")
    (e.local / "cuda").symlink_to("cuda-12.4")


def _requires(e, name, line):
    with (e.info(name) / "METADATA").open("r+") as metadata:
        head = metadata.read().rstrip()
        metadata.seek(0)
        metadata.write(f"{head}\nRequires-Dist: {line}\n\n")


def _set(**values):
    return lambda e: e.environ.update({k: v.replace("@", str(e.cuda)) for k, v in values.items()})


GXX16 = "gcc (GCC) 16.1.0"
FAULTS = {
    "cubin of another version": ("flashinfer-cubin-breaks-import", _old_cubin),
    "jit-cache of another version": ("flashinfer-jit-cache-breaks-import", lambda e: _shipped_cache(e, "0.6.13+cu130")),
    "jit-cache of another CUDA": ("jit-cache-for-other-cuda", lambda e: _shipped_cache(e, f"{VERSION}+cu129")),
    "version check off": ("flashinfer-version-check-disabled", _disabled_check),
    "no flashinfer": ("flashinfer-not-installed", lambda e: _uninstall(e, "flashinfer_python", "flashinfer")),
    "no torch": ("torch-not-installed", lambda e: _uninstall(e, "torch", "torch")),
    "torch without CUDA": ("torch-without-cuda", lambda e: _torch(e, "2.14.0+cpu", None)),
    "vLLM's pin of FlashInfer": ("vllm-requirement-not-met", _older_flashinfer),
    "vLLM's pin of the DSL": ("vllm-requirement-not-met", lambda e: e.change("nvidia_cutlass_dsl", "4.7.1")),
    "tvm-ffi too old": ("flashinfer-requirement-not-met", lambda e: e.change("apache_tvm_ffi", "0.1.6")),
    "cutlass-dsl too old": ("flashinfer-requirement-not-met", lambda e: e.change("nvidia_cutlass_dsl", "4.3.4")),
    "cudnn-frontend too old": ("flashinfer-requirement-not-met", lambda e: e.change("nvidia_cudnn_frontend", "1.13.0")),
    "no tvm-ffi": (
        "flashinfer-import-requirement-absent",
        lambda e: _uninstall(e, "apache_tvm_ffi", "tvm_ffi"),
    ),
    "no cudnn-frontend": ("flashinfer-requirement-absent", lambda e: e.remove("nvidia_cudnn_frontend")),
    "vLLM without what it requires": ("vllm-requirement-absent", lambda e: _requires(e, "vllm", "of-nobody>=1")),
    "the DSL without its part for CUDA 13": (
        "vllm-requirement-absent",
        lambda e: _requires(e, "nvidia_cutlass_dsl", "nvidia-cutlass-dsl-libs-cu13==4.8.0; extra == 'cu13'"),
    ),
    "torch without cuBLAS": ("torch-requirement-absent", lambda e: _requires(e, "torch", "cuda-toolkit[cublas]")),
    "torch with another cuDNN": ("torch-requirement-not-met", lambda e: _requires(e, "torch", "nvidia-cudnn-cu13>10")),
    "cubin without what it requires": (
        "companion-requirement-absent",
        lambda e: e.install("flashinfer_cubin", VERSION, "flashinfer_cubin", ("of-nobody",)),
    ),
    "a cubin cut off": (
        "cubins-damaged",
        lambda e: write(e.folder / "home/.cache/flashinfer/cubins/a.cubin", "\x7fELF and no more"),
    ),
    "vLLM's tree by a .pth": ("source-tree-on-pythonpath", lambda e: _pth(e, "vllm")),
    "FlashInfer's tree by a .pth": ("flashinfer-installed-twice", lambda e: _pth(e, "flashinfer")),
    "FlashInfer is a loop of links": ("package-without-code", lambda e: _loop(e, "flashinfer")),
    "vLLM is a loop of links": ("package-without-code", lambda e: _loop(e, "vllm")),
    "metadata are a loop of links": ("package-metadata-missing", lambda e: _loop(e, "apache_tvm_ffi")),
    "three toolkits": ("nvcc-on-path-not-taken", _three_toolkits),
    "pip's leftover": ("pip-was-interrupted", lambda e: write(e.site / "~lashinfer/__init__.py", "")),
    "pip's second leftover": ("pip-was-interrupted", lambda e: write(e.site / "~-rch-2.9.dist-info/METADATA", "")),
    "metadata of an older FlashInfer": (
        "metadata-left-by-upgrade",
        lambda e: _metadata(e, "flashinfer_python", "0.5.3"),
    ),
    "FlashInfer's files are of another version": ("metadata-of-other-version", _other_files),
    "an empty page.py": ("package-files-damaged", lambda e: _recorded(e, "", 41234)),
    "a lost page.py": ("package-files-damaged", lambda e: _recorded(e, None, 41234)),
    "a patched page.py": ("package-files-changed", lambda e: _recorded(e, "import torch\n", 41234)),
    "FlashInfer without code": ("package-without-code", lambda e: shutil.rmtree(e.site / "flashinfer")),
    "vLLM without code": ("package-without-code", lambda e: shutil.rmtree(e.site / "vllm")),
    "no RECORD": ("package-metadata-missing", _without_record),
    "METADATA of 0 bytes": ("package-metadata-missing", _empty_metadata),
    "bytecode that is not kept": ("python-compiled-by-every-process", _set(PYTHONDONTWRITEBYTECODE="1")),
    "cuDNN of two majors": ("one-folder-of-two-cuda-majors", lambda e: e.install("nvidia_cudnn_cu12", "9.10.2")),
    "CuPy of CUDA 12": ("cupy-for-other-cuda", lambda e: e.install("cupy_cuda12x", "13.6.0")),
    "abandoned pynvml": ("pynvml-replaces-nvidia-ml-py", lambda e: e.install("pynvml", "11.5.3", "pynvml")),
    "two FlashInfers": (
        "flashinfer-installed-twice",
        lambda e: _second_copy(e, "flashinfer_python", "0.6.13", "flashinfer"),
    ),
    "vLLM's tree on PYTHONPATH": ("source-tree-on-pythonpath", _tree),
    "vLLM's tree here": ("source-tree-in-current-folder", lambda e: write(e.folder / "vllm/__init__.py", "")),
    "link to nvcc": ("cuda-home-derived-from-nvcc-wrapper", _wrapper),
    "colon in CUDA_HOME": ("cuda-home-malformed", _set(CUDA_HOME=":@")),
    "bin in CUDA_HOME": ("cuda-home-malformed", _set(CUDA_HOME="@/bin")),
    "blank in CUDA_HOME": ("cuda-home-with-blank", _blank),
    "quotes in CUDA_HOME": ("cuda-home-malformed", _set(CUDA_HOME='"@"')),
    "CUDA_HOME without nvcc": ("nvcc-not-taken", _hidden_nvcc),
    "vLLM without nvcc": ("has-flashinfer-false-without-nvcc-or-ninja", _no_nvcc),
    "nvcc too old for the GPU": ("nvcc-too-old-for-gpu", lambda e: _old_toolkit(e, "11.5", "sm_80 sm_86")),
    "nvcc of another major": ("nvcc-major-differs-from-torch", lambda e: _old_toolkit(e, "12.8", "sm_80 sm_90")),
    "FLASHINFER_NVCC and gate": ("flashinfer-nvcc-and-gates-differ", lambda e: _nvcc_variable(e, "12.9")),
    "FLASHINFER_NVCC too old": ("nvcc-older-than-gate", lambda e: _nvcc_variable(e, "12.6")),
    "source tree without its CCCL": ("cccl-too-old-for-flashinfer", lambda e: e.cccl.unlink()),
    "CCCL of 12.8 beside nvcc 13.0": (
        "cccl-too-old-for-flashinfer",
        lambda e: _cccl(e, "0.6.7.post3", "13.0", 2007000),
    ),
    "CCCL of 13.0 beside nvcc 12.8": ("cccl-newer-than-nvcc", lambda e: _cccl(e, "0.6.7.post3", "12.8", 3000001)),
    "runtime's headers of 13.1": (
        "runtime-headers-of-other-release",
        lambda e: write(e.cuda / "include/cuda_runtime_api.h", "#define CUDART_VERSION  13010\n"),
    ),
    "another nvcc on PATH": ("nvcc-on-path-not-taken", _second_nvcc),
    "headers of C before those of C++": ("system-headers-before-cxx", _system_first),
    "no cuda_runtime.h": ("toolkit-lacks-headers", lambda e: _lacks(e, "include/cuda_runtime.h")),
    "no cublasLt.h": ("toolkit-lacks-module-headers", lambda e: _lacks(e, "include/cublasLt.h")),
    "no curand_kernel.h": ("toolkit-lacks-module-headers", lambda e: _lacks(e, "include/curand_kernel.h")),
    "no libcudart.so": ("toolkit-lacks-link-libraries", lambda e: _lacks(e, "lib64/libcudart.so")),
    "no stub of libcuda": ("toolkit-lacks-link-libraries", lambda e: _lacks(e, "lib64/stubs/libcuda.so")),
    "no libcublasLt.so": ("toolkit-lacks-cublas", lambda e: _lacks(e, "lib64/libcublasLt.so")),
    "no libnvrtc.so": ("toolkit-lacks-nvrtc", lambda e: _lacks(e, "lib64/libnvrtc.so")),
    "gcc too new": ("host-compiler-refused-by-nvcc", lambda e: e.compiler("gcc", GXX16)),
    "CC too new": (
        "host-compiler-refused-by-nvcc",
        lambda e: (e.compiler("clang", "clang version 21.1.0"), e.environ.update(CC="clang")),
    ),
    "gcc too old": ("host-compiler-too-old", lambda e: e.compiler("gcc", "gcc (GCC) 4.8.5 20150623")),
    "no gcc": ("nvcc-host-compiler-not-found", lambda e: (e.bin / "gcc").unlink()),
    "no c++": ("host-compiler-not-found", lambda e: (e.bin / "c++").unlink()),
    "CUDAHOSTCXX": ("cudahostcxx-not-read", _set(CUDAHOSTCXX="g++-12")),
    "no ninja": ("ninja-not-found", lambda e: (e.bin / "ninja").unlink()),
    "one ptxas too old": ("triton-ptxas-too-old-for-gpu", lambda e: _ptxas(e, 121, "12.8")),
    "second ptxas too old": ("triton-ptxas-too-old-for-gpu", lambda e: _ptxas(e, 103, "13.0", "12.8")),
    "ptxas by variable too old": ("triton-ptxas-too-old-for-gpu", _ptxas_variable),
    "driver too old": ("driver-too-old-for-torch", lambda e: setattr(e, "driver_cuda", "12.8")),
    "compat library older than the driver": (
        "compat-library-older-than-driver",
        lambda e: _compat(e, "575.57.08"),
    ),
    "compat library on a consumer's GPU": (
        "compat-library-on-consumer-gpu",
        lambda e: _compat(e, "590.44.01", "NVIDIA GeForce RTX 4090"),
    ),
    "Ray": ("ray-workers-lack-variables", _ray),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_seeded_fault_is_found_and_named(name, environment):
    rule, seed = FAULTS[name]
    seed(environment)
    assert rule in environment.findings()


HEALTHY = {
    "as it is": lambda _: None,
    "CUDA_HOME with a slash at its end": _set(CUDA_HOME="@/"),
    "found by PATH": lambda e: (e.environ.pop("CUDA_HOME"), e.environ.update(PATH=f"{e.bin}:{e.cuda}/bin")),
    "made by uv, with fitting companions": lambda e: (
        write(e.venv / "pyvenv.cfg", (e.venv / "pyvenv.cfg").read_text() + "uv = 0.9.2\n"),
        e.install("flashinfer_cubin", VERSION, "flashinfer_cubin"),
        _shipped_cache(e, f"{VERSION}+cu130"),
    ),
    "another compiler by NVCC_CCBIN": lambda e: (
        e.compiler("gcc", GXX16),
        e.compiler("gcc-15", "gcc-15 (Debian 15.2.0-4) 15.2.0"),
        e.environ.update(NVCC_CCBIN="gcc-15"),
    ),
    "the check of the compiler is off": lambda e: (
        e.compiler("gcc", GXX16),
        e.environ.update(FLASHINFER_EXTRA_CUDAFLAGS="-allow-unsupported-compiler"),
    ),
    "a newer compat library on a GPU of a data centre": lambda e: _compat(e, "590.44.01"),
    "a driver of an older minor release": lambda e: (
        toolkit(e.cuda, "13.2"),
        _torch(e, "2.14.0+cu132", "13.2"),
        setattr(e, "driver_cuda", "13.0"),
    ),
    "loops of links that nobody imports": lambda e: (
        (e.site / "one").symlink_to(e.site / "other"),
        (e.site / "other").symlink_to(e.site / "one"),
        (e.site / "itself").symlink_to(e.site),
        (e.site / "x.pth").symlink_to("x.pth"),
    ),
    "requirements under other names": lambda e: (
        _requires(e, "torch", "cuda-toolkit[cublas,cudart]==13.0.3"),
        e.install("nvidia_cublas_cu13", "13.1.1.3"),
        e.install("nvidia_cuda_runtime", "13.0.96"),
        _requires(e, "vllm", "opencv-python-headless>=4.13.0"),
        e.install("opencv_python", "4.13.0.92"),
        _requires(e, "vllm", "ninja"),
    ),
    "requirements of others": lambda e: (
        _requires(e, "vllm", "of-nobody; python_version < '3'"),
        _requires(e, "vllm", "of-nobody; extra == 'ray'"),
    ),
    "Blackwell with two ptxas": lambda e: (
        _ptxas(e, 121, "12.8", "13.3"),
        e.environ.update(FLASHINFER_CUDA_ARCH_LIST="12.1"),
    ),
}


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_nothing_is_broken_in_a_healthy_environment(name, environment):
    HEALTHY[name](environment)
    found = environment.findings()
    assert [rule for rule, severity in found.items() if severity == "error"] == []
    assert [rule for rule in found if "requirement" in rule] == []


def test_a_pth_file_that_puts_a_tree_in_front_is_named(environment):
    _pth(environment, "vllm")
    assert f"{environment.site}/zz.pth" in environment.fix("source-tree-on-pythonpath")[0]


def test_of_three_toolkits_each_is_named(environment):
    _three_toolkits(environment)
    told = environment.found("nvcc-on-path-not-taken")
    assert f"CUDA 13.0 of {environment.cuda} (by CUDA_HOME)" in told.title
    assert f"nvcc 12.8 ({environment.folder}/cuda-12.8/bin/nvcc)" in told.title
    assert f"12.4 ({environment.local}/cuda-12.4)" in told.why


def test_another_cudart_on_ld_library_path_is_taken_where_no_wheel_has_one(environment, monkeypatch):
    folder = environment.folder / "old"
    folder.mkdir()
    (folder / "libcudart.so.12.8.90").write_bytes(elf())
    (folder / "libcudart.so.12").symlink_to("libcudart.so.12.8.90")
    environment.environ["LD_LIBRARY_PATH"] = str(folder)
    monkeypatch.setattr(libraries, "read_cache", lambda _: {})
    facts = environment.facts(read_libraries)
    assert facts.libraries["cudart"].path == f"{folder}/libcudart.so.12"
    assert "runtime-library-of-other-cuda-major" in {found.id for found in findings.find(KB, facts, ())}


def test_a_toolkit_that_is_proposed_says_what_it_lacks(environment):
    rule = "cuda-home-derived-from-nvcc-wrapper"
    _wrapper(environment)
    assert environment.fix(rule) == (f"export CUDA_HOME={environment.cuda}",)
    _lacks(environment, "include/cublasLt.h")
    told = f"export CUDA_HOME={environment.cuda}  # it lacks cublasLt.h, which some modules need"
    assert environment.fix(rule) == (told,)
    _lacks(environment, "lib64/stubs/libcuda.so")
    told = f"export CUDA_HOME={environment.cuda}  # it lacks libcuda.so, without which no module is built"
    assert environment.fix(rule)[0].startswith(told)
    toolkit(environment.folder / "complete")
    environment.environ["PATH"] += f":{environment.folder}/complete/bin"
    assert environment.fix(rule)[0] == f"export CUDA_HOME={environment.folder}/complete"


def test_vllm_is_told_which_of_nvcc_and_ninja_it_does_not_find(environment):
    rule = "has-flashinfer-false-without-nvcc-or-ninja"
    (environment.bin / "ninja").unlink()
    told = environment.found(rule)
    assert "nvcc (" not in told.title
    assert "ninja (" in told.title
    assert [line for line in told.fix if "CUDA" in line] == []
    assert next(line.partition("-m ")[2] for line in told.fix).startswith("pip install ninja")
    environment.install("ninja", "1.13.0")
    assert environment.fix(rule)[0] == f"export PATH={environment.venv}/bin:$PATH"
    script(environment.bin / "ninja", "echo 1.13.0\n")
    (environment.cuda / "bin/nvcc").unlink()
    told = environment.found(rule)
    assert "ninja (" not in told.title
    assert [line for line in told.fix if "ninja" in line and "cubin" not in line] == []


def test_all_that_lacks_is_installed_by_one_line(environment):
    _uninstall(environment, "apache_tvm_ffi", "tvm_ffi")
    environment.remove("nvidia_cudnn_frontend")
    environment.change("nvidia_cutlass_dsl", "4.3.4")
    [line] = environment.fix("flashinfer-import-requirement-absent")
    assert line.endswith(
        "-m pip install 'apache-tvm-ffi<0.2,>=0.1.11' 'nvidia-cutlass-dsl>=4.6.2a0' 'nvidia-cudnn-frontend>=1.31.0'"
    )


def test_a_healthy_environment_has_none_of_the_seeded_faults(environment):
    found = environment.findings()
    assert found.keys() & {rule for rule, _ in FAULTS.values()} == set()
    assert set(found.values()) <= {"info"}
