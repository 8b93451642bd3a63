"""Imports packages one after the other and writes down what each import asks for and what is loaded then.

    python loads.py FILE NAME ...

FILE gets JSON lines, each one write(2), so that a crash leaves every line before it: {"began": [sys.path, folders of
the standard library]}, then for each name {"stage": "torch"}, {"asked": "torch._utils"} for every module that is looked
for, found or not, {"files": {"torch._utils": "/.../torch/_utils.py"}, "mapped": [libraries], "inner": [modules without
a file], "variables": [those of the environment that were asked for]} and {"ended": why the import failed, or ""}.
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
# ruff: noqa: PTH100, PTH119, PTH120, PTH123


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
    """The modules of this process, each with its file, and the libraries that are mapped."""
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
    return {"files": files, "inner": inner, "mapped": mapped()}


def mapped() -> list[str]:
    """The libraries in the memory of this process; none where /proc does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if line.count("/")}
        return sorted(path for path in paths if ".so" in os.path.basename(path))
    return []


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
