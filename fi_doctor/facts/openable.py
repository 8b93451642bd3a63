"""Whether this process may load a library by its plain name without being held up by what the name leads to.

dlopen waits for ever for somebody to write into a pipe, or for a file server that is gone, with the lock of the dynamic
linker and that of Python: no time limit and no signal ends that. So the files are opened here first, as files, in a
thread that can be left behind.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping

from fi_doctor.facts.elf import Unreadable, opened
from fi_doctor.facts.files import read_head, read_whole
from fi_doctor.facts.loader import default_folders

# ruff: noqa: PTH116, PTH118 - paths are joined as ld.so joins them

_CACHE = "/etc/ld.so.cache"
_LEVELS = ("", "glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2")
_HEAD_BYTES = 4096


def why_not_openable(
    name: str, environ: Mapping[str, str], looks_at: Callable[[str], None], cache: str = _CACHE
) -> str:
    """Why loading the library would not come back, "/a/libx.so.1 is not a file"; "" where it would.

    looks_at: is told each path before it is looked at, which may take for ever.
    """
    for path in _places(name, environ, cache):
        looks_at(path)
        try:
            kind = os.stat(path).st_mode
            if stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
                return f"{path} is not a file"
            read_head(path, _HEAD_BYTES)
        except OSError:  # nor does the loader wait there
            continue
        if _is_loaded(path):
            return ""
    return ""


def _places(name: str, environ: Mapping[str, str], cache: str) -> Iterator[str]:
    """Where ld.so looks for it, in its order: LD_LIBRARY_PATH, its cache, its own folders."""
    listed = re.split("[:;]", environ["LD_LIBRARY_PATH"]) if environ.get("LD_LIBRARY_PATH") else []
    for folder in listed:
        yield from (os.path.join(folder or ".", level, name) for level in _LEVELS)
    try:
        data = read_whole(cache)
    except OSError:
        data = b""
    pattern = rb"\0(/[^\0]{1,400}/" + re.escape(name.encode()) + rb")(?=\0)"
    yield from map(os.fsdecode, re.findall(pattern, data))
    yield from (os.path.join(folder, name) for folder in default_folders())


def _is_loaded(path: str) -> bool:
    """Whether ld.so would take it and look no further; it passes over those for other processors."""
    try:
        with opened(path):
            return True
    except (OSError, Unreadable):
        return False
