"""How the installed vLLM calls the installed FlashInfer: each use in its source, bound to what FlashInfer defines."""

from __future__ import annotations

import contextlib
import re
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
from fi_doctor.facts.collecting import collecting_paused
from fi_doctor.facts.files import NOT_PYTHON, decoded, why_no_folder, why_not_python
from fi_doctor.facts.own_versions import read_build_meta
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.symbols import QUICK, WHOLE
from fi_doctor.facts.vllm import python_files
from fi_doctor.model import Calls, Misfit, MisfitKind, Missing, Unbound

# All of 0.33.0 takes 0.7 s on one core; a machine that is ten times slower is still told.
_LIMIT_S = 20.0
_FILE_LIMIT_S = 5.0
_LARGEST_BYTES = 1 << 20  # the largest of 0.33.0 that asks for FlashInfer has 0.2 MiB; a parser cannot be interrupted
_MOST_FILES = 20_000
_WORD = b"flashinfer"
_QUOTES = (b'"', b"'")
_BEFORE = (b"from ", b"import ", b"utils.")
_WRAPPERS = b"vllm.utils import"
_AMONG = re.compile(rb"[ \t]*import [\w., ]+, *")  # `import functools, flashinfer`
_FROM = re.compile(rb"from (flashinfer[\w.]*|vllm[\w.]*) import (\([^)]*\)|[^\n]*)")
_BOUND = re.compile(rb"(\w+)[ \t]*(?:,|\)|#|\n|$)")  # of `a as b, c` the names b and c


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
    why = why_no_folder(folder)
    return Missing(reason=why) if why else folder


def read_calls_whole(survey: Survey) -> Calls | Missing:
    """The same, and no file of FlashInfer that is asked is taken for good Python without having been parsed whole."""
    return read_calls(survey, whole=WHOLE)


def bind(vllm: Path, flashinfer: Path, label: str, *, whole: int = QUICK) -> Calls | Missing:
    """Every use of the FlashInfer in one folder by the vLLM in another; neither is imported.

    label: what reasons call that FlashInfer, "flashinfer 0.7.2.post1".  whole: as for Symbols.
    """
    try:
        texts, unread = _texts(vllm)
    except OSError as error:
        return Missing(reason=f"{error.filename or vllm}: {error.strerror or error}")
    if isinstance(texts, Missing):
        return texts
    with collecting_paused():
        return _bound(_Package(texts, unread), Callees(flashinfer, label, whole=whole))


def _bound(package: _Package, callees: Callees) -> Calls:
    told = _Told()
    for name in package.names:
        file = package.file(name)
        if file is None:
            continue
        with package.timed(name):
            for use in uses(file):
                package.check()
                fitted = fit(use, callees)
                if fitted is not None:
                    told.take(f"{name}:{use.line}", use, fitted)
    package.forget()
    return told.calls(len(package.names), package.unread)


class _TooLongError(Exception):
    pass


