"""Imports packages one after the other and writes down what each import asks for and what is loaded then.

    python loads.py FILE NAME ...

FILE gets JSON lines, each one write(2), so that a crash leaves every line before it: {"began": [sys.path, folders of
the standard library]}, then for each name {"stage": "torch"}, {"asked": "torch._utils"} for every module that is looked
for, found or not, {"files": {"torch._utils": "/.../torch/_utils.py"}, "inner": [modules without a file], "variables":
[those of the environment that were asked for]}, {"mapped": [libraries]} and {"ended": why the import failed, or ""}.
Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import sysconfig
from typing import Any

MESSAGE_LIMIT = 500

# Importing pathlib would be part of what is told.
# ruff: noqa: PTH100, PTH120, PTH121


class Listener:
    """The first finder of all: it hears every name that is looked for, and finds nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def find_spec(self, name: str, *_: object, **__: object) -> None:
        """Write the name down and leave it to the others."""
        write(self._fd, asked=name)


def main(path: str, names: list[str]) -> None:
    """Import them; one that fails is a stage like any other."""
    drop_own_folder()
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    paths = sysconfig.get_paths()
    write(fd, began=[[entry for entry in sys.path if entry], [paths["stdlib"], paths["platstdlib"]]])
    before = loaded()
    variables = heard()
    listener: Any = Listener(fd)
    sys.meta_path.insert(0, listener)
    for number, name in enumerate(names):
        write(fd, stage=name)
        if number == 0:
            write(fd, **before)  # what Python itself, .pth files and sitecustomize have loaded
        why = failure(name)
        write(fd, **loaded(), variables=sorted(variables))
        with contextlib.suppress(Exception):  # where the system has no such call
            write(fd, mapped=mapped())
        write(fd, ended=why)


def heard() -> set[str]:
    """The variables that are asked for from now on, of which os.environ hears."""
    kind = type(os.environ)
    original = kind.__getitem__
    names: set[str] = set()

    def listening(environ: Any, name: str) -> str:
        if isinstance(name, str):
            names.add(name)
        return original(environ, name)

    kind.__getitem__ = listening  # type: ignore[method-assign] # get, "in" and os.getenv end there
    return names


def failure(name: str) -> str:
    """Why an import fails; "" where it does not."""
    try:
        importlib.import_module(name)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:MESSAGE_LIMIT]
    return ""


def loaded() -> dict[str, object]:
    """The modules of this process, each with its file."""
    files: dict[str, str] = {}
    inner: list[str] = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "origin", None) in ("built-in", "frozen"):
            inner.append(name)
            continue
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name not in ("__main__", "__mp_main__"):
            files[name] = file
    return {"files": files, "inner": inner}


def mapped() -> list[str]:
    """The libraries of this process by the names under which the loader opened them, which may be links.

    Source: dl_iterate_phdr(3).
    """
    import ctypes

    class Head(ctypes.Structure):
        _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))

    names: list[bytes] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Head), ctypes.c_size_t, ctypes.c_void_p)

    def one(head: Any, *_: object) -> int:
        names.append(head.contents.name or b"")
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(kind(one), None)
    return sorted({plain(os.fsdecode(name)) for name in names if name.startswith(b"/")})


def plain(path: str) -> str:
    """The same without "..", which a link on the way may have given another meaning."""
    short = os.path.normpath(path)
    with contextlib.suppress(OSError):
        return short if os.path.samefile(short, path) else os.path.realpath(path)
    return short


def drop_own_folder() -> None:
    """Take this script's folder off sys.path, where Python before 3.11 puts it; PYTHONPATH is kept."""
    own = os.path.dirname(os.path.abspath(__file__))
    if not getattr(sys.flags, "safe_path", False) and sys.path and os.path.abspath(sys.path[0]) == own:
        del sys.path[0]


def write(fd: int, **line: object) -> None:
    """Add one line."""
    os.write(fd, (json.dumps(line) + "\n").encode("ascii"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
