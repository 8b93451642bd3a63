"""CUDA at compile time: the toolkit that FlashInfer's JIT takes by its own rule, and every other one.

The rule is that of get_cuda_path and get_cuda_version in flashinfer/jit/cpp_ext.py, the same in 0.5.2 to 0.7.2.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from fi_doctor.facts import toolchain
from fi_doctor.facts.commandline import option_values, split_words, which
from fi_doctor.facts.files import matching
from fi_doctor.facts.nvcc import Answer, Command, Folders, ask, is_absent, read_folders
from fi_doctor.facts.toolkits import (
    HEADERS,
    LIBRARIES,
    MODULE_HEADERS,
    MODULE_LIBRARIES,
    find_c_before_cxx,
    read_cccl,
    read_runtime,
    read_toolkits,
)
from fi_doctor.model import JitToolkit, Missing, Nvcc, ToolkitFacts
from fi_doctor.workers import Workers

# ruff: noqa: PTH110, PTH113, PTH118, PTH120 - homes are joined and named as FlashInfer spells them; Path would rewrite them

DEFAULT_HOME = "/usr/local/cuda"
LOCAL = "/usr/local"  # where NVIDIA's installers put a cuda-13.0 beside others
# What .cpp files include (XQA, FP4 quantization, MoE); c++ compiles them.
HOST_HEADERS = ("cuda.h", "cuda_runtime.h", "cuda_fp16.h")

_NVCC_FOUND_BY = {"which nvcc": "PATH", "default": "/usr/local/cuda*"}


class Home(NamedTuple):
    """What get_cuda_path returns."""

    path: str  # "" when CUDA_PATH is set to an empty string
    found_by: str


class _Host(NamedTuple):
    """What the host compiler says."""

    compiler: toolchain.HostCompiler | Missing
    version: str | Missing


_Places = dict[str, str | Missing]


class _Search(NamedTuple):
    """What the JIT's build lines would find."""

    headers: _Places
    module_headers: _Places
    host_headers: _Places
    libraries: _Places
    module_libraries: _Places
    cccl: str | Missing
    runtime: str | Missing
    c_before_cxx: str


class Heard(NamedTuple):
    """What the compilers say, before it is known which CUDA torch and the jit-cache were built with."""

    gate: Answer | Missing
    jit: JitToolkit | Missing
    host: _Host
    others: tuple[Nvcc, ...]


def ask_compilers(environ: Mapping[str, str]) -> Heard:
    """Ask every nvcc and the host compiler, side by side."""
    home = find_home(environ)
    gate = gate_command(home) if isinstance(home, Home) else home
    compiler = compiler_command(home, environ) if isinstance(home, Home) else home
    with Workers() as pool:
        gate_job = pool.submit(_ask, gate, environ)
        jit_job = pool.submit(_read_jit, home, compiler, gate_job, environ)
        host_job = pool.submit(_read_host, environ)
        other_jobs = [pool.submit(ask, other, environ) for other in find_others(environ, gate, compiler)]
    others = [answer.nvcc for answer in (job.result() for job in other_jobs) if isinstance(answer, Answer)]
    return Heard(gate_job.result(), jit_job.result(), host_job.result(), tuple(others))


def conclude(
    heard: Heard,
    environ: Mapping[str, str],
    *,
    torch_cuda: str | Missing,
    jit_cache_cuda: str | Missing,
    wheels: tuple[Nvcc, ...] = (),
) -> ToolkitFacts:
    """The facts, with the version that FlashInfer's gates compare. wheels: every nvcc that pip brought."""
    host, others = heard.host, _with_wheels(heard, wheels)
    version, source = decide_gate(heard.gate, torch_cuda)
    return ToolkitFacts(
        jit=heard.jit,
        gate_version=version,
        gate_source=source,
        others=others,
        torch_cuda=torch_cuda,
        jit_cache_cuda=jit_cache_cuda,
        ninja=which("ninja", environ) or Missing(reason="there is no ninja on PATH, where FlashInfer looks for it"),
        host_compiler=host.compiler if isinstance(host.compiler, Missing) else host.compiler.path,
        host_compiler_version=host.version,
        nvcc_on_path=which("nvcc", environ) or Missing(reason="there is no nvcc on PATH", absent=True),
        toolkits=read_toolkits((*others, *_behind_link(heard.jit)), *environ.get("LIBRARY_PATH", "").split(":")),
    )