class _Package:
    """The files of vLLM that speak of FlashInfer; what one imports from another is followed."""

    def __init__(self, texts: dict[str, bytes], unread: dict[str, str]) -> None:
        self.unread = unread
        self._end = self._until = time.monotonic() + _LIMIT_S
        self.names = sorted(texts)
        self._texts = texts
        self._files: dict[str, File | None] = {}

    def file(self, name: str) -> File | None:
        """The file of that path below the package; None when there is no such, or none that is Python."""
        if name not in self._files:
            self._files[name] = None  # while it is read: modules that import one another
            if name in self._texts:
                with self.timed(name):
                    self.check()
                    self._files[name] = File(decoded(self._texts[name]), self._imported, self.check)
        return self._files[name]

    def check(self) -> None:
        """Whether there is time left for what is being read."""
        if time.monotonic() > self._until:
            raise _TooLongError

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """What is done for one file; where it is no Python or takes too long, that file is unread, and the rest is.

        The time for a file that it imports is not its own.
        """
        start, before = time.monotonic(), self._until
        self._until = min(start + _FILE_LIMIT_S, self._end)
        try:
            yield
        except NOT_PYTHON as error:
            self.unread[name] = f"{type(error).__name__}: {why_not_python(error)}"
        except _TooLongError:
            is_all = time.monotonic() > self._end
            self.unread[name] = (
                f"{'all files' if is_all else 'it'} took more than {_LIMIT_S if is_all else _FILE_LIMIT_S:g} s"
            )
        finally:
            self._until = min(before + time.monotonic() - start, self._end)

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
        self._held: list[Misfit] = []  # by variables
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
            (self._held if use.is_held else self._misfits).append(misfit)
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
            misfits=tuple(sorted(filter(self._is_surprise, (*self._misfits, *self._unforeseen())), key=_order)),
            unbound=tuple(self._unbound),
            wanting=dict(sorted(self._wanting.items())),
            unread=unread,
        )

    def _unforeseen(self) -> Iterator[Misfit]:
        """Of what variables hold, not the names that are asked after before a variable is set."""
        for misfit in self._held:
            if misfit.kind is not MisfitKind.MISSING_NAME or misfit.name not in self._wanting:
                yield misfit

    def _is_surprise(self, misfit: Misfit) -> bool:
        """A wrapper by name for what vLLM asks after elsewhere, before it takes it, is none."""
        return misfit.kind is not MisfitKind.MISSING_LAZILY or misfit.name not in self._wanting


def _order(misfit: Misfit) -> tuple[str, str, str]:
    return str(misfit.kind), misfit.name, misfit.caller


def _texts(root: Path) -> tuple[dict[str, bytes] | Missing, dict[str, str]]:
    """Path below the package -> text, of the files that ask for FlashInfer or for vLLM's wrappers of it.

    And of those that cannot be read, why; OSError where a folder cannot.
    """
    found: dict[str, bytes] = {}
    others: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    start = len(str(root)) + 1
    for number, path in enumerate(python_files(root)):
        if number >= _MOST_FILES:
            return Missing(reason=f"{root} has more than {_MOST_FILES} Python files"), unread
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - as facts/vllm.py
                text = file.read(_LARGEST_BYTES + 1)
        except OSError as error:
            unread[path[start:]] = error.strerror or str(error)
            continue
        if len(text) > _LARGEST_BYTES:
            unread[path[start:]] = f"it is larger than {_LARGEST_BYTES >> 20} MiB"
        elif _asks(text):
            found[path[start:]] = text
        else:
            others[path[start:]] = text
    return found | _taking(others, found), unread


def _taking(others: dict[str, bytes], asking: dict[str, bytes]) -> dict[str, bytes]:
    """Those of the other files that import from one that asks what this has imported from FlashInfer."""
    given: dict[bytes, set[bytes]] = {}
    for name, text in asking.items():
        module = f"vllm/{name}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        given[module.encode()] = {
            bound
            for origin, listed in _FROM.findall(text)
            if origin.partition(b".")[0] == _WORD
            for bound in _BOUND.findall(listed)
        }
    return {
        name: text
        for name, text in others.items()
        if any(
            not given[origin].isdisjoint(re.findall(rb"\w+", listed))
            for origin, listed in _FROM.findall(text)
            if origin in given
        )
    }


def _asks(text: bytes) -> bool:
    """Whether a file imports FlashInfer, or vLLM's wrappers of it, or names one of its modules in a string."""
    at = text.find(_WORD)
    while at >= 0:
        after = text[at + len(_WORD) : at + len(_WORD) + 1]
        is_string = text.endswith(_QUOTES, 0, at) and after in (b".", *_QUOTES)
        line = text.rfind(b"\n", 0, at) + 1
        is_listed = text.endswith(_BEFORE, 0, at) or _AMONG.fullmatch(text, line, at) is not None
        is_import = is_listed and not (after.isalnum() or after == b"_")
        if is_string or is_import or _WRAPPERS in text[max(0, at - 400) : at]:
            return True
        at = text.find(_WORD, at + 1)
    return False
