"""Examples of the rules about nvcc's host compiler and Triton's ptxas."""

from __future__ import annotations

import factory as make
from example import Example

from fi_doctor.model import Facts, HostLimits, Ptxas, TritonPtxas


def _host(major: int, *, family: str = "gcc", checked: bool = True) -> Facts:
    return make.facts(
        host_limits=HostLimits(
            source="/usr/local/cuda-13.0/include/crt/host_config.h",
            newest_gcc=15,
            newest_clang=20,
            compiler="/usr/bin/gcc",
            named_by="PATH",
            family=family,
            major=major,
            checked=checked,
        )
    )


def _ptxas(common: str, blackwell: str, sm: int) -> Facts:
    second = make.absent("no ptxas-blackwell")
    if blackwell:
        second = Ptxas(path="/venv/ptxas-blackwell", found_by="triton", version=blackwell)
    first = Ptxas(path="/venv/ptxas", found_by="triton", version=common)
    return make.facts(gpus=make.gpu_facts(make.gpu(sm=sm)), triton_ptxas=TritonPtxas(common=first, blackwell=second))


def _jit(version: str = "13.0", environment: dict[str, str] | None = None, **changes) -> Facts:
    tools = make.toolkit(version, jit=make.jit(version, **changes), others=(make.nvcc("13.0"),))
    return make.facts(toolkit=tools, environment=environment or {})


NO_NVCC = make.missing(":/usr/local/cuda-13.0/bin/nvcc does not exist")
GONE = make.absent("it is in none of: /usr/local/cuda-13.0/lib64")
NO_GCC = make.missing("gcc, which nvcc calls (PATH), is not on PATH")


def _without_gcc(**changes) -> Facts:
    limits = HostLimits(
        source="/usr/local/cuda-13.0/include/crt/host_config.h",
        newest_gcc=15,
        newest_clang=20,
        compiler=NO_GCC,
        named_by="PATH",
        family=NO_GCC,
        major=NO_GCC,
        checked=True,
    )
    return make.facts(host_limits=limits, toolkit=make.toolkit(**changes))


def _cccl(flashinfer: str, nvcc: str, cccl: str, *, own: str = "", **changes) -> Facts:
    """A toolkit with these CUDA C++ headers under that FlashInfer, which may bring its own."""
    package = make.flashinfer(flashinfer, cccl=own or make.absent("no data/cccl"))
    tools = make.toolkit(nvcc, jit=make.jit(nvcc, cccl=cccl, **changes))
    return make.facts(toolkit=tools, flashinfer=package, packages={"flashinfer-python": flashinfer})


def _two_nvccs(on_path: str, other: str) -> Facts:
    nvcc = make.nvcc(other, "/usr", found_by="PATH")
    return make.facts(toolkit=make.toolkit(nvcc_on_path=on_path, others=(nvcc,)))


def _of_usr(*others: str) -> Facts:
    nvcc = make.nvcc("12.0", "/usr", found_by="PATH")
    jit = make.jit("12.0", "/usr", found_by="which nvcc", nvcc=nvcc, compiler=nvcc)
    return make.facts(toolkit=make.toolkit("12.0", jit=jit, others=tuple(map(make.nvcc, others))))


EXAMPLES: dict[str, Example] = {
    "cccl-too-old-for-flashinfer": Example(
        fires=_cccl("0.6.7.post3", "13.0", "2.7.0"), silent=_cccl("0.7.2.post1", "12.4", "2.3.2", own="3.6.0")
    ),
    "cccl-newer-than-nvcc": Example(
        fires=_cccl("0.5.3", "12.8", "3.0.1"), silent=_cccl("0.7.2.post1", "12.8", "3.0.1", own="3.6.0")
    ),
    "runtime-headers-of-other-release": Example(
        fires=_cccl("0.7.2.post1", "13.0", "3.0.1", own="3.6.0", runtime="13.1"),
        silent=_cccl("0.5.3", "12.8", "2.7.0", runtime="12.9"),
    ),
    "nvcc-on-path-not-taken": Example(
        fires=_two_nvccs("/usr/bin/nvcc", "12.4"), silent=_two_nvccs("/usr/bin/nvcc", "13.0")
    ),
    "nvcc-of-usr-taken": Example(fires=_of_usr("12.8"), silent=_of_usr("11.5")),
    "system-headers-before-cxx": Example(
        fires=_jit(c_before_cxx="/usr//include"), silent=_jit(home="/usr", nvcc=make.nvcc(home="/usr"))
    ),
    "host-compiler-refused-by-nvcc": Example(fires=_host(16), silent=_host(16, checked=False)),
    "host-compiler-too-old": Example(fires=_host(5), silent=_host(5, family="clang")),
    "cudahostcxx-not-read": Example(
        fires=make.facts(environment={"CUDAHOSTCXX": "g++-12"}),
        silent=make.facts(environment={"CUDAHOSTCXX": "g++-12", "CC": "gcc-12"}),
    ),
    "triton-ptxas-too-old-for-gpu": Example(fires=_ptxas("12.8", "", 121), silent=_ptxas("12.8", "13.3", 121)),
    "nvcc-older-than-gate": Example(
        fires=_jit(compiler=make.nvcc("12.6", found_by="FLASHINFER_NVCC")), silent=_jit(compiler=make.nvcc("12.8"))
    ),
    "toolkit-lacks-cublas": Example(
        fires=_jit(module_libraries={"cublas": "/usr/lib/libcublas.so", "cublasLt": GONE, "nvrtc": "/usr/lib/x.so"}),
        silent=_jit(module_libraries={"cublas": "/a/libcublas.so", "cublasLt": "/a/libcublasLt.so", "nvrtc": GONE}),
    ),
    "toolkit-lacks-nvrtc": Example(
        fires=_jit(module_libraries={"cublas": "/usr/lib/libcublas.so", "nvrtc": GONE}),
        silent=_jit(module_libraries={"cublas": GONE, "nvrtc": "/usr/lib/libnvrtc.so"}),
    ),
    "cuda-home-malformed": Example(
        fires=_jit(nvcc=NO_NVCC, compiler=NO_NVCC, environment={"CUDA_HOME": ":/usr/local/cuda-13.0"}),
        silent=_jit(nvcc=NO_NVCC, compiler=NO_NVCC, environment={"CUDA_HOME": "/opt/no-toolkit/"}),
    ),
    "cuda-home-with-blank": Example(
        fires=_jit(cuda_home="/opt/my cuda"), silent=_jit(cuda_home="/opt/my cuda", nvcc=NO_NVCC, compiler=NO_NVCC)
    ),
    "nvcc-host-compiler-not-found": Example(
        fires=_without_gcc(), silent=_without_gcc(host_compiler=make.missing("c++ is not on PATH"))
    ),
}
