"""The table of faults: what is done, and what must come out. Each is one row; machine.py looks at the rest.

Faults in files, logs and words of others are tests of what reads them; compilers that fail in other ways, and locks of
builds within one process, are in tests/probing/test_build_faults.py and test_build_lock.py; streams that are full or
closed for other commands in tests/cli/test_output.py; swallowed signals in tests/cli/test_swallowed_signals.py.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, NamedTuple

import acting_user
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
    budget_s: float = 20.0  # of the check, beside which there is time to read and to write


def ends(name, probe, verdict, why, **options):
    """A probe that is faulty by itself."""
    return Fault(
        name, ways.plain(probe), {probe: (verdict, why)}, 1 if verdict in ("broken", "wrong-result") else 0, **options
    )


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


# A user of whom nothing else runs: a limit of processes counts all of one user's.
USER = 61234
FULL = "mount -t tmpfs -o size=64k none $TMPDIR; head -c 100k /dev/zero > $TMPDIR/all 2> /dev/null || true"
READ_ONLY = "mount --bind $HOME $HOME; mount -o remount,ro,bind $HOME"
ANYTHING = {"chaos.deaf": ("works", "")}  # a sound row that starts processes


def machine_with(name, run, **options):
    """A fault of the machine: all rows are as they would be without it."""
    return Fault(name, run, options.pop("rows", ANYTHING), options.pop("code", 0), **options)


MACHINE = (
    machine_with(
        "little memory for every process",
        ways.behind(["prlimit", f"--as={1 << 30}"], "chaos.memory"),
        rows={"chaos.memory": ("broken", "MemoryError")},
        code=1,
    ),
    machine_with(
        "a control group whose memory runs out",
        ways.in_memory_group(500 << 20, "chaos.memory_used"),
        rows={"chaos.memory_used": ("unknown", "the kernel does so when memory runs out")},
        needs=ways.no_memory_groups,
    ),
    machine_with(
        "a fork bomb of a user with a limit of processes",
        ways.unprivileged(USER, ["--nproc=300"], "chaos.fork_bomb"),
        rows={"chaos.fork_bomb": ("broken", "still running after 1 s")},
        code=1,
        needs=ways.no_users,
    ),
    machine_with("a disk that is full", ways.mounted(FULL, "chaos.deaf"), needs=ways.no_mounts),
    Fault(
        "no file may be written",
        ways.behind(["prlimit", "--fsize=0"], "chaos.deaf"),
        dict.fromkeys(("fake.returned", "fake.stdin", "chaos.deaf"), ("unknown", "ulimit -f")),
        3,
    ),
    machine_with("a home that is read-only", ways.mounted(READ_ONLY, "chaos.deaf"), needs=ways.no_mounts),
    machine_with("no home", ways.plain("chaos.deaf", HOME="/nonexistent")),
    machine_with(
        "no folder that may be written to",
        ways.mounted(
            "mount --rbind / /mnt; mount -o remount,ro,bind /mnt; cd /mnt$PWD; "
            '''exec "$(PATH=$PATH:/usr/sbin command -v chroot)" /mnt "$@"''',
            "chaos.deaf",
        ),
        needs=ways.no_mounts,
    ),
    machine_with(
        "a wall clock that jumps",
        ways.jumping("fake.hang"),
        rows={"fake.hang": ("broken", "still running after 1 s")},
        code=1,
        needs=ways.no_compiler,
    ),
    machine_with(
        "the locale C without UTF-8",
        ways.behind([], "chaos.escapes", LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
        rows={"chaos.escapes": ("broken", "title")},
        code=1,
    ),
    machine_with(
        "streams in Latin-1",
        ways.behind([], "chaos.escapes", PYTHONIOENCODING="latin-1"),
        rows={"chaos.escapes": ("broken", "title")},
        code=1,
    ),
    machine_with(
        "a terminal that is resized",
        ways.resized("fake.hang"),
        rows={"fake.hang": ("broken", "still running after 1 s")},
        code=1,
    ),
    machine_with(
        "no /dev/shm", ways.mounted("mount -t tmpfs -o ro,size=4k none /dev/shm", "chaos.deaf"), needs=ways.no_mounts
    ),
    machine_with(
        "no /proc",
        ways.mounted("mount -t tmpfs none /proc", "chaos.import_hangs"),
        rows={"chaos.import_hangs": ("unknown", "still importing")},
        needs=ways.no_mounts,
    ),
    machine_with(
        "NVML that hangs",
        ways.with_nvml("hang", "chaos.deaf"),
        says="did not answer within",
        needs=ways.no_compiler,
        is_slow=True,
    ),
)

AS_USER = (
    Fault(
        "another user's probe that leaves deaf children without environment",
        ways.for_user("chaos.deaf"),
        {"chaos.deaf": ("works", "")},
        0,
        needs=acting_user.lack,
    ),
    Fault(
        "another user's probe that hangs with deaf children",
        ways.for_user("fake.hang"),
        {"fake.hang": ("broken", "still running after 1 s")},
        1,
        needs=acting_user.lack,
    ),
    Fault(
        "SIGTERM while another user's probe runs",
        ways.signalled(signal.SIGTERM, "chaos.waits", for_user=True),
        None,
        143,
        TERMINATED,
        needs=acting_user.lack,
    ),
    Fault(
        "SIGKILL while another user's probe runs",
        ways.signalled(signal.SIGKILL, "chaos.waits", for_user=True),
        None,
        -9,
        needs=acting_user.lack_of_looks,
    ),
)

BUILT = {"chaos.module_b": ("works", "")}
BUILDS = (
    Fault(
        "nvcc that is killed",
        ways.compiled("kill -9 $$"),
        {"chaos.module_a": ("unknown", "the machine stopped it"), **BUILT},
        0,
        needs=ways.no_ninja,
    ),
    Fault(
        "nvcc that hangs",
        ways.compiled("sleep 300", budget_s=90),
        {"chaos.module_a": ("unknown", "budget of 90 s"), **BUILT},
        0,
        needs=ways.no_ninja,
        is_slow=True,
        budget_s=90.0,
    ),
    Fault(
        "a lock of a build that is held by a live process",
        ways.compiled("true", "live"),
        {"chaos.module_a": ("unknown", "another process holds its lock"), **BUILT},
        0,
        needs=ways.no_ninja,
    ),
    Fault(
        "a lock of a build that is left by a dead process",
        ways.compiled("true", "dead"),
        {"chaos.module_a": ("works", ""), **BUILT},
        0,
        needs=ways.no_ninja,
    ),
)

SIGNALS = (
    stops("SIGINT while a probe runs", signal.SIGINT, 130, INTERRUPTED),
    stops("SIGTERM while a probe runs", signal.SIGTERM, 143, TERMINATED),
    stops("SIGTERM at the start", signal.SIGTERM, 143, TERMINATED, after_s=0.15),
    stops("SIGINT while the machine is read", signal.SIGINT, 130, INTERRUPTED, after_s=0.3),
    Fault("SIGTERM while the report is written", ways.unread(signal.SIGTERM, "fake.raised"), None, 143, TERMINATED),
    Fault("SIGINT while the report is written", ways.unread(signal.SIGINT, "fake.raised"), None, 130, INTERRUPTED),
    Fault("SIGKILL while a probe runs", ways.signalled(signal.SIGKILL, "chaos.waits"), None, -9),
    Fault("a stdout that is closed", ways.shell("exec >&-", "chaos.deaf"), None, 2, "stdout"),
    Fault("a reader that goes away", ways.unheard("fake.raised"), None, 1),
)

ALL = (*PROBES, *MACHINE, *AS_USER, *BUILDS, *SIGNALS)
