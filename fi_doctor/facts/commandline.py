"""Command lines and options as the shell and compilers read them."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence


def which(name: str, environ: Mapping[str, str]) -> str | None:
    """The program that the shell would start; relative entries of PATH stay relative, symlinks unresolved."""
    return shutil.which(name, path=environ.get("PATH", os.defpath))


def split_words(text: str) -> list[str]:
    """Options split as a shell does; at spaces where their quotes do not match."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def option_values(option: str, words: Sequence[str]) -> tuple[str, ...]:
    """The values of a compiler's option, written with or without a space."""
    pairs = zip(words, [*words[1:], ""], strict=False)
    found = (word[len(option) :] or after for word, after in pairs if word.startswith(option))
    return tuple(value for value in found if value)
