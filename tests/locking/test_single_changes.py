"""One thing is changed at a time, and exactly the rows that rest on it do not hold any more."""

from __future__ import annotations

import os
import shutil

import factory as make
import pytest
from installation import FILES, ROWS, Installation, write
from msgspec.structs import replace

ALL = set(ROWS)
FLASHINFER = ALL - {"import.torch"}
GPU = FLASHINFER - {"import.flashinfer"}
NORM = {"norm.rmsnorm", "norm.fused_add_rmsnorm"}
SAMPLING = {"sampling.top_k_top_p"}
ACTIVATION = {"activation.silu_and_mul"}
RANKS = {"comm.allreduce_fusion"}
IMPORT = {"import.flashinfer"}
IMPORTS = {"import.torch", "import.flashinfer"}
COMPILED = GPU - ACTIVATION  # the others' modules come from flashinfer-jit-cache


@pytest.fixture
def machine(tmp_path):
    return Installation(tmp_path)


def package_file(name):
    def change(machine):
        write(machine.site / name, FILES.get(name, "") + "// and more\n" * (not name.endswith(".py")) + "\n")

    return change


def other_file(name):
    return lambda machine: write(machine.place(name), "changed")


def gone(name):
    return lambda machine: machine.place(name).unlink()


def variable(name, value="1"):
    return lambda machine: machine.environ.update({name: value})


def facts(**changes):
    def change(machine):
        machine.facts = replace(machine.facts, **{name: of(machine.facts) for name, of in changes.items()})

    return change


def version(name, to):
    return facts(packages=lambda old: {**old.packages, name: replace(old.packages[name], version=to)})


def gpus(*listed, **changes):
    return facts(gpus=lambda _: make.gpu_facts(*listed, **changes))


def compiler(**changes):
    def changed(old):
        jit = old.toolkit.jit
        return replace(old.toolkit, jit=replace(jit, compiler=replace(jit.compiler, **changes)))

    return facts(toolkit=changed)


def probe(name):
    def change(machine):
        copied = machine.folder / "probe.py"
        spec = next(spec for spec in machine.specs if spec.id == name)
        shutil.copy(spec.path, copied)
        copied.write_text(copied.read_text() + "# changed\n")
        machine.specs = tuple(replace(one, path=str(copied)) if one is spec else one for one in machine.specs)

    return change


def feature(name, **changes):
    def change(machine):
        known = tuple(replace(one, **changes) if one.id == name else one for one in machine.kb.features)
        machine.kb = replace(machine.kb, features=known)

    return change


def toolkit(**changes):
    return facts(toolkit=lambda old: replace(old.toolkit, **changes))


def jit(**changes):
    return facts(toolkit=lambda old: replace(old.toolkit, jit=replace(old.toolkit.jit, **changes)))


def path(change):
    """Another sys.path."""
    return facts(interpreter=lambda old: replace(old.interpreter, sys_path=tuple(change(old.interpreter.sys_path))))


def copied(machine, package, more=""):
    """The package earlier on sys.path too, with this in its first file."""
    there = machine.earlier / package
    shutil.copytree(machine.site / package, there)
    with (there / "__init__.py").open("a") as file:
        file.write(more)


