"""The table of faults: what is done, and what must come out. Each is one row; machine.py looks at the rest.

Faults in files, logs and words of others are tests of what reads them; compilers that fail in other ways, and locks of
builds within one process, are in tests/probing/test_build_faults.py and test_build_lock.py; streams that are full or
closed for other commands in tests/cli/test_output.py; swallowed signals in tests/cli/test_swallowed_signals.py.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import ways

INTERRUPTED = "fi-doctor: interrupted; no verdict"
TERMINATED = "fi-doctor: terminated; no verdict"


class Fault(NamedTuple):
    """name: what is wrong. run: gets a Machine, gives a Done. rows: verdict and words of the rows that are faulty."""

    name: str
    run: Callable[[Any], Any]
    rows: dict[str, tuple[str, str]] | None  # None: it ends without a report
    code: int
    says: str = ""  # somewhere in what is printed
    needs: Callable[[], str] = str  # why it cannot be tried here; "" where it can
    is_slow: bool = False  # more than some seconds: only the benchmark tries it


def ends(name, probe, verdict, why, **options):
    """A probe that is faulty by itself."""
    return Fault(name, ways.plain(probe), {probe: (verdict, why)}, 1 if verdict in ("broken", "wrong-result") else 0, **options)


def stops(name, number, code, says, **options):
    """A signal that ends the command, with nothing on stdout."""
    return Fault(name, ways.signalled(number, "chaos.waits", **options), None, code, says)


PROBES = (
    ends("a probe that ends by SIGSEGV", "fake.segfault", "broken", "SIGSEGV while running"),
    ends("a probe that ends by SIGABRT", "fake.abort", "broken", "SIGABRT while building"),
    ends("a probe that ends by SIGKILL", "chaos.sigkill", "unknown", "killed from outside: SIGKILL"),
    ends("a probe that ends by SIGBUS", "chaos.sigbus", "broken", "SIGBUS while running"),
    ends("a probe that calls _exit and sys.exit", "fake.exits", "broken", "left with status 0 while running"),
    ends("a probe with an exception in a thread", "fake.thread", "broken", "in thread worker: division by zero"),
    ends("a probe whose import hangs", "chaos.import_hangs", "unknown", "still importing"),
    ends("a probe that hangs with deaf children", "fake.hang", "broken", "still running after 1 s"),
    ends("a probe that leaves deaf children without environment", "chaos.deaf", "works", ""),
    ends("a probe that prints 1 GiB", "fake.loud", "works", ""),
    ends("a probe that prints bytes and escapes", "chaos.escapes", "broken", "title"),
    ends("a probe whose record is cut in half", "fake.cut", "unknown", "its record is cut or unreadable"),
    ends("a probe whose record is torn", "chaos.torn", "unknown", "its record is cut or unreadable"),
    ends("a probe that takes more memory than there is", "chaos.memory", "broken", "MemoryError"),
    ends("a probe that crashes while it leaves", "fake.crash_at_exit", "works", ""),
)

SIGNALS = (
    stops("SIGINT while a probe runs", signal.SIGINT, 130, INTERRUPTED),
    stops("SIGTERM while a probe runs", signal.SIGTERM, 143, TERMINATED),
)

ALL = (*PROBES, *SIGNALS)
