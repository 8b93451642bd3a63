"""Loading libraries that are named instead of what FlashInfer would build and load.

Runs in the examined interpreter, for harness.py. Standard library, Python >= 3.9.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any


def use(libraries: dict[str, str], alone: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Have the modules that are named (name -> file) loaded by FlashInfer as they are, without its lock and its ninja.

    Others are built as always, but with alone() held.
    """
    core = importlib.import_module("flashinfer.jit.core")
    for kind in kinds_of(core.JitSpec):
        if "build_and_load" in kind.__dict__:
            kind.build_and_load = using(kind.build_and_load, libraries, alone)


def using(
    original: Callable[..., Any],
    libraries: dict[str, str],
    alone: Callable[[], contextlib.AbstractContextManager[None]],
) -> Callable[..., Any]:
    """What takes the place of JitSpec.build_and_load."""

    @functools.wraps(original)
    def build_and_load(spec: Any, *args: Any, **kwargs: Any) -> Any:
        if spec.name in libraries:
            path = libraries[spec.name]
            if inspect.signature(spec.load).parameters:
                return spec.load(Path(path))
            return importlib.import_module("tvm_ffi").load_module(path)
        with alone():
            return original(spec, *args, **kwargs)

    return build_and_load


def kinds_of(kind: type[Any]) -> list[type[Any]]:
    """A class and all below it."""
    return [kind, *(below for sub in kind.__subclasses__() for below in kinds_of(sub))]
