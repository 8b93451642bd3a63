"""`fi-doctor serve`: what it was asked for, and the server, which waitress is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fi_doctor.cli.options import Config, FailOn, FeatureOption, Knowledge, NoConfig, Python, Require, Rows

if TYPE_CHECKING:
    import socket

    from fi_doctor.endpoint.sources import Source

_PORT = 8474
_BACKLOG = 64  # connections that wait to be taken
_OF_CHECKS = (
    *("--lock", "--python", "--config", "--no-config", "--feature", "--require", "--fail-on", "--rows", "--knowledge"),
)


def serve(  # noqa: PLR0913 - the options of a command
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Serve this report, read again whenever it is written anew."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Or check this machine at depth static, now and then, as 10m."),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age",
            metavar="TIME",
            help="A check that is older is no good health. [default: none; with --every twice that and 2m]",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where it listens: for this machine alone.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")] = _PORT,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="On loopback: also answer to this Host; may be repeated."),
    ] = None,
    lock: Annotated[
        str | None,
        typer.Option("--lock", metavar="FILE", help="With --every: what this lock proves, while nothing has changed."),
    ] = None,
    python: Python = None,
    config: Config = None,
    no_config: NoConfig = False,
    feature: FeatureOption = None,
    require: Require = None,
    fail_on: FailOn = None,
    rows: Rows = None,
    knowledge: Knowledge = None,
) -> int:
    """Serve the last report over HTTP, read-only.

    /healthz (200 where the gate holds, else 503 and why), /report.json, /metrics (Prometheus), / (HTML). Ends by a
    signal: 143 after SIGTERM, 130 after Ctrl-C. Needs the package waitress.
    """
    from fi_doctor.cli import parse
    from fi_doctor.errors import UsageError

    values = (lock, python, config, no_config, feature, require, fail_on, rows, knowledge)
    given: dict[str, object] = dict(zip(_OF_CHECKS, values, strict=True))
    named = [option for option, value in given.items() if value]
    if (from_ is None) == (every is None):
        raise UsageError(
            "--from or --every: one of them says what is served", todo="fi-doctor serve --from report.json"
        )
    if from_ in ("", "-"):
        raise UsageError(
            f"--from: {from_!r} is no file that is written anew", todo="fi-doctor serve --from report.json"
        )
    if from_ is not None and named:
        raise UsageError(f"{named[0]}: nothing is checked with --from", todo="leave one of the two out")
    every_s = None if every is None else parse.duration_s(every, "--every")
    max_age_s = None if max_age is None else parse.duration_s(max_age, "--max-age")
    if max_age_s is None and every_s is not None:
        max_age_s = 2 * every_s + 120
    words = tuple(word for option, value in given.items() for word in _words(option, value))
    return _serve(from_, words, every_s, max_age_s, host, port, tuple(name or ()))


def _words(option: str, value: object) -> tuple[str, ...]:
    """The option as the check that is started takes it."""
    if value in (None, False, True):
        return (option,) if value else ()
    if option == "--lock":  # at depth static nothing is measured, as with --frozen
        return (str(value), "--locked")
    several = value if isinstance(value, list) else [value]
    return tuple(word for one in several for word in (option, str(one)))


def _serve(  # noqa: PLR0913, PLR0917 - what serve settles
    path: str | None,
    words: tuple[str, ...],
    every_s: float | None,
    max_age_s: float | None,
    host: str,
    port: int,
    names: tuple[str, ...],
) -> int:
    import queue
    import threading
    from pathlib import Path

    from fi_doctor.cli import emit
    from fi_doctor.endpoint import sources
    from fi_doctor.endpoint.answers import Endpoint
    from fi_doctor.errors import UsageError

    _check_waitress()
    from fi_doctor.endpoint import listening

    door = _bound(host, port)
    ends: queue.Queue[str] = queue.Queue()
    source: Source
    if path is not None:
        source = sources.File(Path(path))
    else:
        source = sources.Checks(words, every_s or 0, ends.put)
        source.begin()
    address = door.getsockname()[0]
    hosts = _hosts(address, host, names)
    endpoint = Endpoint(source, hosts=hosts, max_age_s=max_age_s)
    threading.Thread(target=listening.server(endpoint, door).run, daemon=True).start()
    shown = f"[{address}]" if ":" in address else address
    to = " to whoever reaches it" if hosts is None else ""
    emit.say(f"fi-doctor: serving {path or 'static checks'} at http://{shown}:{door.getsockname()[1]}/{to}")
    # The server's own loop would take a signal for the wish to wait for answers that are under way.
    raise UsageError("the check cannot be made as it is asked for", why=ends.get(), todo="fi-doctor serve --help")


def _check_waitress() -> None:
    import importlib.util
    import shlex
    import sys

    from fi_doctor.errors import UsageError

    if importlib.util.find_spec("waitress") is None:
        raise UsageError(
            "serve needs the package waitress, an HTTP server", why="it is not installed with fi-doctor by default",
            todo=shlex.join([sys.executable, "-I", "-m", "pip", "install", "waitress>=3.0.1"]),
        )  # fmt: skip


def _bound(host: str, port: int) -> socket.socket:
    """A socket that listens there. Errors: UsageError where nothing can."""
    import os
    import socket

    from fi_doctor.errors import UsageError

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(found[4][:2], family=found[0], backlog=_BACKLOG)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
        why = os.strerror(number) if number else str(error)
        raise UsageError(
            f"nothing can listen at {host} port {port}", why=why, todo="--port 0 takes a free one"
        ) from error


def _hosts(address: str, host: str, names: tuple[str, ...]) -> frozenset[str] | None:
    """The names under which it is asked where only this machine can ask; None where others may, by any name."""
    import ipaddress

    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", address, host.lower(), *map(str.lower, names)})
