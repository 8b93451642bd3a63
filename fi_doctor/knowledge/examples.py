"""Recorded real machines that ship with fi-doctor, so that anybody sees a true matrix on a laptop."""

from __future__ import annotations

import pathlib

_FOLDER = pathlib.Path(__file__).with_name("examples")


def names() -> tuple[str, ...]:
    """The names that `--example` takes, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.json")))


def data(name: str) -> bytes:
    """The recorded report of one of `names`, as it was written on that machine."""
    return (_FOLDER / f"{name}.json").read_bytes()
