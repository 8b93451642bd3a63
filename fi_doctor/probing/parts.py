"""Where parts of modules are kept between checks: never in FlashInfer's own cache, which a server loads from."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

import platformdirs

from fi_doctor import acting
from fi_doctor.model import Facts, Missing

KEPT_S = 30 * 24 * 3600.0  # since they were last used


def folder(facts: Facts, scratch: Path | None, passing: Path) -> Path:
    """A folder for what this FlashInfer, toolkit and compiler give.

    scratch: where all caches are in this check, when not in their usual places. passing: a folder of this run, for what
    cannot be kept. What else decides (flags, sources) stands in the ninja file of a part, so that ninja sees it change.
    """
    base = scratch if scratch is not None else _own()
    if facts.running_uid != facts.system.uid:  # who runs there makes it, and cannot write into what is ours
        return (scratch or passing) / "parts"
    found = (base or passing) / "parts" / _key(facts)
    try:
        found.mkdir(parents=True, exist_ok=True)
        os.utime(found)
        (found / "writable").touch()
    except OSError:
        return passing / "parts"
    _remove_old(found.parent)
    return found


def _own() -> Path | None:
    """fi-doctor's own cache, unless it is another user's, or a link of one leads there."""
    base = Path(platformdirs.user_cache_dir("fi-doctor"))
    # Not Path.exists, which raises where permissions deny the look.
    nearest = next((path for path in (base, *base.parents) if os.path.exists(path)), None)  # noqa: PTH110
    try:
        is_ours = nearest is not None and nearest.stat().st_uid == os.getuid()
        return base if is_ours and not acting.is_led_astray(base) else None
    except OSError:
        return None


def _key(facts: Facts) -> str:
    flashinfer, toolkit = facts.flashinfer, facts.toolkit
    compiler = toolkit.jit if isinstance(toolkit.jit, Missing) else toolkit.jit.compiler
    words = [
        *([] if isinstance(flashinfer, Missing) else [flashinfer.root, flashinfer.version, flashinfer.architectures]),
        *([] if isinstance(compiler, Missing) else [compiler.resolved, compiler.build]),
        toolkit.host_compiler,
        toolkit.host_compiler_version,
    ]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def _remove_old(parts: Path) -> None:
    """Remove what was not used for long."""
    with contextlib.suppress(OSError):
        for path in parts.iterdir():
            if time.time() - path.stat().st_mtime > KEPT_S:
                shutil.rmtree(path, ignore_errors=True)
