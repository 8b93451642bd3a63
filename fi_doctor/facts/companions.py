"""flashinfer-cubin and flashinfer-jit-cache beside the installed FlashInfer: accepted or not, and what they bring.

Which versions fit, and what happens to one that does not fit, is decided in FlashInfer's jit/env.py, differently up to
0.6 and from 0.7 on; that file is replayed (see replay.py), so the answer is the installed version's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from fi_doctor.facts.files import NOT_PYTHON, matching, read_whole, why_not_python
from fi_doctor.facts.own_versions import constants
from fi_doctor.facts.packages import PROVIDER_PREFIX, Survey, package
from fi_doctor.facts.replay import PROGRAM_ERRORS, Replay, Unreplayable
from fi_doctor.model import Data, Missing, Package, VersionCheck

DISABLE = "FLASHINFER_DISABLE_VERSION_CHECK"
CUBIN, JIT_CACHE = "flashinfer-cubin", "flashinfer-jit-cache"

_RULE = "jit/env.py"
_ENTRIES = {CUBIN: ("_get_cubin_dir",), JIT_CACHE: ("_get_aot_dir", "_get_aot_providers")}
_NEVER = "0"  # a version that fits no FlashInfer


class Answer(Data, frozen=True):
    """What a rule of jit/env.py did."""

    result: str  # the folder it chose, "" for another kind of result
    error: str  # of the RuntimeError that it raised
    warning: str  # the last that it logged
    line: int  # of that error in jit/env.py

    @property
    def accepted(self) -> bool:
        """Whether it went without complaint."""
        return not self.error and not self.warning


class Companions:
    """FlashInfer's own view of its companion packages."""

    def __init__(self, survey: Survey, root: Path, version: str, cache_base: Path, environ: Mapping[str, str]) -> None:
        self._survey = survey
        self._root = root
        self._version = version  # as FlashInfer calls itself, "0.0.0+unknown" without _build_meta.py
        self._cache_base = cache_base
        self._environ = environ
        self._text = _read(root / _RULE)

    def checks(self) -> tuple[VersionCheck, ...]:
        """FlashInfer's comparison of each companion that it would import, whether or not it is switched off."""
        found = [self._check(name) for name in (CUBIN, JIT_CACHE) if self._folder(name) is not None]
        found += [self._provider_check(p) for p in self._providers() if self._folder(JIT_CACHE) is not None]
        return tuple(check for check in found if check is not None)

    def cubin_dir(self) -> str | Missing:
        """Where FlashInfer takes cubins from: its package, FLASHINFER_CUBIN_DIR or its cache, in its own order."""
        answer = self._ask("_get_cubin_dir", self._environ, {})
        if isinstance(answer, Missing):
            return answer
        if answer.error:
            return Missing(reason=f"import flashinfer raises RuntimeError: {answer.error}")
        return answer.result

    def modules(self) -> tuple[str, ...]:
        """The modules that the jit-cache packages bring prebuilt, whether or not FlashInfer accepts the packages."""
        places = {p.location for p in self._providers()}
        folder = self._folder(JIT_CACHE)
        folders = {folder} if folder is not None else set()
        for place in places:
            folders.update(matching(place, "flashinfer_jit_cache*"))
        return tuple(sorted({name for one in folders for name in built_modules(one / "jit_cache")}))

    def architectures(self) -> tuple[str, ...] | Missing:
        """The architectures of the jit-cache packages, "90a", as the names of the provider packages say."""
        tags = tuple(sorted(p.name.removeprefix(f"{PROVIDER_PREFIX}sm") for p in self._providers()))
        if tags:
            return tags
        found = package(self._survey, JIT_CACHE)
        if isinstance(found, Missing):
            return Missing(reason=f"{JIT_CACHE} is {found.reason}")
        return Missing(reason=f"{JIT_CACHE} {_words(found.version)} does not record its architectures")

    def _providers(self) -> list[Package]:
        names = sorted({d.name for d in self._survey.distributions if d.name.startswith(f"{PROVIDER_PREFIX}sm")})
        found = [package(self._survey, name) for name in names]
        return [p for p in found if isinstance(p, Package)]

    def _check(self, name: str) -> VersionCheck | None:
        entry = next((function for function in _ENTRIES[name] if f"def {function}(" in self._text), None)
        if entry is None:
            return None
        version = self._found(name)
        answer, refused = self._judge(entry, name, version), self._judge(entry, name, _NEVER)
        if answer is None or refused is None:
            return None
        return VersionCheck(
            package=name,
            found=version,
            expected=self._expected(entry, name),
            ok=answer.accepted,
            effect=self._effect(answer, refused),
            source=f"{_RULE}:{refused.line}" if refused.line else _RULE,
        )

    def _judge(self, entry: str, name: str, version: str) -> Answer | None:
        """The rule's answer to that version of a companion, as if no variable had a say."""
        environ = {k: v for k, v in self._environ.items() if k not in {DISABLE, "FLASHINFER_CUBIN_DIR"}}
        answer = self._ask(entry, environ, {name: version})
        return None if isinstance(answer, Missing) else answer

    def _expected(self, entry: str, name: str) -> str:
        """In words what the rule accepts, found by asking it."""
        own = self._version
        if self._accepts(entry, name, _NEVER):
            return f"any version, because FlashInfer calls itself {own}"
        if self._accepts(entry, name, f"{own}.post99"):
            return f"a version that begins with {own}"
        return f"{own} or {own}+cuXYZ" if self._accepts(entry, name, f"{own}+cu999") else f"exactly {own}"

    def _accepts(self, entry: str, name: str, version: str) -> bool:
        answer = self._judge(entry, name, version)
        return answer is not None and answer.accepted

    def _effect(self, answer: Answer, refused: Answer) -> str:
        """What FlashInfer does with a version that does not fit."""
        if self._environ.get(DISABLE):
            return f"nothing, because {DISABLE} is set: the package is used as it is"
        if answer.error:
            return f"import flashinfer raises RuntimeError: {answer.error}"
        if answer.warning:
            return f"the package is ignored: {answer.warning}"
        return "import flashinfer raises RuntimeError" if refused.error else "the package is ignored"

    def _provider_check(self, provider: Package) -> VersionCheck | None:
        """One provider package against the jit-cache shim."""
        shim, version = self._found(JIT_CACHE), _words(provider.version)
        environ = {k: v for k, v in self._environ.items() if k != DISABLE}
        name = "_check_jit_cache_provider_version"
        answer = self._ask(name, environ, {}, provider.name, version, shim)
        refused = self._ask(name, environ, {}, provider.name, shim + "x", shim)
        if isinstance(answer, Missing) or isinstance(refused, Missing):
            return None
        disabled = f"nothing, because {DISABLE} is set: the package is used as it is"
        return VersionCheck(
            package=provider.name,
            found=version,
            expected=f"exactly {shim}, as {JIT_CACHE}",
            ok=answer.accepted,
            effect=disabled if self._environ.get(DISABLE) else f"the package is ignored: {answer.error}".rstrip(": "),
            source=f"{_RULE}:{refused.line}",
        )

    def _ask(
        self, entry: str, environ: Mapping[str, str], versions: Mapping[str, str], *values: object
    ) -> Answer | Missing:
        """Replay one function of jit/env.py, with other versions of the companions where `versions` names them."""
        rule = self._root / _RULE
        try:
            replay = Replay(self._text, self._world(environ, versions))
        except NOT_PYTHON as error:
            return Missing(reason=f"{rule} is not Python: {why_not_python(error)}")
        try:
            result = replay.call(entry, *values)
        except Unreplayable as error:
            return Missing(reason=f"{rule} has a rule that fi-doctor cannot follow: {error}")
        except PROGRAM_ERRORS as error:
            return Answer(result="", error=str(error), warning="", line=replay.raised_at)
        # A warning that FLASHINFER_CUBIN_DIR overrides the package is no complaint about its version.
        warning = next((text for text in replay.warnings if replay.raised_at), "")
        return Answer(result=str(result), error="", warning=warning, line=replay.raised_at)

    def _world(self, environ: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, object]:
        cubin, jit_cache = self._folder(CUBIN), self._folder(JIT_CACHE)
        return {
            "os": SimpleNamespace(environ=environ, getenv=environ.get),
            "pathlib": SimpleNamespace(Path=Path),
            "flashinfer_version": self._version,
            "FLASHINFER_CACHE_DIR": self._cache_base,
            "_package_root": self._root,
            "has_flashinfer_cubin": lambda: cubin is not None,
            "has_flashinfer_jit_cache": lambda: jit_cache is not None,
            "flashinfer_cubin": SimpleNamespace(
                __version__=versions.get(CUBIN, self._found(CUBIN)),
                get_cubin_dir=lambda: str(cubin / "cubins" if cubin else ""),
            ),
            "flashinfer_jit_cache": SimpleNamespace(
                __version__=versions.get(JIT_CACHE, self._found(JIT_CACHE)),
                get_jit_cache_dir=lambda: str(jit_cache / "jit_cache" if jit_cache else ""),
                get_jit_cache_providers=lambda: (),
            ),
        }

    def _folder(self, name: str) -> Path | None:
        origin = self._survey.modules.get(name.replace("-", "_"))
        return Path(origin).parent if isinstance(origin, str) else None

    def _found(self, name: str) -> str:
        """The companion's __version__: its _build_meta.py, else its metadata, else what its __init__ falls back to."""
        folder = self._folder(name)
        values = constants(folder / "_build_meta.py") if folder else {}
        version = None if isinstance(values, Missing) else values.get("__version__")
        if isinstance(version, str):
            return version
        found = package(self._survey, name)
        if isinstance(found, Package) and isinstance(found.version, str):
            return found.version
        return "0.0.0" if name == CUBIN else "0.0.0+unknown"


def built_modules(folder: Path) -> tuple[str, ...]:
    """The modules with a non-empty NAME/NAME.so below a folder, sorted."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return ()
    return tuple(name for name in names if _size(folder / name / f"{name}.so") > 0)


def why_closed(folder: Path) -> str:
    """Why a folder that is there cannot be listed; "" where it can, or where there is none."""
    try:
        with os.scandir(folder):
            return ""
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


def _read(path: Path) -> str:
    try:
        return read_whole(path).decode("utf-8", "replace")
    except OSError:
        return ""  # then no rule is found, and each answer says so


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _words(version: str | Missing) -> str:
    return version if isinstance(version, str) else "of unknown version"
