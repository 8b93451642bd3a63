"""Ray's driver: a cluster is found and entered, or it is said in bounded time why not."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shlex
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fi_doctor.errors import CannotTellError, UsageError
from fi_doctor.model.numbers import whole

CONNECT_S = 5.0
# RFC 9113: what a client says first, and an empty SETTINGS frame; a server answers with a SETTINGS frame (type 4).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_START_IT = "ray start --address=HEAD:6379 on a node, then fi-doctor fleet --address auto; or --address HEAD:6379"
_PORTS = "--address HOST:6379 for the port of `ray start --head`; --address ray://HOST:10001 for that of Ray's client"


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """The module ray, with this process as driver of a job of its own.

    Raises UsageError where Ray is not installed, or the address can be none; CannotTellError where there is no cluster,
    or one of another Ray or Python.
    """
    ray = _ray()
    if address.startswith("ray://"):
        target = address.removeprefix("ray://")
    else:
        target = address = _resolved(address)
    answers(target)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # A newer Ray warns where it is not set. A task without a GPU sees those that its node sees.
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say, the error says, too
                ray.init(address, log_to_driver=False, configure_logging=False, namespace="fi-doctor")
        except (RuntimeError, ConnectionError, ValueError, ImportError, OSError, SystemExit) as error:
            raise refusal(address, error) from error
        finally:  # Ray's own would end the process without killing what runs on the nodes
            for number, handler in handlers.items():
                signal.signal(number, handler)
        # A thread of Ray's prints what raylets complain of to stdout, which is the report's.
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield ray
    finally:
        ray.shutdown()


def answers(target: str, timeout_s: float = CONNECT_S) -> None:
    """Nothing, if whatever listens at HOST:PORT speaks HTTP/2, as all of Ray does; else CannotTellError says why.

    Ray itself would wait for 80 s for an address where nobody is. Over TLS nothing is said and nothing checked.
    """
    host, _, port = target.rpartition(":")
    if not host or "/" in host or not 0 < (whole(port) or 0) < 1 << 16:
        raise UsageError(
            f"--address {shlex.quote(target)}: no address of a Ray cluster",
            todo="--address auto, HOST:6379 (the port of `ray start --head`) or ray://HOST:10001",
        )
    what = f"no Ray cluster answers at {target}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as line:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return
            line.sendall(_PREFACE)
            said = _received(line, 9)
    except TimeoutError:
        raise CannotTellError(what, why=f"nothing was said within {timeout_s:g} s", todo=_START_IT) from None
    except OSError as error:
        raise CannotTellError(what, why=f"{error.strerror or error}", todo=_START_IT) from None
    if len(said) < 9 or said[3] != 4:
        why = f"what listens there is no Ray: it answered {said[:40]!r}" if said else "it closed the connection"
        raise CannotTellError(what, why=why, todo=_START_IT)


def refusal(address: str, error: BaseException) -> CannotTellError:
    """Ray's own error, and what to do about it."""
    words = " ".join(str(error).split())
    if "Version mismatch" in words or "version mismatch" in words.lower():
        return CannotTellError(
            f"the cluster at {address} has another Ray or another Python than {sys.executable}",
            why=words,
            todo="start fi-doctor with the Python of the cluster, on its head node or in its image",
        )
    if "ray[client]" in words:
        return CannotTellError("ray:// needs Ray's client", why=words, todo=_install("ray[client]"))
    why = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, ConnectionError):
        why, todo = f"{why}; {_told_port(address)}", _PORTS
    else:
        todo = _START_IT
    return CannotTellError(f"Ray cannot enter the cluster at {address}", why=why, todo=todo)


def _told_port(address: str) -> str:
    """Something listens there and does not answer as Ray: most often it is the other one of Ray's two ports."""
    if address.startswith("ray://"):
        return "something listens there, perhaps not the server of Ray's client (`ray start --head` has it at 10001)"
    return "something listens there, perhaps not what `ray start --head` starts (at 6379 unless --port is given)"


def _received(line: socket.socket, size: int) -> bytes:
    said = b""
    while len(said) < size and (part := line.recv(1024)):
        said += part
    return said


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            "fi-doctor fleet --address needs Ray",
            why=f"{error} (in {sys.executable})",
            todo=f"{_install('ray[client]')}, with the release of Ray that the cluster has; or fi-doctor fleet "
            "--reports FOLDER, which needs none",
        ) from error


def _install(what: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", what])


def _resolved(address: str) -> str:
    """HOST:PORT of "auto", as Ray finds it: RAY_ADDRESS, then the cluster that this host is a node of."""
    if address != "auto":
        return address
    if told := os.environ.get("RAY_ADDRESS", ""):
        return told.removeprefix("ray://") if told.startswith("ray://") else told
    services = importlib.import_module("ray._private.services")
    try:
        return str(services.canonicalize_bootstrap_address("auto"))
    except ConnectionError as error:
        raise CannotTellError(
            "no Ray cluster is found from this host",
            why=f"{' '.join(str(error).split())} RAY_ADDRESS is not set",
            todo=_START_IT,
        ) from error
