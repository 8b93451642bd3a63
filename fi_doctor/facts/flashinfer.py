"""The installed flashinfer package, read from its files; it is never imported."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path

from fi_doctor.facts.architectures import architectures
from fi_doctor.facts.builds import Builder, read_builder, read_stale
from fi_doctor.facts.companions import DISABLE, Companions, built_modules, why_closed
from fi_doctor.facts.cubins import count_cubins, damaged_cubins
from fi_doctor.facts.files import read_text, why_no_folder
from fi_doctor.facts.own_versions import UNKNOWN_VERSION, read_build_meta
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.toolchain import parse_cccl
from fi_doctor.model import FlashInfer, GpuFacts, Missing, Named, ToolkitFacts


def read_flashinfer(
    survey: Survey,
    environ: Mapping[str, str],
    gpus: GpuFacts,
    toolkit: ToolkitFacts,
    named: Callable[[Path, str], Named],
) -> FlashInfer | Missing:
    """What the flashinfer that an import would get says of itself, its cache and its companions.

    named: of its folder and version, what its source says of the names that are asked for. Missing when nothing can be
    imported as flashinfer.
    """
    origin = survey.modules.get("flashinfer", Missing(reason="flashinfer was not looked for"))
    if isinstance(origin, Missing):
        return origin
    root = Path(origin).parent
    if why := why_no_folder(root):
        inside = "; FlashInfer cannot compile from inside an archive" if why.endswith("is not a folder") else ""
        return Missing(reason=f"{why}{inside}")
    version, commit = read_build_meta(root)
    own_version = version if isinstance(version, str) else UNKNOWN_VERSION
    tags, tags_from = architectures(root, environ, gpus, toolkit)
    base = cache_base(environ)
    cache_dir = _cache_dir(base / own_version, tags)
    writable, owner = access(base if isinstance(cache_dir, Missing) else Path(cache_dir))
    companions = Companions(survey, root, own_version, base, environ)
    cubin_dir = companions.cubin_dir()
    builder = read_builder(root)
    source = named(root, f"flashinfer {own_version}")
    return FlashInfer(
        root=str(root),
        version=version,
        commit=commit,
        architectures=tags,
        architectures_from=tags_from,
        version_checks=companions.checks(),
        version_check_disabled=bool(environ.get(DISABLE)),
        cache_base=str(base),
        cache_dir=cache_dir,
        cache_writable=writable,
        cache_owner=owner,
        cached_modules=() if isinstance(cache_dir, Missing) else built_modules(Path(cache_dir) / "cached_ops"),
        cached_unread="" if isinstance(cache_dir, Missing) else why_closed(Path(cache_dir) / "cached_ops"),
        cubin_dir=cubin_dir,
        cubins=count_cubins(cubin_dir),
        cubins_damaged=damaged_cubins(cubin_dir),
        jit_cache_modules=companions.modules(),
        jit_cache_architectures=companions.architectures(),
        symbols=source.symbols,
        cccl=read_cccl(root),
        shared_ninja_log=builder.shares_log,
        stale_modules=_stale(builder, cache_dir, toolkit, environ),
        public=source.public,
        majors=source.majors,
        admissions=source.admissions,
        altered=source.altered,
    )


def read_cccl(root: Path) -> str | Missing:
    """The version of the CCCL that the package brings, whose folders its build lines name before the toolkit's."""
    text = read_text(root / "data/cccl/libcudacxx/include/cuda/std/__cccl/version.h")
    return text if isinstance(text, Missing) else parse_cccl(text)


def cache_base(environ: Mapping[str, str]) -> Path:
    """The cache folder of all versions, as jit/env.py has it since 0.4.1.

    A variable that is set but empty counts, and then the cache lies below the current directory.
    """
    base = environ.get("FLASHINFER_WORKSPACE_BASE")
    return Path(_home(environ) if base is None else base) / ".cache" / "flashinfer"


def access(folder: Path) -> tuple[bool | Missing, int | Missing]:
    """Whether this user could create or write the folder, and the owner (uid) of the nearest folder that exists."""
    try:
        nearest = next(path for path in (folder, *folder.absolute().parents) if _exists(path))
        owner = nearest.stat().st_uid
    except PermissionError as error:  # who may not look into a folder may not write there either
        return False, Missing(reason=f"{folder}: {error.strerror or error}")
    except OSError as error:
        reason = Missing(reason=f"{folder}: {error.strerror or error}")
        return reason, reason
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK), owner


def _cache_dir(folder: Path, tags: tuple[str, ...] | Missing) -> str | Missing:
    if isinstance(tags, Missing):
        return Missing(reason=f"it is named after the architectures, below {folder}, and those are missing")
    return str(folder / "_".join(tags))


def _stale(
    builder: Builder, cache_dir: str | Missing, toolkit: ToolkitFacts, environ: Mapping[str, str]
) -> dict[str, str]:
    """Nothing is stale where build files are written anew, or where FlashInfer fails before it would write one."""
    if not builder.keeps_files or isinstance(cache_dir, Missing) or isinstance(toolkit.jit, Missing):
        return {}
    return read_stale(Path(cache_dir) / "cached_ops", toolkit.jit, environ)


def _exists(path: Path) -> bool:
    """Like Path.exists, but a folder that may not be searched is an error and not an absence."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _home(environ: Mapping[str, str]) -> str:
    """Path.home() in a process with that environment."""
    home = environ.get("HOME")
    if home is not None:
        return home or "/"
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"  # Path.home() raises there; a cache below / is the nearest thing that can be said
