"""Whether this is a container, by the signs that container engines leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts.environment import neutralise
from fi_doctor.facts.files import is_file
from fi_doctor.model import Missing

_FILES = {".dockerenv": "docker", "run/.containerenv": "podman"}
_WORDS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "containerd": "containerd", "lxc": "lxc"}


def read_container(environ: Mapping[str, str], root: Path = Path("/")) -> str | Missing:
    """The kind of container, the more telling sign first; Missing when there is none."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    for file, kind in _FILES.items():
        if is_file(root / file):
            return kind
    # systemd-nspawn, podman, lxc and others name themselves in this variable.
    return neutralise(environ.get("container", "")) or _read_cgroup(root / "proc/1/cgroup")


def container_of_cgroup(text: str) -> str | Missing:
    """The container engine whose name stands in the cgroup paths of process 1."""
    for word, kind in _WORDS.items():
        if word in text:
            return kind
    return Missing(reason="no sign of a container")


def _read_cgroup(path: Path) -> str | Missing:
    try:
        return container_of_cgroup(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return Missing(reason=f"no sign of a container ({path} cannot be read: {error.strerror})")
