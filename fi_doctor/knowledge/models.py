"""Models that people serve, by their names: what their published configurations say."""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import Any

from fi_doctor.errors import BrokenDoctorError
from fi_doctor.knowledge.decode import decode_list, read_yaml
from fi_doctor.model import Strict
from fi_doctor.model.deployments import repository_of

_FILE = Path(__file__).parent / "data" / "models.yaml"


class _Preset(Strict, frozen=True):
    name: str
    config: dict[str, Any]
    of: tuple[str, ...] = ()  # repositories of Hugging Face
    like: str = ""  # one further up


def presets() -> tuple[str, ...]:
    """The names."""
    return tuple(_load()[0])


def config_of(name: str) -> dict[str, Any] | None:
    """The configuration under a name, or of a repository or its address; None where it is not known.

    Neither the letters' case counts nor whether words are joined by "-" or "_".
    """
    configs, repositories = _load()
    word = _joined(repository_of(name))
    return configs.get(repositories.get(word, word))


def nearest(name: str) -> tuple[str, ...]:
    """At most three of the names that are like this one, the nearest first; nothing where none is."""
    word = _joined(repository_of(name)).rpartition("/")[2]
    names = presets()
    parts = [one for one in names if len(word) > 2 and (word in one or one in word)]
    return tuple(dict.fromkeys((*difflib.get_close_matches(word, names, n=3, cutoff=0.7), *parts)))[:3]


def _joined(name: str) -> str:
    return name.lower().replace("_", "-")


@cache
def _load() -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    errors: list[str] = []
    found = decode_list(_Preset, read_yaml(_FILE, _FILE.parent, errors), _FILE.name, errors)
    configs: dict[str, dict[str, Any]] = {}
    for one in found:
        if one.like and one.like not in configs:
            errors.append(f"{_FILE.name}: {one.name}: like: no {one.like!r} further up")
        configs[one.name] = {**configs.get(one.like, {}), **one.config}
    if errors:
        raise BrokenDoctorError(f"{_FILE} cannot be used", why="\n       ".join(errors), todo="install fi-doctor anew")
    return configs, {_joined(repository): one.name for one in found for repository in one.of}
