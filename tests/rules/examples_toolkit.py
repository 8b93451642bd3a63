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


EXAMPLES: dict[str, Example] = {
    "host-compiler-refused-by-nvcc": Example(fires=_host(16), silent=_host(16, checked=False)),
    "host-compiler-too-old": Example(fires=_host(5), silent=_host(5, family="clang")),
    "cudahostcxx-not-read": Example(
        fires=make.facts(environment={"CUDAHOSTCXX": "g++-12"}),
        silent=make.facts(environment={"CUDAHOSTCXX": "g++-12", "CC": "gcc-12"}),
    ),
    "triton-ptxas-too-old-for-gpu": Example(fires=_ptxas("12.8", "", 121), silent=_ptxas("12.8", "13.3", 121)),
}
