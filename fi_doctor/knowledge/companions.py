"""Which flashinfer-cubin and flashinfer-jit-cache a release of FlashInfer takes, where its files are not here.

Read in flashinfer/jit/env.py of all releases from 0.5.0 to 0.7.4; of an installed one the file itself is replayed.
"""

from __future__ import annotations

from fi_doctor.conditions.ranges import version_in
from fi_doctor.model import VersionCheck

CUBIN, JIT_CACHE = "flashinfer-cubin", "flashinfer-jit-cache"
_RAISES = "import flashinfer raises RuntimeError"
_IGNORES = "the package is ignored"


def checks(flashinfer: str, beside: dict[str, str]) -> tuple[VersionCheck, ...]:
    """What that release does with the packages beside it, by name and version; nothing where it is not known."""
    if not version_in(flashinfer, ">=0.5.0.dev0,<0.7.5"):
        return ()
    return tuple(_check(flashinfer, name, beside[name]) for name in (CUBIN, JIT_CACHE) if name in beside)


def _check(flashinfer: str, name: str, version: str) -> VersionCheck:
    raises, place = _source(flashinfer, name)
    said = f"{name} version ({version}) does not match flashinfer version ({flashinfer})"
    if name == CUBIN:
        expected, fits = f"exactly {flashinfer}", version == flashinfer
    elif version_in(flashinfer, ">=0.7.0.dev0"):
        expected, fits = f"{flashinfer} or {flashinfer}+cuXYZ", version.partition("+")[0] == flashinfer
    else:
        expected, fits = f"a version that begins with {flashinfer}", version.startswith(flashinfer)
    effect = f"{_RAISES if raises else _IGNORES}: {said}"
    return VersionCheck(package=name, found=version, expected=expected, ok=fits, effect=effect, source=place)


def _source(flashinfer: str, name: str) -> tuple[bool, str]:
    """Whether that release raises, and where that stands in a release that does the same."""
    if version_in(flashinfer, ">=0.7.2.dev0"):
        return False, f"jit/env.py:{122 if name == CUBIN else 204} (0.7.2.post1)"
    if version_in(flashinfer, ">=0.7.0.dev0"):
        return True, f"jit/env.py:{105 if name == CUBIN else 151} (0.7.0.post1)"
    return True, f"jit/env.py:{76 if name == CUBIN else 114} (0.6.7.post3)"
