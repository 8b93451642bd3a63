"""The host C++ compiler and its linker: where a header or a library of FlashInfer's build lines is found.

The build lines are those of jit/cpp_ext.py: nvcc compiles the .cu files, `c++` the .cpp files and links with
-L$cuda_home/lib64 -L$cuda_home/lib64/stubs; the linker is not told where nvcc itself lies.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fi_doctor.facts import asking
from fi_doctor.facts.commandline import option_values, split_words, which
from fi_doctor.facts.files import matching
from fi_doctor.model import Missing

# ruff: noqa: PTH112, PTH113, PTH118, PTH119 - folders are joined and named as compilers spell them; Path would rewrite them

_LAUNCHERS = frozenset({"ccache", "sccache", "distcc", "icecc"})
_STANDARD_INCLUDES = ("/usr/local/include", "/usr/include")
_LIST_START = "#include <...> search starts here:"
_LIST_END = "End of search list."


class HostCompiler(NamedTuple):
    """The C++ compiler that the JIT calls."""

    words: tuple[str, ...]  # a launcher such as ccache may come first
    path: str


class LinkFolders(NamedTuple):
    """Where `c++ … -lX` looks."""

    named: tuple[str, ...]  # by -L on FlashInfer's line, in order, whether they exist or not
    own: tuple[str, ...]  # LIBRARY_PATH, then the compiler's and the linker's own, those that exist, symlinks resolved
    unknown: str  # why the compiler's own are not known, as a sentence; "" where they are
    nearby: tuple[str, ...]  # not searched: where an expert would look next (nvcc's own folder, LD_LIBRARY_PATH)

    def beside(self, folders: Sequence[str]) -> LinkFolders:
        """The same, with further folders nearby."""
        return self._replace(nearby=_real([*folders, *self.nearby]))


def parse_search_list(text: str) -> tuple[str, ...]:
    """The folders of `c++ -v -E -x c++ …`, in the order in which they are searched; empty when it printed none."""
    _, found, rest = text.partition(_LIST_START)
    listed, end, _ = rest.partition(_LIST_END)
    return tuple(line.strip() for line in listed.splitlines() if line.strip()) if found and end else ()


def parse_search_dirs(text: str, kind: str) -> tuple[str, ...]:
    """One line of `c++ -print-search-dirs` as folders; kind: "programs" or "libraries"."""
    match = re.search(rf"^{kind}: =?(.*)$", text, re.MULTILINE)
    return tuple(folder for folder in match.group(1).split(":") if folder) if match else ()


def parse_linker_dirs(text: str, sysroot: str = "") -> tuple[str, ...]:
    """The SEARCH_DIRs of `ld --verbose`; those that start with = lie under the sysroot."""
    found = re.findall(r'SEARCH_DIR\("([^"]*)"\)', text)
    return tuple(sysroot + folder[1:] if folder.startswith("=") else folder for folder in found)


def parse_cccl(text: str) -> str | Missing:
    """The version of CCCL, "3.0.1", from cuda/std/__cccl/version.h, or from thrust/version.h of older toolkits."""
    if match := re.search(r"^\s*#\s*define\s+CCCL_VERSION\s+(\d{1,12})\b", text, re.MULTILINE):
        number = int(match.group(1))  # 3000001 is 3.0.1
        return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"
    if match := re.search(r"^\s*#\s*define\s+THRUST_VERSION\s+(\d{1,12})\b", text, re.MULTILINE):
        number = int(match.group(1))  # 200302 is 2.3.2
        return f"{number // 100_000}.{number // 100 % 1000}.{number % 100}"
    return Missing(reason="the header has neither CCCL_VERSION nor THRUST_VERSION")


def find_host_compiler(environ: Mapping[str, str]) -> HostCompiler | Missing:
    """CXX, else c++, as the shell that ninja starts would find it."""
    asked = environ.get("CXX", "c++")
    words = split_words(asked)
    if not words:
        return Missing(reason="CXX is set to an empty string, which FlashInfer writes into build.ninja as it is")
    program = words[1] if len(words) > 1 and os.path.basename(words[0]) in _LAUNCHERS else words[0]
    path = which(program, environ)
    if path is None:
        named = f"{program}, which CXX names," if "CXX" in environ else program
        return Missing(reason=f"{named} is not on PATH")
    return HostCompiler(tuple(words), path)


def read_version(compiler: HostCompiler, environ: Mapping[str, str]) -> str | Missing:
    """The first line of `c++ --version`."""
    said = asking.ask(compiler.words, "--version", environ=environ)
    if silence := asking.silence(compiler.words, said):
        return Missing(reason=silence)
    lines = said.stdout.decode(errors="replace").splitlines()
    if said.returncode == 0 and lines:
        return lines[0].strip()
    return Missing(reason=f"{shlex.join(said.argv)} says nothing (exit code {said.returncode}) {said.error}".rstrip())


def read_include_folders(
    compiler: HostCompiler | Missing,
    environ: Mapping[str, str],
    *,
    first: Sequence[str] = (),
    system: Sequence[str] = (),
) -> tuple[str, ...] | Missing:
    """Where #include looks, given -I (`first`) and -isystem (`system`), with CPATH and CPLUS_INCLUDE_PATH.

    The preprocessor is asked for its list; Missing when it does not answer. Without a compiler, or with one that prints
    no such list, the same order is put together by its documentation.
    """
    if isinstance(compiler, HostCompiler):
        options = [f"-I{folder}" for folder in first]
        options += [word for folder in system for word in ("-isystem", folder)]
        question = ("-v", "-E", "-x", "c++", *options, os.devnull)
        said = asking.ask(compiler.words, *question, environ={**environ, "LC_ALL": "C"})
        if silence := asking.silence(compiler.words, said, "-v -E"):
            return Missing(reason=silence)
        if listed := parse_search_list(said.stderr.decode(errors="replace")):
            return listed
    ordered = (*first, *_paths(environ, "CPATH"), *system, *_paths(environ, "CPLUS_INCLUDE_PATH"), *_STANDARD_INCLUDES)
    return tuple(folder for folder in ordered if os.path.isdir(folder))


def read_link_folders(compiler: HostCompiler | Missing, cuda_home: str, environ: Mapping[str, str]) -> LinkFolders:
    """Where the link line of FlashInfer looks for libraries, FLASHINFER_EXTRA_LDFLAGS counted."""
    extra = split_words(environ.get("FLASHINFER_EXTRA_LDFLAGS", ""))
    named = (f"{cuda_home}/lib64", f"{cuda_home}/lib64/stubs", *option_values("-L", extra))
    linker = _read_linker_folders(compiler, environ)
    own = [*_paths(environ, "LIBRARY_PATH"), *(() if isinstance(linker, Missing) else linker)]
    unknown = linker.reason if isinstance(linker, Missing) else ""
    return LinkFolders(named, _real(own), unknown, _real(_paths(environ, "LD_LIBRARY_PATH")))


def find_header(name: str, folders: Sequence[str]) -> str | Missing:
    """Where #include <name> is found."""
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return os.path.normpath(os.path.join(os.path.realpath(folder), name))
    # The compiler's own folders only lengthen the sentence.
    shown = [folder for folder in _real(folders) if "/c++/" not in folder and "/gcc/" not in folder]
    if not shown:
        return Missing(reason=f"no {name} in any folder, because the compiler names none")
    return Missing(reason=f"no {name} in {', '.join(shown)}", absent=True)