CHANGES = {
    "a-source": (package_file("flashinfer/data/csrc/norm.cu"), NORM),
    "a-source-of-another-module": (package_file("flashinfer/data/csrc/sampling.cu"), SAMPLING),
    "a-header-of-two-modules": (package_file("flashinfer/data/csrc/shared.h"), NORM | SAMPLING),
    "an-included-header": (package_file("flashinfer/data/include/flashinfer/norm.cuh"), NORM),
    "a-third-party's-header": (package_file("flashinfer/data/cutlass/include/cutlass.h"), RANKS),
    "a-template": (package_file("flashinfer/data/csrc/activation.jinja"), ACTIVATION),
    "python-of-one-row": (package_file("flashinfer/norm.py"), NORM | IMPORT),
    "python-that-is-imported-late": (package_file("flashinfer/jit/activation.py"), ACTIVATION | IMPORT),
    "python-behind-a-package": (package_file("flashinfer/jit/sampling.py"), SAMPLING | IMPORT),
    "python-below-a-package": (package_file("flashinfer/comm/trtllm_ar.py"), RANKS | IMPORT),
    "python-of-all-modules": (package_file("flashinfer/jit/core.py"), FLASHINFER),
    "python-of-all-rows": (package_file("flashinfer/utils.py"), FLASHINFER),
    "python-that-no-row-calls": (package_file("flashinfer/comm/other.py"), IMPORT),
    "a-new-python-file": (package_file("flashinfer/new.py"), IMPORT),
    "a-library-in-the-cache": (other_file("ops/norm/norm.so"), NORM),
    "a-library-gone-from-the-cache": (gone("ops/sampling/sampling.so"), SAMPLING),
    "a-library-of-the-jit-cache-package": (
        package_file("flashinfer_jit_cache/jit_cache/silu_and_mul/silu_and_mul.so"),
        ACTIVATION,
    ),
    "a-cubin": (other_file("cubins/two.cubin"), RANKS),
    "the-driver": (facts(gpus=lambda old: replace(old.gpus, driver=replace(old.gpus.driver, version="590.1"))), GPU),
    "no-driver": (facts(gpus=lambda _: make.no_gpus()), GPU),
    "another-kind-of-gpu": (gpus(make.gpu(sm=100, index=0), make.gpu(sm=100, index=1)), GPU),
    "one-gpu-less": (gpus(make.gpu(index=0)), RANKS),
    "one-gpu-hidden": (gpus(make.gpu(index=0), make.gpu(index=1, visible=False)), RANKS),
    "the-way-between-two-gpus": (
        gpus(
            make.gpu(index=0), make.gpu(index=1), links=(make.link(0, 1, read="disabled by a setting of the driver"),)
        ),
        RANKS,
    ),
    "a-link-that-is-down": (gpus(make.gpu(index=0, nvlinks=(True, False)), make.gpu(index=1)), RANKS),
    "an-iommu-that-translates": (gpus(make.gpu(index=0, iommu="DMA-FQ"), make.gpu(index=1)), RANKS),
    "mig-mode": (gpus(make.gpu(index=0, mig=True), make.gpu(index=1)), GPU),
    "nvcc": (compiler(build="13.1.20"), COMPILED),
    "nvcc-itself": (other_file("cuda/bin/nvcc"), COMPILED),
    "ptxas": (other_file("cuda/bin/ptxas"), COMPILED),
    "cicc-gone": (gone("cuda/nvvm/bin/cicc"), COMPILED),
    "the-version-that-gates-read": (toolkit(gate_version="12.6"), COMPILED),
    "the-toolkit's-folder": (jit(cuda_home="/elsewhere"), COMPILED),
    "cccl": (jit(cccl="3.1.0"), COMPILED),
    "no-toolkit": (toolkit(jit=make.missing("there is none")), COMPILED),
    "the-host-compiler's-version": (toolkit(host_compiler_version="14.1.0"), COMPILED),
    "the-host-compiler": (other_file("bin/c++"), COMPILED),
    "a-variable-of-the-build": (variable("NVCC_APPEND_FLAGS", "-O1"), COMPILED),
    "cuda-home": (variable("CUDA_HOME", "/usr/local/cuda"), COMPILED),
    "a-variable-that-python-names": (variable("FLASHINFER_USE_CUDA_NORM"), NORM),
    "a-variable-that-compiles-otherwise": (variable("FLASHINFER_JIT_VERBOSE"), FLASHINFER - IMPORT),
    "a-variable-that-changes-the-command": (variable("FLASHINFER_NVCC_THREADS", "4"), FLASHINFER - IMPORT),
    "no-ninja": (toolkit(ninja=make.missing("there is none")), COMPILED),
    "a-variable-that-python-names-set-empty": (variable("FLASHINFER_USE_CUDA_NORM", ""), NORM),
    "a-variable-of-vllm": (variable("VLLM_USE_FLASHINFER_SAMPLER", "0"), SAMPLING),
    "a-variable-of-the-loader": (variable("LD_LIBRARY_PATH", "/lib"), ALL),
    "a-variable-of-several-ranks": (variable("NCCL_P2P_DISABLE"), RANKS),
    "torch": (version("torch", "2.15.0+cu130"), ALL),
    "a-library-of-torch": (package_file("torch/lib/libtorch_cuda.so"), ALL),
    "vllm": (version("vllm", "0.34.0"), ALL),
    "no-vllm": (facts(packages=lambda old: {**old.packages, "vllm": make.missing()}), ALL),
    "a-call-of-vllm": (package_file("vllm/sampler.py"), SAMPLING),
    "flashinfer": (version("flashinfer-python", "0.8.0"), FLASHINFER),
    "flashinfer-jit-cache": (version("flashinfer-jit-cache", "0.8.0"), FLASHINFER),
    "tvm-ffi": (version("apache-tvm-ffi", "0.2.0"), FLASHINFER),
    "cublas": (package_file("lib/libcublas.so.13"), GPU),
    "nccl": (package_file("lib/libnccl.so.2"), RANKS),
    "a-probe": (probe("norm.rmsnorm"), {"norm.rmsnorm"}),
    "what-is-known-of-a-row": (feature("norm.rmsnorm", title="another"), {"norm.rmsnorm"}),
    "an-init-of-torch": (package_file("torch/__init__.py"), IMPORTS),
    "a-module-of-torch": (package_file("torch/_utils.py"), IMPORTS),
    "a-library-that-torch-maps": (package_file("torch/lib/libc10.so"), IMPORTS),
    "a-module-gone-from-torch": (lambda machine: (machine.site / "torch/_utils.py").unlink(), IMPORTS),
    "a-package-that-torch-imports": (package_file("numpy/__init__.py"), IMPORTS),
    "its-compiled-module": (package_file("numpy/core.cpython-312-x86_64-linux-gnu.so"), IMPORTS),
    "a-module-that-torch-imports": (package_file("typing_extensions.py"), IMPORTS),
    "a-module-in-folders-without-init": (package_file("spaces/inner.py"), IMPORTS),
    "tvm-ffi-edited": (package_file("tvm_ffi/core.py"), IMPORT),
    "a-library-of-tvm-ffi": (package_file("tvm_ffi/lib/libtvm_ffi.so"), IMPORT),
    "a-package-shadowed-by-a-module": (other_file("earlier/numpy.py"), IMPORTS),
    "a-package-shadowed-by-a-package": (other_file("earlier/tvm_ffi/__init__.py"), IMPORT),
    "a-package-shadowed-by-bytecode": (other_file("earlier/numpy.pyc"), IMPORTS),
    "a-package-shadowed-by-a-library": (other_file("earlier/numpy.abi3.so"), IMPORTS),
    "folders-shadowed-by-a-package": (package_file("spaces/__init__.py"), IMPORTS),
    "a-module-shadowed-in-its-package": (package_file("torch/_utils/__init__.py"), IMPORTS),
    "a-package-that-was-looked-for": (other_file("earlier/dill.py"), IMPORTS),
    "another-that-was-looked-for": (package_file("cutlass/__init__.py"), IMPORT),
    "another-copy-of-a-package": (
        lambda machine: (
            shutil.copytree(machine.site / "numpy", machine.folder / "beside/numpy"),
            (machine.folder / "beside/numpy/__init__.py").write_text("another"),
            path(lambda old: (str(machine.folder / "beside"), *old))(machine),
        ),
        IMPORTS,
    ),
    "an-earlier-folder-on-the-path": (
        lambda machine: (
            other_file("beside/numpy/__init__.py")(machine),
            path(lambda old: (str(machine.folder / "beside"), *old))(machine),
        ),
        IMPORTS,
    ),
    "a-folder-less-on-the-path": (path(lambda old: old[:1]), IMPORTS),
    "an-archive-on-the-path": (
        lambda machine: (
            other_file("some.zip")(machine),
            path(lambda old: (str(machine.folder / "some.zip"), *old))(machine),
        ),
        IMPORTS,
    ),
    "sitecustomize": (package_file("sitecustomize.py"), IMPORTS),
    "usercustomize": (other_file("earlier/usercustomize.py"), IMPORTS),
    "a-pth-file-that-runs-code": (lambda machine: write(machine.site / "new.pth", "import os; os._exit\n"), IMPORTS),
    "the-same-behind-a-mark": (lambda machine: write(machine.site / "new.pth", "\ufeffimport os; os._exit\n"), IMPORTS),
    "code-in-a-pth-file": (lambda machine: write(machine.site / "plain.pth", "/somewhere\nimport x\n"), IMPORTS),
    "a-plugin-of-torch": (
        lambda machine: write(
            machine.site / "acme-1.0.dist-info" / "entry_points.txt", "[torch.backends]\nacme = acme:load\n"
        ),
        IMPORTS,
    ),
    "a-variable-that-torch-asks-for": (variable("TORCH_LOGS", "no-such-log"), IMPORTS),
    "a-variable-of-any-name-that-was-not-set": (variable("STROBELIGHT_RATE", "x"), IMPORTS),
    "a-variable-that-flashinfer-asks-for": (variable("FLASHINFER_CUBIN_DIR", "/nowhere"), IMPORT),
    "a-log-level-that-is-none": (variable("FLASHINFER_LOGLEVEL", "loud"), IMPORT),
    "a-workspace-that-cannot-be-written": (
        facts(flashinfer=lambda old: replace(old.flashinfer, cache_writable=False)),
        IMPORT,
    ),
    "what-python-is-told-of-warnings": (variable("PYTHONWARNINGS", "error"), IMPORTS),
    "python-itself": (
        facts(interpreter=lambda old: replace(old.interpreter, version="3.12.5")),
        ALL,
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_touches_exactly_the_rows_that_rest_on_it(machine, change, expected):
    lock = machine.lock()
    assert {row.feature for row in lock.rows} == ALL
    assert machine.touched(lock) == set()
    change(machine)
    assert machine.touched(lock) == expected


def touch(machine):
    for path in machine.folder.rglob("*.*"):
        if path.is_file():
            os.utime(path, ns=(1, 1))


def rewrite(machine):
    path = machine.site / "flashinfer/norm.py"
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


IRRELEVANT = {
    "times": touch,
    "a-file-written-anew": rewrite,
    "the-name-of-a-gpu": gpus(make.gpu(index=0, name="another"), make.gpu(index=1, name="another")),
    "other-gpus-of-the-same-kind": gpus(make.gpu(index=0, uuid="GPU-9"), make.gpu(index=1, uuid="GPU-8")),
    "one-more-gpu": gpus(make.gpu(index=0), make.gpu(index=1), make.gpu(index=2)),
    "how-a-gpu-is-joined-that-no-row-takes": gpus(
        make.gpu(index=0), make.gpu(index=1), make.gpu(index=2, iommu="DMA"), links=(make.link(1, 2, nvlink=False),)
    ),
    "a-gpu-of-another-kind-beside": gpus(make.gpu(index=0), make.gpu(index=1), make.gpu(sm=100, index=2)),
    "free-memory": gpus(make.gpu(index=0, memory_free_mib=1), make.gpu(index=1)),
    "how-many-jobs": variable("MAX_JOBS", "3"),
    "how-much-is-logged": variable("FLASHINFER_JIT_LOGGING"),
    "a-log-level": variable("FLASHINFER_LOGLEVEL", "3"),
    "a-variable-that-every-process-asks-for": variable("HOME", "/elsewhere"),
    "a-variable-of-nobody": variable("VLLM_LOGGING_LEVEL", "DEBUG"),
    "a-file-of-another-package": package_file("other/thing.py"),
    "a-new-file-in-site-packages": package_file("another.py"),
    "a-module-that-no-row-loads": other_file("ops/unused/unused.so"),
    "a-new-module-in-the-cache": other_file("ops/new/new.so"),
    "a-header-that-nothing-includes": package_file("flashinfer/data/include/flashinfer/unused.cuh"),
    "compiled-python": package_file("flashinfer/__pycache__/norm.pyc"),
    "a-file-of-vllm-that-calls-nothing": package_file("vllm/scheduler.py"),
    "a-module-that-torch-does-not-import": package_file("torch/testing.py"),
    "a-module-that-nothing-imports-of-numpy": package_file("numpy/random.py"),
    "a-new-module-of-torch": package_file("torch/new.py"),
    "a-file-of-tests-beside-a-package": package_file("tvm_ffi/tests/test_core.py"),
    "a-module-for-another-python": package_file("torch/_utils.cpython-311-x86_64-linux-gnu.so"),
    "a-library-that-torch-does-not-map": package_file("torch/lib/libother.so"),
    "a-package-later-on-the-path": lambda machine: (
        other_file("later/numpy.py")(machine),
        path(lambda old: (*old, str(machine.folder / "later")))(machine),
    ),
    "the-same-package-earlier-on-the-path": lambda machine: copied(machine, "tvm_ffi"),
    "an-empty-folder-of-that-name": lambda machine: (machine.earlier / "numpy").mkdir(parents=True),
    "a-package-that-nothing-asks-for": other_file("earlier/pandas/__init__.py"),
    "an-earlier-folder-with-nothing-in-it": path(lambda old: ("/nowhere", *old)),
    "a-pth-file-that-names-a-folder": lambda machine: write(machine.site / "new.pth", "/opt/somewhere\n"),
    "a-pth-file-where-python-reads-none": lambda machine: write(machine.earlier / "new.pth", "import os\n"),
    "commands-of-a-new-package": lambda machine: write(
        machine.site / "acme-1.0.dist-info" / "entry_points.txt", "[console_scripts]\nacme = acme:main\n"
    ),
    "another-package": version("sglang", "9.9"),
    "ninja": toolkit(ninja="/elsewhere/ninja"),
    "the-kernel-and-memory": facts(system=lambda old: replace(old.system, kernel="7.0", memory_total_mib=1)),
    "what-is-known-of-a-row-that-is-not-locked": feature("quant.fp8", title="another"),
}


@pytest.mark.parametrize("change", IRRELEVANT.values(), ids=IRRELEVANT)
def test_what_does_not_matter_touches_no_row(machine, change):
    lock = machine.lock()
    change(machine)
    assert machine.touched(lock) == set()
    assert len(machine.checked(lock).standing.valid) == len(ROWS)


def test_the_folder_of_somebody_else_s_probe_counts_with_the_kernel_in_it(machine):
    folder = machine.folder / "theirs"
    write(folder / "csrc" / "kernel.cu", "one")
    spec = next(spec for spec in machine.specs if spec.id == "norm.rmsnorm")
    shutil.copy(spec.path, folder / "probe.py")
    theirs = replace(spec, path=str(folder / "probe.py"), origin="acme")
    machine.specs = tuple(theirs if one is spec else one for one in machine.specs)
    lock = machine.lock()
    assert machine.touched(lock) == set()
    write(folder / "csrc" / "kernel.cu", "two")
    assert machine.touched(lock) == {"norm.rmsnorm"}
