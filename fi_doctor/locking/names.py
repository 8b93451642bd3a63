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
_SAID = r"LOG(?:GING|LEVEL|DEST|S?_|$)|_DUMP_|_TRACE|RETRY|DOWNLOAD|^CUDA_(?:VISIBLE|DEVICE)"
# What is said in a log changes no kernel. The GPUs that are seen are inputs themselves. FLASHINFER_JIT_VERBOSE is none
# of these: it compiles with -O0. Nor is FLASHINFER_NVCC_THREADS: in another command ninja sees another module.
WITHOUT_EFFECT = re.compile(_SAID)
# What changes an import by no more than how much is said, or how many work on it.
WITHOUT_EFFECT_ON_IMPORTS = re.compile(rf"{_SAID}|VERBOSE|_THREADS$")


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
