"""Ranks of the all-to-all probe, forked from here in place of started: torch is imported once for all of them."""

import importlib
import io
import os
import runpy
import subprocess
import sys
import traceback
import types
import warnings


def instead_of_subprocess(path):
    """What the probe uses of subprocess; path: the folder from which a rank imports first."""
    importlib.import_module("torch.distributed")
    importlib.import_module("torch").set_num_threads(1)  # a pool of threads would be missed in the fork
    names = ("PIPE", "STDOUT", "TimeoutExpired")
    return types.SimpleNamespace(
        Popen=lambda words, **options: _Forked(words, path, **options),
        **{name: getattr(subprocess, name) for name in names},
    )


class _Forked(subprocess.Popen):
    """A child that does what `python FILE WORDS` does once it has started; all else is a Popen's."""

    def __init__(self, words, path, *, stdin, stdout, stderr, env):
        assert (words[0], stdin, stderr) == (sys.executable, subprocess.PIPE, subprocess.STDOUT)
        self._become = words[1:], path, stdout.fileno(), env
        super().__init__(words, stdin=stdin, stdout=stdout, stderr=stderr, env=env)

    def _execute_child(self, *given):
        """As the standard library's: by its 12th argument stdin is read, by the next it is written."""
        read, self._child_created = given[10], True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads that only wait, as those of xdist
            self.pid = os.fork()
        if self.pid == 0:
            _become(read, *self._become)
        os.close(read)


def _become(read, words, path, log, environ):
    status = 1
    try:
        for number, file in enumerate((read, log, log)):
            os.dup2(file, number)
        os.closerange(3, 1 << 20)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - a descriptor
        for name, number in (("stdout", 1), ("stderr", 2)):
            raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - a descriptor
            setattr(sys, name, io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True))
        os.environ.clear()
        os.environ.update(environ)
        for name in [name for name in sys.modules if name.partition(".")[0] == "flashinfer"]:
            del sys.modules[name]
        sys.path.insert(0, str(path))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
        status = 0
    except BaseException:  # noqa: BLE001 - nothing goes on into the code of the tests
        traceback.print_exc()
    finally:
        os._exit(status)
