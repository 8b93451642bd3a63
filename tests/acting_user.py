"""Another user than root, as whom children of a test are started, and folders that this user may enter."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fi_doctor import acting

UID, GID, GROUP = 61235, 61236, 61237  # nobody else's
ACCOUNT = acting.Account(UID, GID, (GROUP,))
SYSTEM = "/usr/local/bin:/usr/bin:/bin"


@functools.cache
def python():
    """An interpreter that this user can start, this one if it can be; "" where there is none."""
    found = filter(None, (sys.executable, shutil.which("python3", path=SYSTEM)))
    return next((path for path in found if _starts(path)), "")


@functools.cache
def lack():
    """Why no child can be started as that user; "" where it can."""
    return acting.obstacle(ACCOUNT) or ("" if python() else "no Python that other users can start")


@functools.cache
def lack_of_looks():
    """As lack, or why the environment of that user's processes cannot be read, by which they are found."""
    if lack():
        return lack()
    with subprocess.Popen([python(), "-c", "input()"], stdin=subprocess.PIPE, user=UID, group=GID) as child:
        try:
            Path(f"/proc/{child.pid}/environ").read_bytes()
        except OSError as error:
            return f"no CAP_SYS_PTRACE: {error}"
        finally:
            child.kill()
    return ""


@contextlib.contextmanager
def open_folder():
    """A temporary folder that everybody may enter, as the ones of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="acting-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def environ(**changes):
    """Variables with which a child is started as that user."""
    return {"PATH": os.environ["PATH"], acting.VARIABLE: acting.word_for(ACCOUNT), **changes}


def _starts(path):
    try:
        done = subprocess.run([path, "-I", "-S", "-c", ""], user=UID, group=GID, extra_groups=[], check=False)
    except OSError:
        return False
    return done.returncode == 0
