"""The names of inputs: how they are written and collected. Pure.

`package:torch` is a version, `package:torch:lib/libtorch.so` a file below the package's folder, with a "/" at its end a
whole folder, `package:flashinfer-python:**.py` all its Python files but those among the sources for compilers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

FLASHINFER = "flashinfer-python"
VLLM = "vllm"
ALL_PYTHON = "**.py"
# What is said in a log, and how many jobs work on it, changes no kernel. The GPUs that are seen are inputs themselves.
WITHOUT_EFFECT = re.compile(
    r"VERBOSE|LOG(?:GING|LEVEL|DEST|S?_|$)|_DUMP_|_THREADS$|_TRACE|RETRY|DOWNLOAD|^CUDA_(?:VISIBLE|DEVICE)"
)


class Names:
    """A set of names that is being collected."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def add(self, *names: str) -> None:
        """Names as they are."""
        self._found.update(names)

    def packages(self, names: Iterable[str]) -> None:
        """The versions of these distributions."""
        self._found.update(f"package:{name}" for name in names)

    def files(self, package: str, paths: Iterable[str]) -> None:
        """Files of a package."""
        self._found.update(f"package:{package}:{path}" for path in paths)

    def variables(self, names: Iterable[str]) -> None:
        """Environment variables."""
        self._found.update(f"variable:{name}" for name in names)

    def sorted(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(sorted(self._found))
