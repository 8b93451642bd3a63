"""Facts: what is read off the machine and the examined interpreter; what cannot be read has a reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fi_doctor.facts import packages
from fi_doctor.facts.environment import read_environment
from fi_doctor.facts.flashinfer import read_flashinfer
from fi_doctor.facts.gpus import read_gpus
from fi_doctor.facts.libraries import read_libraries
from fi_doctor.facts.system import read_system
from fi_doctor.facts.toolkit import read_toolkit
from fi_doctor.model import Facts, Interpreter, Missing

SOURCES = {
    "environment": "the environment given to fi-doctor, by allow-list",
    "flashinfer": "files of the installed package, which is not imported",
    "interpreter": "inside/survey.py, run by the examined interpreter",
    "libraries": "files on the examined loader's search path",
    "packages": "*.dist-info and *.egg-info on the examined sys.path",
    "system": "/proc, /sys/fs/cgroup, /etc/os-release, os",
    "toolkit": "nvcc --version and nvcc --list-gpu-code",
    "toolkit.jit_cache_cuda": "version of flashinfer-jit-cache",
    "toolkit.torch_cuda": "torch/version.py",
}


def collect(python: str, *, symbols: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> Facts:
    """Everything that can be read, for a process of the interpreter `python` with these variables.

    symbols: dotted FlashInfer names to look up in its source. Raises TargetError when the interpreter cannot be used.
    """
    environ = dict(os.environ if environ is None else environ)
    # The readers mostly wait for children of theirs (the examined interpreter, nvcc), so they wait side by side.
    with ThreadPoolExecutor(max_workers=3) as pool:
        gpus_soon = pool.submit(read_gpus, environ)
        system_soon = pool.submit(read_system)
        seen = packages.survey(python, environ)
        libraries_soon = pool.submit(read_libraries, environ, seen)
        toolkit = read_toolkit(
            environ, torch_cuda=packages.torch_cuda(seen), jit_cache_cuda=packages.jit_cache_cuda(seen)
        )
        gpus, gpu_sources = gpus_soon.result()
        return Facts(
            interpreter=interpreter(seen, environ),
            gpus=gpus,
            toolkit=toolkit,
            libraries=libraries_soon.result(),
            packages=packages.packages(seen),
            flashinfer=read_flashinfer(seen, environ, gpus, toolkit, symbols),
            system=system_soon.result(),
            environment=read_environment(environ),
            sources=dict(sorted({**SOURCES, **gpu_sources}.items())),
        )


def interpreter(seen: packages.Survey, environ: Mapping[str, str]) -> Interpreter:
    """The examined interpreter; it is our own when it is the same program in the same environment."""
    same_program = Path(seen.executable).resolve() == Path(sys.executable).resolve()
    return Interpreter(
        executable=seen.executable,
        version=seen.version,
        implementation=seen.implementation,
        prefix=seen.prefix,
        pythonpath=environ.get("PYTHONPATH", Missing(reason="PYTHONPATH is not set")),
        sys_path=seen.sys_path,
        is_own=same_program and Path(seen.prefix).resolve() == Path(sys.prefix).resolve(),
    )
