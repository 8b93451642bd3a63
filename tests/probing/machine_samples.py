"""Plain facts of a machine with nothing on it, for tests to vary."""

import os
import sys

from fi_doctor.model import (
    Facts,
    FlashInfer,
    GpuFacts,
    Interpreter,
    Missing,
    SystemFacts,
    ToolkitFacts,
)

NOT_HERE = Missing(reason="not here")


def bare_facts():
    return Facts(
        interpreter=Interpreter(
            executable=sys.executable,
            version="3.11.0",
            implementation="cpython",
            prefix=sys.prefix,
            pythonpath=NOT_HERE,
            sys_path=(),
            is_own=True,
        ),
        gpus=GpuFacts(
            driver=NOT_HERE, gpus=NOT_HERE, visible_devices=NOT_HERE, cuda_order=Missing(reason="no libcuda.so.1")
        ),
        toolkit=ToolkitFacts(
            jit=Missing(reason="no nvcc was found"),
            gate_version=NOT_HERE,
            gate_source="none",
            others=(),
            torch_cuda=NOT_HERE,
            jit_cache_cuda=NOT_HERE,
            ninja="/usr/bin/ninja",
            host_compiler="/usr/bin/c++",
            host_compiler_version="13",
        ),
        libraries={},
        packages={},
        flashinfer=Missing(reason="no flashinfer-python on sys.path"),
        system=SystemFacts(
            os="Linux",
            kernel="6",
            libc="2.39",
            machine="x86_64",
            container=NOT_HERE,
            image={},
            cpus=2,
            memory_total_mib=NOT_HERE,
            memory_available_mib=NOT_HERE,
            memory_limit_mib=NOT_HERE,
            shm_mib=NOT_HERE,
            uid=os.getuid(),
        ),
        environment={},
        sources={},
    )


def flashinfer_facts():
    return FlashInfer(
        root="/site/flashinfer",
        version="0.7.2.post1",
        commit=NOT_HERE,
        architectures=("90a",),
        architectures_from="FLASHINFER_CUDA_ARCH_LIST",
        version_checks=(),
        version_check_disabled=False,
        cache_base="/home/me",
        cache_dir="/home/me/.cache/flashinfer/0.7.2.post1/90a",
        cache_writable=True,
        cache_owner=os.getuid(),
        cached_modules=(),
        cubin_dir=NOT_HERE,
        cubins=NOT_HERE,
        jit_cache_modules=(),
        jit_cache_architectures=NOT_HERE,
        symbols={},
    )
