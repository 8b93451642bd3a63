"""How the installed vLLM calls the installed FlashInfer: each use in its source, bound to what FlashInfer defines."""

from __future__ import annotations

import contextlib
import gc
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fi_doctor.facts.calls.binding import Fitted, fit
from fi_doctor.facts.calls.callees import Callees
from fi_doctor.facts.calls.read_file import File
from fi_doctor.facts.calls.use import CALLED, Use
from fi_doctor.facts.calls.uses import uses
from fi_doctor.facts.calls.values import Value, Values
from fi_doctor.facts.files import LARGEST_BYTES, NOT_PYTHON, why_not_python
from fi_doctor.facts.flashinfer import read_build_meta
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.symbols import QUICK, WHOLE
from fi_doctor.facts.vllm import python_files
from fi_doctor.model import Calls, Misfit, MisfitKind, Missing, Unbound

# All of 0.33.0 takes 0.7 s on one core; a machine that is ten times slower is still told.
_LIMIT_S = 20.0
_MOST_FILES = 20_000
_WORD = b"flashinfer"
_QUOTES = (b'"', b"'")
_BEFORE = (b"from ", b"import ", b"utils.")
_WRAPPERS = b"vllm.utils import"


def read_calls(survey: Survey, *, whole: int = QUICK) -> Calls | Missing:
    """Every use of the flashinfer by the vllm that imports would get; Missing where one of them is not there."""
    vllm, flashinfer = _folder(survey, "vllm"), _folder(survey, "flashinfer")
    if isinstance(vllm, Missing):
        return vllm
    if isinstance(flashinfer, Missing):
        return flashinfer
    version, _ = read_build_meta(flashinfer)
    return bind(vllm, flashinfer, f"flashinfer {version}" if isinstance(version, str) else "flashinfer", whole=whole)


def _folder(survey: Survey, name: str) -> Path | Missing:
    origin = survey.modules.get(name, Missing(reason=f"{name} was not looked for"))
    if isinstance(origin, Missing):
        return origin
    folder = Path(origin).parent
    return folder if folder.is_dir() else Missing(reason=f"{folder} is not a folder")


def unread(_: Survey) -> Missing:
    """In place of read_calls where nothing is to be made of them, and half a second matters."""
    return Missing(reason="the calls were not looked at")


def read_calls_whole(survey: Survey) -> Calls | Missing:
    """The same, and no file of FlashInfer that is asked is taken for good Python without having been parsed whole."""
    return read_calls(survey, whole=WHOLE)


def bind(vllm: Path, flashinfer: Path, label: str, *, whole: int = QUICK) -> Calls | Missing:
    """Every use of the FlashInfer in one folder by the vLLM in another; neither is imported.

    label: what reasons call that FlashInfer, "flashinfer 0.7.2.post1".  whole: as for Symbols.
    """
    try:
        texts = _texts(vllm)
    except OSError as error:
        return Missing(reason=f"{error.filename or vllm}: {error.strerror or error}")
    if isinstance(texts, Missing):
        return texts
    with _collecting_paused():
        return _bound(_Package(texts), Callees(flashinfer, label, whole=whole)) or Missing(
            reason=f"the files of {vllm} could not be read within {_LIMIT_S:g} s"
        )


def _bound(package: _Package, callees: Callees) -> Calls | None:
    told = _Told()
    until = time.monotonic() + _LIMIT_S
    for name in package.names:
        if time.monotonic() > until:
            return None
        file = package.file(name)
        for use in uses(file) if file is not None else ():
            fitted = fit(use, callees)
            if fitted is not None:
                told.take(f"{name}:{use.line}", use, fitted)
    package.forget()
    return told.calls(len(package.names), package.unread)


