"""Writes C functions for the symbols that some objects ask for and none of them defines.

    python stubs.py OUT.c OBJECT ...

Each says the name of what is missing and aborts. Only names of the namespaces that FlashInfer's modules are made of,
its own, flat (linear attention) and TensorRT-LLM's, and of CUB's part of top_k, which lies in none: what libraries
define is left to the linker. Needs nm; c++filt, where it is there, makes the names readable. Standard library, Python
>= 3.9.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MARK = "fi-doctor: not compiled in this part of the module: "  # what a stub prints before its name

_OURS = re.compile(r"_Z\w*(?:12tensorrt_llm|10flashinfer|N4flat)\w*|_Z\d+cub_topk\w*")
_DATA = re.compile(r"_ZT[VIST]")


def main(argv: list[str]) -> int:
    """Write the file; 0 when it is there."""
    out, *objects = argv
    Path(out).write_text(source(missing(objects)), encoding="utf-8")
    return 0


def missing(objects: list[str]) -> list[str]:
    """Names of the namespaces that are asked for and not defined."""
    said = subprocess.run(["nm", "-P", *objects], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S607
    asked: set[str] = set()
    defined: set[str] = set()
    for line in said.stdout.splitlines():
        words = line.split()
        if len(words) >= 2 and _OURS.fullmatch(words[0]):
            (asked if words[1] in "Uwv" else defined).add(words[0])
    return sorted(asked - defined)


def readable(names: list[str]) -> list[str]:
    """As they stand in C++, where c++filt is there."""
    try:
        said = subprocess.run(
            ["c++filt"],  # noqa: S607
            check=True,
            input="\n".join(names),
            stdout=subprocess.PIPE,
            text=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return names
    return said if len(said) == len(names) else names


def source(names: list[str]) -> str:
    """The C file."""
    lines = [
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "__attribute__((noreturn, unused)) static void absent(const char* name) {",
        f'  fprintf(stderr, "{MARK}%s\\n", name);',
        "  abort();",
        "}",
    ]
    for number, (name, words) in enumerate(zip(names, readable(names))):
        if _DATA.match(name):
            lines.append(f'char d{number}[4096] __asm__("{name}");')
            continue
        quoted = words.replace("\\", "\\\\").replace('"', '\\"')
        lines += [f'void f{number}(void) __asm__("{name}");', f'void f{number}(void) {{ absent("{quoted}"); }}']
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
