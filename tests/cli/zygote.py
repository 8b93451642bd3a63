"""Starts of the command without the start of an interpreter: a process that has imported it forks one for each.

    python zygote.py N

N is a stream socket. A request is one JSON line {"argv", "cwd", "environ"} with three files beside it, which
become stdin, stdout and stderr; the answers are the number of the process, then its exit status, a line each.
"""

import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import sys

MOST_BYTES = 1 << 20
NETWORK = ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def serve(channel):
    import_all()
    read_what_ships()
    sys.addaudithook(refuse_network)
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        while data and not data.endswith(b"\n"):
            data += channel.recv(MOST_BYTES)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            become(json.loads(data), files)
        for file in files:
            os.close(file)
        channel.sendall(b"%d\n" % pid)
        channel.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def refuse_network(event, args):
    """End the process that asks something of a network; sockets that are files of this machine are none.

    `serve` is told where to listen, and may ask what a name stands for.
    """
    if (
        event in NETWORK
        and sys.argv[1:2] != ["serve"]
        and not (event == "socket.connect" and isinstance(args[1], str | bytes))
    ):
        os.write(2, f"a network was asked: {event} {args[1:]}\n".encode())
        os._exit(86)


def import_all():
    """What the commands import when they need it."""
    import fi_doctor

    for found in pkgutil.walk_packages(fi_doctor.__path__, "fi_doctor."):
        if not found.name.startswith("fi_doctor.inside") and not found.name.endswith("__main__"):
            try:
                importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if error.name != "waitress":  # of an extra, which one command alone needs
                    raise


def read_what_ships():
    """What a command reads of the package itself is the same for each."""
    from fi_doctor import knowledge
    from fi_doctor.knowledge import registry, successors
    from fi_doctor.probing import catalog

    for holder, name in ((knowledge, "load"), (catalog, "discover")):
        setattr(holder, name, unless_asked(getattr(holder, name)))
    for owner in ("vllm", "sglang", "flashinfer-python"):
        registry.releases(owner)
    successors.load()


def unless_asked(read):
    """The same function, which has read already what it gives where it is not told what to read."""
    found = read()
    return lambda *given, **named: read(*given, **named) if given or named else found


def become(asked, files):
    """Be `python -m fi_doctor` as it is after its start."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", "surrogateescape")
    sys.stdout = opened(1, "surrogateescape")
    sys.stderr = opened(2, "backslashreplace")
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [one for one in path if one and one not in sys.path]
    sys.argv = ["fi-doctor", *asked["argv"]]
    from fi_doctor.__main__ import main

    main(asked["argv"])
    os._exit(70)  # it never returns


def opened(file, errors):
    """As the interpreter opens it, under a UTF-8 locale and where it is no terminal."""
    raw = io.FileIO(file, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=file == 2)


if __name__ == "__main__":
    sys.path.pop(0)
    serve(socket.socket(fileno=int(sys.argv[1])))
