"""Where the report comes from that is served: a file that is written elsewhere, or static checks at an interval."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fi_doctor import sandbox
from fi_doctor.endpoint.pages import Pages
from fi_doctor.errors import DataError
from fi_doctor.model import Missing
from fi_doctor.reports import document

CHECK_S = 120.0  # a static check takes seconds; what takes longer hangs
USAGE = 2
# Our own folders go before what lies in the current one and on PYTHONPATH, which is for who is examined.
_START = "import sys; sys.path[:] = sys.argv[1].split(':'); from fi_doctor.cli.process import main"
_MOST_WORDS = 600


class Source(Protocol):
    """Gives what is to be served now."""

    def now(self) -> Pages | Missing:
        """The last report, or why there is none."""


class File:
    """A report that is written anew from time to time. What cannot be read now is not answered with an earlier one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._found: Pages | Missing = Missing(reason="the report was not read yet")

    def now(self) -> Pages | Missing:
        """The report, read again once the file's number, size or times are others."""
        with self._lock:
            seen = self._state()
            if not seen or seen != self._seen:
                self._found = self._read()
                # A file that changes while it is read is read again.
                self._seen = seen if seen == self._state() else ()
            return self._found

    def _state(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _read(self) -> Pages | Missing:
        try:
            return Pages(document.read_file(self._path))
        except DataError as error:
            return Missing(reason=f"{error.what}: {error.why}")


class Checks:
    """Static checks, each in a process of its own, of which one that hangs is ended."""

    def __init__(self, words: tuple[str, ...], every_s: float, refused: Callable[[str], None]) -> None:
        """words: of `fi-doctor check`. refused: is told what the first check has against them."""
        self._words = words
        self._every_s = every_s
        self._refused = refused
        self._found: Pages | Missing = Missing(reason="the first check is not over yet")

    def now(self) -> Pages | Missing:
        """What the last check gave; nothing of an earlier one where it gave no report."""
        return self._found

    def begin(self) -> None:
        """Check now and from then on, in a thread that ends with the process."""
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        pause = threading.Event()
        is_first = True
        while True:
            code, self._found = self._check()
            if is_first and code == USAGE and isinstance(self._found, Missing):
                self._refused(self._found.reason)
                return
            is_first = False
            pause.wait(self._every_s)

    def _check(self) -> tuple[int | None, Pages | Missing]:
        try:
            return check(self._words)
        except OSError as error:  # no folder or descriptor for it; the next one may have them
            return None, Missing(reason=f"no check can be made: {error}")


def check(words: tuple[str, ...], timeout_s: float = CHECK_S) -> tuple[int | None, Pages | Missing]:
    """The exit code and the report of one static check with these words of `fi-doctor check`."""
    with tempfile.TemporaryDirectory(prefix="fi-doctor-") as folder:
        path = Path(folder, "report.json")
        asked = ("check", *words, "--depth", "static", "--quiet", "--format", f"json:{path}")
        start = (sys.executable, "-I", "-c", f"{_START}; main(sys.argv[2:])", os.pathsep.join(sys.path), *asked)
        done = sandbox.run(start, timeout_s=timeout_s)
        if done.timed_out:
            return None, Missing(reason=f"the check did not end within {timeout_s:g} s")
        try:
            return done.returncode, Pages(document.read_file(path))
        except DataError:
            return done.returncode, Missing(reason=_complaint(done))


def _complaint(done: sandbox.Result) -> str:
    said = done.error or " ".join(done.stderr.decode("utf-8", "replace").split())
    how = f"signal {done.signal}" if done.signal else f"code {done.returncode}"
    return f"the check ended with {how} and without a report: {said[:_MOST_WORDS] or 'it said nothing'}"