def find_home(environ: Mapping[str, str]) -> Home | Missing:
    """What get_cuda_path returns; Missing when it raises.

    An empty CUDA_HOME counts as unset, an empty CUDA_PATH as the answer "". The folder above the nvcc on PATH is taken
    without following symlinks, so that a link or wrapper in /usr/local/bin gives /usr/local.
    """
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    if home is not None:
        return Home(home, "CUDA_HOME" if environ.get("CUDA_HOME") else "CUDA_PATH")
    if which("which", environ) is None:
        return Missing(reason='there is no "which" on PATH: FlashInfer calls it when CUDA_HOME is not set, and fails')
    found = which("nvcc", environ)
    if found is not None:
        return Home(os.path.dirname(os.path.dirname(found)), "which nvcc")
    if os.path.exists(DEFAULT_HOME):
        return Home(DEFAULT_HOME, "default")
    return Missing(reason=f"CUDA_HOME is not set, there is no nvcc on PATH, and {DEFAULT_HOME} does not exist")


def gate_command(home: Home) -> Command:
    """The nvcc whose version FlashInfer compares; relative to the current directory when the home is ""."""
    path = os.path.join(home.path, "bin/nvcc")
    return Command((path,), path, _NVCC_FOUND_BY.get(home.found_by, home.found_by))


def compiler_command(home: Home, environ: Mapping[str, str]) -> Command | Missing:
    """What ninja calls: FLASHINFER_NVCC, a shell fragment that may use ninja's $cuda_home, else $cuda_home/bin/nvcc."""
    text = environ.get("FLASHINFER_NVCC")
    if text is None:
        path = f"{home.path}/bin/nvcc"
        return Command((path,), path, _NVCC_FOUND_BY.get(home.found_by, home.found_by))
    for variable in ("${cuda_home}", "$cuda_home"):
        text = text.replace(variable, home.path)
    words = tuple(split_words(text))
    if not words:
        return Missing(reason="FLASHINFER_NVCC is set to an empty string, which build.ninja takes as the compiler")
    return Command(words, shlex.join(words) if len(words) > 1 else words[0], "FLASHINFER_NVCC")


