"""The folders that the installed FlashInfer writes, as the user who serves finds them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from fi_doctor.facts import permissions, quota
from fi_doctor.facts.environment import neutralise
from fi_doctor.facts.files import is_folder
from fi_doctor.facts.mounts import Mount, mount_of
from fi_doctor.model import FlashInfer, Folder, Missing, User

# ruff: noqa: PTH100, PTH113, PTH116, PTH117, PTH120, PTH208 - paths are texts here, and a Path costs more than the question

# Up to 0.5.3 fused MoE writes its CUTLASS instantiations into the package (jit/fused_moe.py:114); from 0.6 on it takes
# FLASHINFER_GEN_SRC_DIR, which is in the cache.
_IN_PACKAGE = re.compile(r"FLASHINFER_CSRC_DIR\s*/\s*f?[\"'](nv_internal/tensorrt_llm/cutlass_instantiations)")
_INSTANTIATED = {"89": "89", "90": "90", "100": "100", "103": "103", "110": "100", "120": "120", "121": "120"}
# In 0.6.7.post3 a call of trtllm-gen's MoE makes a lock and a link below the cubins, wherever these are, also where
# nothing is downloaded (jit/fused_moe.py:266, cubin_loader.py ensure_symlink). 0.7.2.post1 makes both in the cache, but
# for the routing stage alone, which vLLM does not call.
_LINKS_IN_CUBINS = re.compile(
    r"\ndef gen_trtllm_gen_fused_moe_sm100_module\b(?:(?!\ndef ).)*?"
    r"symlink_path\s*=\s*\(\s*jit_env\.FLASHINFER_CUBIN_DIR\b",
    re.DOTALL,
)
_DEEP_GEMM = "data/csrc/nv_internal/tensorrt_llm/deep_gemm/compiler.cuh"  # getDefaultUserDir
_ADDON = "tvm_ffi/_optional_torch_c_dlpack.py"
_LARGEST = 1 << 20  # bytes read of a source file
_MOST_LOOKED_AT = 2000  # entries of the JIT cache
_MOST_NAMED = 5


class Surroundings(NamedTuple):
    """What folders are looked at with."""

    user: User
    environ: Mapping[str, str]
    mounts: list[Mount]
    root: str = "/"  # where the file system of that user is seen from here
    cwd: str = ""  # against which relative paths are taken; "": that of this process


def read_folders(flashinfer: FlashInfer | Missing, site: str | Missing, around: Surroundings) -> tuple[Folder, ...]:
    """Each of them, the most needed first. site: the folder that holds tvm_ffi, or why there is none."""
    if isinstance(flashinfer, Missing):
        return ()
    named = {purpose: path for purpose, path in _wanted(flashinfer, site, around) if path}
    return tuple(_read(purpose, _absolute(path, around), around) for purpose, path in named.items())


def nearest_existing(path: str, root: str = "/") -> str | Missing:
    """The folder itself or the nearest above it that is there; Missing where that cannot be looked at."""
    folder = path
    while True:
        try:
            os.stat(_seen(folder, root))
        except (FileNotFoundError, NotADirectoryError):  # noqa: PERF203 - a few times
            if folder == "/":
                return Missing(reason=f"there is nothing above {path}")
            folder = os.path.dirname(folder)
        except (OSError, ValueError) as error:
            return Missing(
                reason=f"{neutralise(folder)} cannot be looked at: {getattr(error, 'strerror', None) or error}"
            )
        else:
            return folder


def _wanted(flashinfer: FlashInfer, site: str | Missing, around: Surroundings) -> Iterator[tuple[str, str]]:
    environ, home = around.environ, around.user.home
    if around.root != "/":
        # What is installed there is not known: only what variables and the home folder name.
        yield "jit-cache", flashinfer.cache_base
        yield "temporary", environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where compilers put their files
        return
    cache = flashinfer.cache_dir
    yield "jit-cache", flashinfer.cache_base if isinstance(cache, Missing) else cache
    source = _text(f"{flashinfer.root}/jit/fused_moe.py")
    if found := _IN_PACKAGE.search(source):
        yield "cutlass-sources", _instantiations(f"{flashinfer.root}/data/csrc/{found[1]}", flashinfer.architectures)
    if not isinstance(flashinfer.cubin_dir, Missing):
        yield "cubins", flashinfer.cubin_dir
        if _LINKS_IN_CUBINS.search(source):
            yield "cubin-links", f"{flashinfer.cubin_dir}/flashinfer/trtllm/batched_gemm"
    if os.path.isfile(f"{flashinfer.root}/{_DEEP_GEMM}"):
        yield "deep-gemm", environ.get("TRTLLM_DG_CACHE_DIR") or f"{home}/.tensorrt_llm"
    if not isinstance(site, Missing) and os.path.isfile(f"{site}/{_ADDON}"):
        addon = environ.get("TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi")
        yield "tvm-ffi", home + addon[1:] if addon.startswith("~/") else addon
    yield "temporary", environ.get("TMPDIR") or "/tmp"  # noqa: S108 - where compilers put their files


def _instantiations(folder: str, architectures: tuple[str, ...] | Missing) -> str:
    """The folder of the first architecture that has none yet, else of the first; "" where none is generated for.

    Source: get_cutlass_fused_moe_module in flashinfer/fused_moe/core.py:317 (0.5.3).
    """
    if isinstance(architectures, Missing):
        return folder
    numbers = (_INSTANTIATED.get(name.rstrip("af"), "") for name in architectures)
    folders = [f"{folder}/{number}" for number in numbers if number]
    return next((one for one in folders if not is_folder(one)), folders[0] if folders else "")


def _read(purpose: str, path: str, around: Surroundings) -> Folder:
    nearest = nearest_existing(path, around.root)
    if isinstance(nearest, Missing):
        # For the user who asks a refusal is an answer; what another user may is not known from it.
        is_answer = around.user.is_own and around.root == "/" and _is_refused(path)
        return _unread(purpose, path, nearest, writable=False if is_answer else nearest)
    seen = _seen(nearest, around.root)
    try:
        found, space = os.stat(seen), os.statvfs(seen)
    except OSError as error:
        gone = Missing(reason=f"{nearest} cannot be looked at: {error.strerror or error}")
        return _unread(purpose, path, gone, writable=gone)
    mount = mount_of(os.path.realpath(nearest) if around.root == "/" else nearest, around.mounts)
    filesystem = mount.filesystem if mount else ""
    may, why = _may(nearest, found, space, filesystem, around)
    if purpose == "temporary" and nearest != path:
        may, why = False, "it does not exist, and compilers make none"
    blocked = _blocked(path, filesystem, around) if purpose == "jit-cache" and nearest == path else ()
    unknown = Missing(reason="/proc tells no mount for it")
    left = quota.read_quota(mount, around.user.uid)
    free_mib, free_inodes = _free(space, left, is_root=around.user.overrides_modes is True)
    return Folder(
        purpose=purpose,
        path=neutralise(path),
        nearest=neutralise(nearest),
        owner=found.st_uid,
        mode=f"{stat.S_IMODE(found.st_mode):04o}",
        writable=may,
        why=neutralise(why),
        blocked=tuple(map(neutralise, blocked[:_MOST_NAMED])),
        blocked_count=len(blocked),
        mount=mount.point if mount else unknown,
        filesystem=filesystem or unknown,
        read_only=bool(space.f_flag & os.ST_RDONLY),
        noexec=bool(space.f_flag & os.ST_NOEXEC),
        free_mib=free_mib,
        free_inodes=free_inodes,
        quota=left.words,
    )


def _free(space: os.statvfs_result, left: quota.Left, *, is_root: bool) -> tuple[int, int | Missing]:
    """MiB and inodes that the user may take: what is reserved for root counts for root, a quota for all others."""
    mib = (space.f_bfree if is_root else space.f_bavail) * space.f_frsize >> 20
    inodes = space.f_ffree if is_root else space.f_favail
    if left.mib is not None and not is_root:
        mib = min(mib, left.mib)
    if not space.f_files:
        return mib, Missing(reason="this file system counts no inodes")
    return mib, inodes if left.files is None or is_root else min(inodes, left.files)


def _may(
    nearest: str, found: os.stat_result, space: os.statvfs_result, filesystem: str, around: Surroundings
) -> tuple[bool | Missing, str]:
    if not stat.S_ISDIR(found.st_mode):
        return False, f"{nearest} is no folder"
    if space.f_flag & os.ST_RDONLY:
        return False, "its file system is read-only"
    return permissions.may_write(nearest, around.user, filesystem=filesystem, root=around.root)


def _blocked(path: str, filesystem: str, around: Surroundings) -> tuple[str, ...]:
    """What an import or a build opens for writing there, and that user cannot: the log, locks, folders of modules."""
    if around.root != "/":
        return ()
    user = around.user
    return tuple(
        one
        for one in _opened_for_writing(path)
        if permissions.may_write_file(one, user, filesystem=filesystem) is False
    )


def _opened_for_writing(path: str) -> Iterator[str]:
    """flashinfer/jit/core.py: the log at import, then a lock and a folder for each module."""
    left = _MOST_LOOKED_AT
    for folder, ending in (("", ".log"), ("/cached_ops/tmp", ".lock"), ("/cached_ops", ""), ("/generated", "")):
        try:
            names = sorted(os.listdir(path + folder))[:left]
        except OSError:
            continue
        left -= len(names)
        yield from ([path + folder] if folder else [])
        yield from (f"{path}{folder}/{name}" for name in names if name.endswith(ending))


def _is_refused(path: str) -> bool:
    """Whether permissions keep this process from looking at it."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _unread(purpose: str, path: str, why: Missing, *, writable: bool | Missing) -> Folder:
    return Folder(
        purpose=purpose,
        path=neutralise(path),
        nearest=why,
        owner=why,
        mode=why,
        writable=writable,
        why=why.reason,
        blocked=(),
        blocked_count=0,
        mount=why,
        filesystem=why,
        read_only=why,
        noexec=why,
        free_mib=why,
        free_inodes=why,
        quota=why,
    )


def _absolute(path: str, around: Surroundings) -> str:
    if os.path.isabs(path):
        return os.path.normpath(path)
    return os.path.normpath(f"{around.cwd}/{path}") if around.cwd else os.path.abspath(path)


def _seen(path: str, root: str) -> str:
    return path if root == "/" else f"{root}{path}"


def _text(path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with Path(path).open("rb") as file:
            return file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ""