@contextlib.contextmanager
def _collecting_paused() -> Iterator[None]:
    """Syntax trees are many objects without cycles; looking through them for garbage takes as long as all the rest."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Package:
    """The files of vLLM that speak of FlashInfer; what one imports from another is followed."""

    def __init__(self, texts: dict[str, bytes]) -> None:
        self.unread: dict[str, str] = {}
        self.names = sorted(texts)
        self._texts = texts
        self._files: dict[str, File | None] = {}

    def file(self, name: str) -> File | None:
        """The file of that path below the package; None when there is no such, or none that is Python."""
        if name not in self._files:
            self._files[name] = None  # while it is read: modules that import one another
            if name in self._texts:
                try:
                    self._files[name] = File(self._texts[name].decode("utf-8", "replace"), self._imported)
                except NOT_PYTHON as error:
                    self.unread[name] = f"{type(error).__name__}: {why_not_python(error)}"
        return self._files[name]

    def forget(self) -> None:
        """Let the trees go: the files know the package, and it them."""
        self._files.clear()

    def _imported(self, module: str, name: str) -> Values | None:
        if not module.startswith("vllm"):
            return None
        folder = "/".join(module.split(".")[1:])
        for path in (f"{folder}/{name}.py".lstrip("/"), f"{folder}/{name}/__init__.py".lstrip("/")):
            if path in self._texts:
                return frozenset({Value(f"{module}.{name}")})
        for path in (f"{folder}.py", f"{folder}/__init__.py"):
            file = self.file(path)
            if file is not None:
                return file.top.names.get(name) or file.top.types.get(name)  # by a module's own __getattr__
        return None


class _Told:
    """What came of all uses."""

    def __init__(self) -> None:
        self._fitting = 0
        self._called: defaultdict[str, list[str]] = defaultdict(list)
        self._places: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._misfits: list[Misfit] = []
        self._unbound: list[Unbound] = []
        self._wanting: dict[str, str] = {}

    def take(self, place: str, use: Use, fitted: Fitted) -> None:
        if use.how == CALLED:
            self._called[fitted.name].append(place)
            if fitted.place:
                self._places[fitted.name] = fitted.place
        else:
            self._names.setdefault(fitted.name, place)
        if fitted.kind is not None:
            misfit = Misfit(kind=fitted.kind, name=fitted.name, caller=place, callee=fitted.place, text=fitted.text)
            self._misfits.append(misfit)
        elif fitted.is_wanting:
            self._wanting.setdefault(fitted.name, place)
        elif not fitted.is_told:
            self._unbound.append(Unbound(name=fitted.name, caller=place, why=fitted.text))
        else:
            self._fitting += 1

    def calls(self, files: int, unread: dict[str, str]) -> Calls:
        return Calls(
            files=files,
            fitting=self._fitting,
            calls={name: tuple(places) for name, places in sorted(self._called.items())},
            places=dict(sorted(self._places.items())),
            names={name: place for name, place in sorted(self._names.items()) if name not in self._called},
            misfits=tuple(sorted(filter(self._is_surprise, self._misfits), key=_order)),
            unbound=tuple(self._unbound),
            wanting=dict(sorted(self._wanting.items())),
            unread=unread,
        )

    def _is_surprise(self, misfit: Misfit) -> bool:
        """A wrapper by name for what vLLM asks after elsewhere, before it takes it, is none."""
        return misfit.kind is not MisfitKind.MISSING_LAZILY or misfit.name not in self._wanting


def _order(misfit: Misfit) -> tuple[str, str, str]:
    return str(misfit.kind), misfit.name, misfit.caller


def _texts(root: Path) -> dict[str, bytes] | Missing:
    """Path below the package -> text, of the files that ask for FlashInfer or for vLLM's wrappers of it."""
    found: dict[str, bytes] = {}
    start = len(str(root)) + 1
    for number, path in enumerate(python_files(root)):
        if number >= _MOST_FILES:
            return Missing(reason=f"{root} has more than {_MOST_FILES} Python files")
        with open(path, "rb") as file:  # noqa: PTH123 - as facts/vllm.py
            text = file.read(LARGEST_BYTES)
        if _asks(text):
            found[path[start:]] = text
    return found


def _asks(text: bytes) -> bool:
    """Whether a file imports FlashInfer, or vLLM's wrappers of it, or names one of its modules in a string."""
    at = text.find(_WORD)
    while at >= 0:
        after = text[at + len(_WORD) : at + len(_WORD) + 1]
        is_string = text.endswith(_QUOTES, 0, at) and after in (b".", *_QUOTES)
        is_import = text.endswith(_BEFORE, 0, at) and not (after.isalnum() or after == b"_")
        if is_string or is_import or _WRAPPERS in text[max(0, at - 400) : at]:
            return True
        at = text.find(_WORD, at + 1)
    return False
