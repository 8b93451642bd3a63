"""The host compiler that nvcc calls for FlashInfer, and the limits that nvcc's own header sets for it.

FlashInfer gives nvcc `-ccbin $CC` where CC is set, then FLASHINFER_EXTRA_CUDAFLAGS (jit/cpp_ext.py:138 and :193 in
0.5.3, :207 and :245 in 0.7.2.post1). Else nvcc takes NVCC_CCBIN, else gcc on PATH (`nvcc --dryrun` of 13.0).
The limits are those of include/crt/host_config.h: "#if __GNUC__ > 15" in 13.0.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts import toolchain
from fi_doctor.facts.commandline import split_words, which
from fi_doctor.facts.files import read_text
from fi_doctor.model import HostLimits, Missing, ToolkitFacts

# ruff: noqa: PTH112, PTH118 - as compilers join them

_GCC = re.compile(r"^\s*#\s*if\s+__GNUC__\s*>\s*(\d{1,9})\s*$", re.MULTILINE)
_CLANG = re.compile(r"^\s*#\s*if\s+\(__clang_major__\s*(>=?)\s*(\d{1,9})\)", re.MULTILINE)
_ALLOW = ("-allow-unsupported-compiler", "--allow-unsupported-compiler")
_CCBIN = ("-ccbin", "--compiler-bindir")
# In the order of nvcc's command line; of several -ccbin the last holds.
_OPTIONS = ("NVCC_PREPEND_FLAGS", "CC", "FLASHINFER_EXTRA_CUDAFLAGS", "NVCC_APPEND_FLAGS")


def read_host_limits(toolkit: ToolkitFacts, environ: Mapping[str, str]) -> HostLimits | Missing:
    """Missing where no toolkit or no header is known."""
    jit = toolkit.jit
    if isinstance(jit, Missing):
        return jit
    runtime = jit.headers.get("cuda_runtime.h")
    # Without a host compiler nvcc cannot tell where it looks.
    include = Path(runtime).parent if isinstance(runtime, str) else Path(jit.cuda_home, "include")
    header = include / "crt" / "host_config.h"
    text = read_text(header)
    if isinstance(text, Missing):
        return text
    gcc, clang = parse_limits(text)
    named, named_by, checked = find_compiler(environ)
    path = which(named, environ) or Missing(reason=f"{named}, which nvcc calls ({named_by}), is not on PATH")
    family, major = _identify(path, toolkit, environ)
    return HostLimits(
        source=str(header),
        newest_gcc=gcc,
        newest_clang=clang,
        compiler=path,
        named_by=named_by,
        family=family,
        major=major,
        checked=checked,
    )


def parse_limits(text: str) -> tuple[int | Missing, int | Missing]:
    """The newest majors of gcc and clang that the header lets through."""
    gcc, clang = _GCC.findall(text), _CLANG.findall(text)
    newest = [int(major) - (sign == ">=") for sign, major in clang]
    return (
        min(map(int, gcc)) if gcc else Missing(reason="the header names no newest gcc"),
        min(newest) if newest else Missing(reason="the header names no newest clang"),
    )


def find_compiler(environ: Mapping[str, str]) -> tuple[str, str, bool]:
    """What nvcc calls, what names it, and whether nvcc checks its version."""
    named, named_by = environ.get("NVCC_CCBIN") or "gcc", "NVCC_CCBIN" if environ.get("NVCC_CCBIN") else "PATH"
    checked = True
    for variable in _OPTIONS:
        words = split_words(environ.get(variable, ""))
        if variable == "CC" and "CC" in environ:
            words = ["-ccbin", environ["CC"]]
        checked = checked and not any(word in _ALLOW for word in words)
        for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
            option, _, value = word.partition("=")
            if option in _CCBIN and (value or after):
                named, named_by = value or after, variable
    return os.path.join(named, "gcc") if os.path.isdir(named) else named, named_by, checked


def parse_version(line: str) -> tuple[str, int] | Missing:
    """Family and major from the first line of --version, "g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"."""
    if found := re.search(r"\bclang version (\d{1,9})\.", line):
        return "clang", int(found[1])
    if found := re.match(r"[^\s(]*(?:gcc|g\+\+|c\+\+|cc)\S* \(.*\) (\d{1,9})\.\d+", line):
        return "gcc", int(found[1])
    return Missing(reason=f"it says neither gcc nor clang: {line[:100]}")


def _identify(
    path: str | Missing, toolkit: ToolkitFacts, environ: Mapping[str, str]
) -> tuple[str | Missing, int | Missing]:
    if isinstance(path, Missing):
        return path, path
    linker, said = toolkit.host_compiler, toolkit.host_compiler_version
    if isinstance(linker, Missing) or os.path.realpath(linker) != os.path.realpath(path):
        said = toolchain.read_version(toolchain.HostCompiler((path,), path), environ)
    found = said if isinstance(said, Missing) else parse_version(said)
    return (found, found) if isinstance(found, Missing) else found