def find_library(name: str, folders: LinkFolders) -> str | Missing:
    """Where -lNAME is found; the linker takes libNAME.so, else libNAME.a, and never libNAME.so.1."""
    for folder in (*folders.named, *folders.own):
        for file in (f"lib{name}.so", f"lib{name}.a"):
            path = os.path.join(folder, file)
            if os.path.isfile(path):
                return path
    if folders.unknown:
        return Missing(reason=folders.unknown)
    named = [folder if os.path.isdir(folder) else f"{folder} (does not exist)" for folder in folders.named]
    searched = ", ".join([*named, *folders.own])
    return Missing(reason=f"lib{name}.so is in none of: {searched}" + _elsewhere(name, folders), absent=True)


def _elsewhere(name: str, folders: LinkFolders) -> str:
    """What there is instead, as the end of a sentence."""
    hints = [
        f"lib{name}.so is in {folder}, which the link line does not name"
        for folder in folders.nearby
        if os.path.isfile(f"{folder}/lib{name}.so")
    ]
    for folder in _real([*folders.named, *folders.own, *folders.nearby]):
        versioned = [path.name for path in matching(folder, f"lib{name}.so.*")]
        if versioned and not os.path.isfile(f"{folder}/lib{name}.so"):
            hints.append(f"{versioned[0]} without the unversioned link is in {folder}")
    return "".join(f"; {hint}" for hint in hints)


def _read_linker_folders(compiler: HostCompiler | Missing, environ: Mapping[str, str]) -> tuple[str, ...] | Missing:
    """The compiler's own library folders, then those of its ld; Missing when one of them does not answer."""
    if isinstance(compiler, Missing):
        return ()
    said = asking.ask(compiler.words, "-print-search-dirs", environ={**environ, "LC_ALL": "C"})
    if silence := asking.silence(compiler.words, said):
        return Missing(reason=silence)
    text = said.stdout.decode(errors="replace")
    candidates = (os.path.join(folder, "ld") for folder in parse_search_dirs(text, "programs"))
    linker = next((path for path in candidates if os.access(path, os.X_OK)), which("ld", environ))
    dirs = parse_search_dirs(text, "libraries")
    if linker is None:
        return dirs
    told = asking.ask([linker], "--verbose", environ=environ)
    if silence := asking.silence([linker], told):
        return Missing(reason=silence)
    script = told.stdout.decode(errors="replace")
    sysroot = ""
    if 'SEARCH_DIR("=' in script:
        root = asking.ask(compiler.words, "-print-sysroot", environ=environ)
        sysroot = root.stdout.decode(errors="replace").strip()
    return (*dirs, *parse_linker_dirs(script, sysroot))


def _paths(environ: Mapping[str, str], name: str) -> list[str]:
    return [folder for folder in environ.get(name, "").split(":") if folder]


def _real(folders: Sequence[str]) -> tuple[str, ...]:
    """The folders that exist, each once, symlinks resolved."""
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders if os.path.isdir(folder)))
