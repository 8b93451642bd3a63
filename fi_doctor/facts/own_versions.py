"""Which version and commit a package's own files name, whatever its metadata say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from packaging.version import Version

from fi_doctor.facts.files import NOT_PYTHON, read_whole, why_not_python
from fi_doctor.model import Missing

UNKNOWN_VERSION = "0.0.0+unknown"  # what FlashInfer calls itself without _build_meta.py
_VERSION_FILES = ("_build_meta.py", "_version.py", "version.py")
_COMMIT_NAMES = ("__git_commit__", "__git_version__", "git_version", "__commit_id__", "commit_id")


def constants(path: Path) -> dict[str, object] | Missing:
    """The constants that a small file of ours to read assigns at its top level, by name; nothing is executed."""
    try:
        tree = ast.parse(read_whole(path))
    except OSError as error:
        return Missing(reason=f"{path}: {error.strerror or error}")
    except NOT_PYTHON as error:
        return Missing(reason=f"{path} is not Python: {why_not_python(error)}")
    found: dict[str, object] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                found[target.id] = value.value
    return found


def read_build_meta(root: Path) -> tuple[str | Missing, str | Missing]:
    """Version and commit. The commit's name changed from __git_version__ to __git_commit__ in 0.7."""
    path = root / "_build_meta.py"
    values = constants(path)
    if isinstance(values, Missing):
        reason = Missing(reason=f"FlashInfer calls itself {UNKNOWN_VERSION}: {values.reason}")
        return reason, reason
    version = values.get("__version__")
    commit = values.get("__git_commit__") or values.get("__git_version__")
    known = isinstance(commit, str) and commit != "unknown"
    return (
        version if isinstance(version, str) else Missing(reason=f"{path} has no __version__"),
        str(commit) if known else Missing(reason=f"{path} names no commit"),
    )


def differs(own: str | Missing, claimed: str | Missing) -> bool:
    """Whether files name another release than metadata do: a build tag (+cu130) does not matter.

    What is no version, and what stands for an unknown one (0.0.0, "dev"), is not believed.
    """
    named = _version(own)
    return (
        named is not None
        and named.release != (0, 0, 0)
        and ((other := _version(claimed)) is None or other.public != named.public)
    )


def _version(words: str | Missing) -> Version | None:
    try:
        return Version(words) if isinstance(words, str) else None
    except ValueError:  # also by Python, which converts no number of more than 4300 digits
        return None


def words_of_files(origin: str) -> list[dict[str, object]]:
    """What the files beside a package's __init__.py that name versions say; nothing without one."""
    found = (constants(Path(origin).parent / name) for name in _VERSION_FILES) if origin else ()
    return [values for values in found if not isinstance(values, Missing)]


def version_in(words: list[dict[str, object]], origin: str) -> str | Missing:
    """The version that these files name."""
    for values in words:
        for version in (values.get("__version__"), values.get("version")):
            if isinstance(version, str):
                return version
    return Missing(reason=f"no distribution owns {Path(origin).parent}, and its files name no version")


def commit_in(words: list[dict[str, object]], version: str | Missing) -> str | Missing:
    """The commit that these files name, or the end of a development version such as 0.11.1.dev3+g1a2b3c4."""
    for values in words:
        for name in _COMMIT_NAMES:
            commit = values.get(name)
            if isinstance(commit, str) and re.fullmatch(r"g?[0-9a-f]{7,40}", commit):
                return commit.removeprefix("g")
    tag = re.search(r"\+(?:.*\.)?g([0-9a-f]{7,40})\b", version) if isinstance(version, str) else None
    return tag[1] if tag else Missing(reason="neither its metadata nor its files name a commit")