def find_others(environ: Mapping[str, str], *known: Command | Missing) -> tuple[Command, ...]:
    """Every further nvcc, each file once; a wrapper script is a file of its own."""
    folders = [(f"{environ[name]}/bin", name) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    folders += [(folder, "PATH") for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    folders += [(f"{root}/bin", "/usr/local/cuda*") for root in matching(LOCAL, "cuda*")]
    taken = {os.path.realpath(command.words[-1]) for command in known if isinstance(command, Command)}
    found: list[Command] = []
    for folder, found_by in folders:
        path = os.path.join(folder, "nvcc")
        real = os.path.realpath(path)
        if real not in taken and os.path.isfile(path) and os.access(path, os.X_OK):
            taken.add(real)
            found.append(Command((path,), path, found_by))
    return tuple(found)


def decide_gate(asked: Answer | Missing, torch_cuda: str | Missing) -> tuple[str | Missing, str]:
    """What get_cuda_version returns, and from where: $cuda_home/bin/nvcc, else torch.version.cuda.

    FlashInfer falls back when nvcc is missing, fails or prints no release; anything else that keeps it from starting
    (no permission, a wrong format) is an error that it does not catch.
    """
    if isinstance(asked, Answer) and isinstance(asked.nvcc.version, str):
        return asked.nvcc.version, "nvcc"
    if isinstance(asked, Answer) and asked.stuck and not is_absent(asked.stuck):
        return Missing(reason=f"get_cuda_version fails: {asked.stuck}"), "nvcc cannot be started"
    if isinstance(torch_cuda, str):
        return torch_cuda, "torch.version.cuda"
    why = asked.reason if isinstance(asked, Missing) else _reason(asked.nvcc.version)
    reason = f"neither nvcc ({why}) nor torch ({torch_cuda.reason}) names a CUDA version"
    return Missing(reason=reason), "neither nvcc nor torch names one"


def _behind_link(jit: JitToolkit | Missing) -> tuple[Nvcc, ...]:
    """The JIT's nvcc where it is a link into another toolkit than the one that is taken."""
    nvcc = jit if isinstance(jit, Missing) else jit.nvcc
    if isinstance(jit, Missing) or isinstance(nvcc, Missing):
        return ()
    return (nvcc,) if nvcc.home and nvcc.home != os.path.realpath(jit.cuda_home) else ()


def _with_wheels(heard: Heard, wheels: tuple[Nvcc, ...]) -> tuple[Nvcc, ...]:
    """The other nvccs by path, with those of wheels that the JIT does not take."""
    jit = heard.jit
    taken = () if isinstance(jit, Missing) else (jit.nvcc, jit.compiler)
    known = {nvcc.resolved for nvcc in (*heard.others, *taken) if isinstance(nvcc, Nvcc)}
    more = (nvcc for nvcc in wheels if nvcc.resolved not in known)
    return tuple(sorted((*heard.others, *more), key=lambda nvcc: nvcc.path))


def _read_jit(
    home: Home | Missing, compiler: Command | Missing, gate_job: Future[Answer | Missing], environ: Mapping[str, str]
) -> JitToolkit | Missing:
    """The toolkit of this home; the nvcc of the gate is asked by another thread."""
    if isinstance(home, Missing):
        return home
    is_same = isinstance(compiler, Command) and compiler.words == gate_command(home).words
    with Workers() as pool:
        search_job = pool.submit(_search, home, compiler, environ)
        compiler_job = gate_job if is_same else pool.submit(_ask, compiler, environ)
        asked, used = _nvcc(gate_job.result()), _nvcc(compiler_job.result())
    search = search_job.result()
    return JitToolkit(
        cuda_home=home.path,
        found_by=home.found_by,
        nvcc=asked,
        compiler=used,
        headers=search.headers,
        libraries=search.libraries,
        cccl=search.cccl,
        runtime=search.runtime,
        c_before_cxx=search.c_before_cxx,
        module_headers=search.module_headers,
        module_libraries=search.module_libraries,
        host_headers=search.host_headers,
    )


def _search(home: Home, compiler: Command | Missing, environ: Mapping[str, str]) -> _Search:
    """Where the build lines find what they name; the compilers are asked for their folders."""
    host = toolchain.find_host_compiler(environ)
    # FlashInfer leaves /usr/include out (#1793); up to 0.6 it names include/cccl too, as nvcc 13 does by itself.
    named = () if home.path == "/usr" else (f"{home.path}/include", f"{home.path}/include/cccl")
    with Workers() as pool:
        link_job = pool.submit(toolchain.read_link_folders, host, home.path, environ)
        hosted_job = pool.submit(_read_includes, "FLASHINFER_EXTRA_CFLAGS", host, Folders((), named, ()), environ)
        own = read_folders(compiler.words, environ) if isinstance(compiler, Command) else Folders((), (), ())
        includes: tuple[str, ...] | Missing = own if isinstance(own, Missing) else ()
        if isinstance(own, Folders):
            added = own._replace(system_includes=(*named, *own.system_includes))
            includes = _read_includes("FLASHINFER_EXTRA_CUDAFLAGS", host, added, environ)
    link, hosted = link_job.result(), hosted_job.result()
    link = link.beside(own.libraries) if isinstance(own, Folders) else link
    return _Search(
        headers=_find_headers(HEADERS, includes),
        module_headers=_find_headers(MODULE_HEADERS, includes),
        host_headers=_find_headers(HOST_HEADERS, hosted),
        libraries={name: toolchain.find_library(name, link) for name in LIBRARIES},
        module_libraries={name: toolchain.find_library(name, link) for name in MODULE_LIBRARIES},
        cccl=includes if isinstance(includes, Missing) else read_cccl(includes),
        runtime=includes if isinstance(includes, Missing) else read_runtime(includes),
        c_before_cxx=next(filter(None, map(find_c_before_cxx, (includes, hosted))), ""),
    )


def _read_includes(
    variable: str, host: toolchain.HostCompiler | Missing, folders: Folders, environ: Mapping[str, str]
) -> tuple[str, ...] | Missing:
    """Where #include looks, with the options that a variable adds to FlashInfer's own."""
    extra = split_words(environ.get(variable, ""))
    return toolchain.read_include_folders(
        host,
        environ,
        first=(*option_values("-I", extra), *folders.includes),
        system=(*folders.system_includes, *option_values("-isystem", extra)),
    )


def _read_host(environ: Mapping[str, str]) -> _Host:
    compiler = toolchain.find_host_compiler(environ)
    return _Host(compiler, compiler if isinstance(compiler, Missing) else toolchain.read_version(compiler, environ))


def _find_headers(names: tuple[str, ...], includes: tuple[str, ...] | Missing) -> _Places:
    if isinstance(includes, Missing):
        return dict.fromkeys(names, includes)
    return {name: toolchain.find_header(name, includes) for name in names}


def _ask(command: Command | Missing, environ: Mapping[str, str]) -> Answer | Missing:
    return command if isinstance(command, Missing) else ask(command, environ)


def _nvcc(answer: Answer | Missing) -> Nvcc | Missing:
    return answer if isinstance(answer, Missing) else answer.nvcc


def _reason(fact: str | Missing) -> str:
    return fact.reason if isinstance(fact, Missing) else ""
