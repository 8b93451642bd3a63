"""Facts: what is read off the machine and the examined interpreter; what cannot be read has a reason."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from fi_doctor import acting
from fi_doctor.errors import TargetError
from fi_doctor.facts import packages, toolkit, toolkits, wrappers
from fi_doctor.facts.binaries import Reader
from fi_doctor.facts.contents import read_vllm
from fi_doctor.facts.environment import read_environment
from fi_doctor.facts.flashinfer import read_flashinfer
from fi_doctor.facts.gpus import read_gpus, read_gpus_of_nvml
from fi_doctor.facts.host_limits import read_host_limits
from fi_doctor.facts.installed_on import read_installed_on
from fi_doctor.facts.libraries import read_libraries
from fi_doctor.facts.machine import Serving, with_machine
from fi_doctor.facts.ptxas import read_triton_ptxas
from fi_doctor.facts.ray import read_ray_copies
from fi_doctor.facts.site import read_site
from fi_doctor.facts.sources import read_calls, read_named
from fi_doctor.facts.system import read_system
from fi_doctor.model import (
    Binaries,
    Calls,
    Facts,
    FlashInfer,
    GpuFacts,
    Interpreter,
    Library,
    Missing,
    Named,
    Vllm,
)
from fi_doctor.model.assignments import Assignment, changed
from fi_doctor.workers import Workers

SOURCES = {
    "binaries": "headers of shared objects: .nv_fatbin, dynamic section, dynamic symbols",
    "calls": "files of the installed vllm and flashinfer, which are not imported",
    "environment": "the environment given to fi-doctor, by allow-list",
    "flashinfer": "files of the installed package, which is not imported",
    "installed_on": "times of RECORD or METADATA",
    "host_limits": "crt/host_config.h of the toolkit, and --version of the compiler that nvcc calls",
    "interpreter": "inside/survey.py, run by the examined interpreter",
    "libraries": "files on the examined loader's search path",
    "machine": "stat, statvfs, quotactl, /proc/self/mountinfo, /proc/self/net/route, /dev, the user database",
    "packages": "*.dist-info and *.egg-info on the examined sys.path",
    "server": "/proc/PID of the process that is named",
    "ray_copies": "vllm/ray/ray_env.py, which is not imported",
    "site": "listings of the folders of the examined sys.path",
    "system": "/proc, /sys/fs/cgroup, /etc/os-release, os",
    "toolkit": "nvcc --version and nvcc --list-gpu-code",
    "toolkit.jit_cache_cuda": "version of flashinfer-jit-cache",
    "toolkit.torch_cuda": "torch/version.py",
    "triton_ptxas": "ptxas --version",
    "vllm": "files of the installed package, which is not imported",
}


def collect(python: str, *, symbols: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> Facts:
    """Everything that can be read, for a process of the interpreter `python` with these variables.

    symbols: dotted FlashInfer names to look up in its source. Raises TargetError when the interpreter cannot be used.
    """
    return Gathering(python, environ).finish(symbols)


class Gathering:
    """Reading that has begun. It mostly waits for children (the examined interpreter, nvcc): time for other things.

    asks_cuda: whether the CUDA driver is asked, in a child; without it NVML tells of the GPUs.
    gpus: tells of GPUs and driver in place of this machine.
    vllm, calls: read the installed vLLM, and how it calls FlashInfer, which takes longest of all.
    named: reads what FlashInfer's source says of names.
    libraries: finds the CUDA libraries that a process would load.
    serving: the user or the process that serves, where it is not this one.
    binaries: reads shared objects; None where nobody asks for them.
    environ: the variables of what is started; once it is finished also those that a wrapper of the interpreter sets.
    """

    def __init__(  # noqa: PLR0913 - each reader by itself
        self,
        python: str,
        environ: Mapping[str, str] | None = None,
        *,
        asks_cuda: bool = True,
        gpus: Callable[[Mapping[str, str]], tuple[GpuFacts, dict[str, str]]] | None = None,
        vllm: Callable[[packages.Survey], Vllm | Missing] = read_vllm,
        calls: Callable[[packages.Survey], Calls | Missing] = read_calls,
        named: Callable[[Path, str, tuple[str, ...]], Named] = read_named,
        libraries: Callable[[Mapping[str, str], packages.Survey], dict[str, Library | Missing]] = read_libraries,
        serving: Serving | None = None,
        binaries: Reader | None = None,
    ) -> None:
        self._read_named, self._find_libraries, self._serving = named, libraries, serving
        self.environ = dict(os.environ if environ is None else environ)
        pool = Workers()
        self._python, self._refused = python, ""  # why it is not started as the user who serves
        self._survey = pool.submit(self._read_survey)
        self._start = pool.submit(self._read_start)
        self._compilers = pool.submit(toolkit.ask_compilers, self.environ)
        self._wheels = pool.submit(lambda: toolkits.ask_wheels(self._survey.result().sys_path, self.environ))
        self._read_gpus = gpus or (read_gpus if asks_cuda else read_gpus_of_nvml)
        self._gpus = pool.submit(self._read_gpus, self.environ)
        self._system = pool.submit(read_system, self.environ if serving and serving.process else None)
        self._libraries = pool.submit(self._read_libraries)
        self._vllm = pool.submit(lambda: vllm(self._survey.result()))
        self._calls = pool.submit(lambda: calls(self._survey.result()))
        self._binaries = pool.submit(lambda: binaries.read_packages(self._survey.result()) if binaries else None)
        self._site = pool.submit(lambda: read_site(self._survey.result(), self._start.result().environ))
        self._ray = pool.submit(lambda: read_ray_copies(self._survey.result(), self.environ))
        self._ptxas = pool.submit(lambda: read_triton_ptxas(self._survey.result(), self._start.result().environ))

    def finish(self, symbols: tuple[str, ...] = ()) -> Facts:
        """Everything that was read, and the FlashInfer names looked up; raises TargetError as `collect` does."""
        seen, start = self._survey.result(), self._start.result()
        compilers, (gpus, gpu_sources) = self._compilers.result(), self._gpus.result()
        if start.environ != self.environ:
            self.environ = start.environ
            compilers, (gpus, gpu_sources) = toolkit.ask_compilers(self.environ), self._read_gpus(self.environ)
        tools = toolkit.conclude(
            compilers,
            self.environ,
            torch_cuda=packages.torch_cuda(seen),
            jit_cache_cuda=packages.jit_cache_cuda(seen),
            wheels=self._wheels.result(),
        )
        package = read_flashinfer(
            seen, self.environ, gpus, tools, lambda root, version: self._read_named(root, version, symbols)
        )
        facts = Facts(
            interpreter=interpreter(seen, self.environ, start.wrapper),
            gpus=gpus,
            toolkit=tools,
            libraries=self._libraries.result(),
            packages=packages.packages(seen),
            flashinfer=package,
            system=self._system.result(),
            environment=read_environment(self.environ),
            sources=dict(sorted({**SOURCES, **gpu_sources}.items())),
            vllm=self._vllm.result(),
            calls=self._calls.result(),
            binaries=self._finish_binaries(package),
            site=self._site.result(),
            host_limits=read_host_limits(tools, self.environ),
            triton_ptxas=self._ptxas.result(),
            ray_copies=self._ray.result(),
            installed_on=read_installed_on(seen),
        )
        return with_machine(facts, seen, self.environ, self._serving, self._refused)

    def again(self, assignments: tuple[Assignment, ...], facts: Facts) -> Gathering:
        """Reading begun anew for a process in which these variables are set too, once this one is finished.

        What variables do not change, the sources of packages, is taken from `facts`.
        """
        return Gathering(
            self._python,
            changed(self.environ, assignments),
            vllm=lambda _: facts.vllm,
            calls=lambda _: facts.calls,
            named=self._read_named,
            libraries=self._find_libraries,
            serving=self._serving,
        )

    def _finish_binaries(self, package: FlashInfer | Missing) -> Binaries | Missing:
        reader = self._binaries.result()
        if reader is None:
            return Missing(reason="they were not read")
        return reader.finish(package if isinstance(package, Missing) else package.cache_dir)

    def _read_survey(self) -> packages.Survey:
        """By the user who serves or, where that one cannot start the interpreter, as this one."""
        try:
            return packages.survey(self._python, self.environ)
        except TargetError as error:
            account = acting.account_of(self.environ)
            if account is None or os.strerror(errno.EACCES) not in error.why:
                raise
            self._refused = f"user {account.uid} cannot use {self._python}: {error.why}"
            return packages.survey(self._python, {**acting.without_word(self.environ), "PYTHONNOUSERSITE": "1"})

    def _read_start(self) -> wrappers.Start:
        return wrappers.start(self._python, self._survey.result(), self.environ)

    def _read_libraries(self) -> dict[str, Library | Missing]:
        return self._find_libraries(self._start.result().environ, self._survey.result())


def interpreter(seen: packages.Survey, environ: Mapping[str, str], wrapper: str = "") -> Interpreter:
    """The examined interpreter; it is our own when it is the same program in the same environment, and started so."""
    same_program = os.path.realpath(seen.executable) == os.path.realpath(sys.executable)
    return Interpreter(
        executable=seen.executable,
        version=seen.version,
        implementation=seen.implementation,
        prefix=seen.prefix,
        pythonpath=environ.get("PYTHONPATH", Missing(reason="PYTHONPATH is not set")),
        sys_path=seen.sys_path,
        is_own=not wrapper and same_program and os.path.realpath(seen.prefix) == os.path.realpath(sys.prefix),
        wrapper=wrapper,
    )
