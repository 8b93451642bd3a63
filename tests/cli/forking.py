"""The command without the start of an interpreter, which costs more than most of what it is asked here."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

SERVER = pathlib.Path(__file__).with_name("zygote.py")
LIMIT_S = 120


class Forked:
    """`python -m fi_doctor`, forked from a process that has imported it: see zygote.py."""

    def __init__(self, environ):
        self._channel, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, SERVER, str(theirs.fileno())]
            self._server = subprocess.Popen(argv, env=environ, pass_fds=[theirs.fileno()])
        self._answers = self._channel.makefile("r")

    def __call__(self, argv, environ, cwd, data, stdout=None):
        """Run it to its end; stdout and stderr as text. stdout: a descriptor that it has in place of ours."""
        asked = json.dumps({"argv": argv, "environ": environ, "cwd": str(cwd)})
        (stdin, words), (said, ours), (told, stderr) = (os.pipe() for _ in range(3))
        socket.send_fds(self._channel, [asked.encode() + b"\n"], [stdin, ours if stdout is None else stdout, stderr])
        for file in (stdin, ours, stderr):
            os.close(file)
        pid = int(self._answers.readline())
        late = threading.Timer(LIMIT_S, os.kill, (pid, signal.SIGKILL))
        late.start()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            pool.submit(_write, words, data)
            out, err = pool.map(_read, (said, told))
        code = int(self._answers.readline())
        late.cancel()
        return subprocess.CompletedProcess(argv, code, out if stdout is None else None, err)

    def close(self):
        self._answers.close()
        self._channel.close()
        self._server.wait()


def _write(file, data):
    with contextlib.suppress(BrokenPipeError), os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(data)


def _read(file):
    with os.fdopen(file, encoding="utf-8") as stream:
        return stream.read()
