"""Models in Hugging Face's cache on this machine; the network is not asked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts.files import is_folder, matching, read_whole
from fi_doctor.model.deployments import repository_of

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{4,64}")


def is_repository(word: str) -> bool:
    """Whether a word can name a repository, "openai/gpt-oss-20b", or is the address of one."""
    return bool(_REPOSITORY.fullmatch(repository_of(word))) and ".." not in word


def cached_config(repository: str, environ: Mapping[str, str]) -> Path | None:
    """The config.json of the revision that `main` names, else of the latest that is there; None where there is none.

    Folders as huggingface_hub has them: HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub.
    """
    folder = _cache(environ) / f"models--{repository_of(repository).replace('/', '--')}"
    named = []
    try:
        revision = read_whole(folder / "refs" / "main", 1024).decode("ascii", "replace").strip()
        if _REVISION.fullmatch(revision):
            named = [folder / "snapshots" / revision / "config.json"]
    except OSError:
        pass
    others = matching(folder / "snapshots", "*/config.json") if is_folder(folder) else []
    there = [path for path in named if path.is_file()] or sorted(others, key=lambda path: path.stat().st_mtime_ns)
    return there[-1] if there else None


def _cache(environ: Mapping[str, str]) -> Path:
    for name, below in (("HF_HUB_CACHE", ""), ("HUGGINGFACE_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if environ.get(name):
            return expanded(environ[name]) / below
    home = Path(environ.get("HOME") or "/")
    return expanded(environ.get("XDG_CACHE_HOME") or f"{home}/.cache") / "huggingface" / "hub"


def expanded(path: str) -> Path:
    """With the home folder for ~; as it is where there is no such user."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises then
