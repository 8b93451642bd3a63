"""What of a part of a module did not compile, kept beside the part with all that the command read.

While nothing of that has changed it is not compiled again: a compiler that refuses a source refuses it the next time,
too. Only what a compiler says of a line of a file that it read counts; a full disk, a compiler that was killed and the
like are forgotten at once. Runs in the examined interpreter, for prebuild.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from fi_doctor.inside.modules import Module

NOTE = "not compiled again: what the compiler read has not changed since"  # the last line of what was said, and a time
KEEP_DEPFILES = ("-d", "keepdepfile")  # for ninja: they tell what a failed command read

# A diagnostic with a place: nvcc's "file(12): error: ", that of GCC and Clang "file:12:3: fatal error: ".
_PLACE = re.compile(r"^(\S.*?)(?:\((\d+)\)|:\d+(?::\d+)?): (?:fatal |catastrophic )?error\b", re.MULTILINE)
# What a machine and no source is to blame for, though it may come with a place.
_PASSING = re.compile(
    r"no space left|disk quota|memory|killed|signal|internal (?:compiler )?error|input/output|too many open|permission",
    re.IGNORECASE,
)
# A header that is not there would be found where nobody looks for changes.
_ABSENT = re.compile(r"no such file|cannot open|not found", re.IGNORECASE)
_PATH = re.compile(r"\S*/\S*")  # a folder's name is no reason
_VARIABLES = re.compile(
    r"(?:NVCC_|GCC_|CCACHE_|LD_|LC_).*|LANG|PATH|(?:C|CPLUS_INCLUDE_|C_INCLUDE_)PATH|COMPILER_PATH|CC|CXX"
)
_COMPILERS = ("cc", "c++", "gcc", "g++")
_TOOLS = ("nvcc", "cudafe++", "ptxas", "fatbinary", "nvcc.profile", "../nvvm/bin/cicc")  # beside nvcc
_DEPENDENCY = re.compile(r"(?:\\.|[^\s\\])+")


def keep(part: Module, output: str, said: str) -> None:
    """Remember that a command of this part failed. output: the name of the file that it was to make."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValueError):
        place = _PLACE.search(said)
        reasons = _PATH.sub("", said)
        if place is None or _PASSING.search(reasons) or _ABSENT.search(reasons):
            return
        found = [*Path(part.workdir).rglob(f"{output}.d")]
        if len(found) != 1:
            return
        read = _dependencies(found[0].read_text(encoding="utf-8"))
        if os.path.realpath(place[1]) not in set(map(os.path.realpath, read)):
            return
        state = _state(part, output, read)
        text = json.dumps({"output": output, "read": read, "state": state, "said": said, "time": time.time()})
        draft = _file(part).with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(_file(part))


def settle(parts: Iterable[Module]) -> None:
    """Those that were refused before and would be again: nothing of them is compiled."""
    for part in parts:
        if said := recall(part):
            part.settle("failed", said)


def recall(part: Module) -> str:
    """What the compiler said, with NOTE and when it was; "" where there is nothing or anything has changed."""
    with contextlib.suppress(Exception):  # whatever is in the file: then it is compiled again
        kept = json.loads(_file(part).read_text(encoding="utf-8"))
        if kept["state"] == _state(part, kept["output"], kept["read"]):
            when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(kept["time"]))
            return f"{kept['said'].rstrip()}\n{NOTE} {when}"
    return ""


def _file(part: Module) -> Path:
    return Path(part.library()).with_name("failed.json")


def _state(part: Module, output: str, read: Iterable[str]) -> list[object]:
    """What the outcome of the command rests on. Raises OSError where a file is gone."""
    lines = Path(part.ninja_file).read_text(encoding="utf-8").splitlines()
    compiler = next((line.partition("=")[2].strip() for line in lines if line.startswith("nvcc =")), "")
    beside = [Path(os.path.realpath(compiler)).parent / tool for tool in _TOOLS] if compiler else []
    host = [shutil.which(name) for name in (*_COMPILERS, os.environ.get("CC"), os.environ.get("CXX")) if name]
    tools = {Path(path).resolve() for path in (*beside, *host) if path}
    files = [*map(str, sorted(path for path in tools if path.exists())), *read]
    variables = {name: value for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)}
    return [_command(lines, output), variables, *map(_stamp, files)]


def _command(lines: list[str], output: str) -> list[str]:
    """What the ninja file says of this object, and for all of them."""
    first = next((number for number, line in enumerate(lines) if line.startswith("build ")), len(lines))
    own: list[str] = []
    for line in lines[first:]:
        if line.startswith("build "):
            is_own = Path(line[len("build ") :].partition(":")[0]).name == output
        if is_own:
            own.append(line)
    return [*lines[:first], *own]


def _stamp(path: str) -> list[object]:
    """That it is this file, as it was: a path that leads to another one has another number."""
    found = Path(path).stat()
    return [path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _dependencies(text: str) -> list[str]:
    """The files that a depfile in make's manner names, once each and in order."""
    words = _DEPENDENCY.findall(text.replace("\\\n", " ").partition(": ")[2])
    return sorted({re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words})
