"""The server, which is waitress, and what it bounds: threads, connections, their silence, the size of a request.

Of connections that ask for nothing now, the one that was silent longest makes room for a new one, so that whoever opens
many and says nothing keeps nobody out. The time of a request counts from its first byte: one that comes in drops ends.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import waitress
from waitress.channel import HTTPChannel

if TYPE_CHECKING:
    import socket

    from fi_doctor.endpoint.answers import Endpoint

CONNECTIONS = 64  # at once
IDLE_S = 10  # of silence, or for a whole request
_THREADS = 4
_HEADER_BYTES = 16 << 10  # of the request line and all headers together
_BODY_BYTES = 1 << 10  # nothing is read of a body
_LEAST = 2  # connections without which nothing can be served
_SPARE = 12  # descriptors, for the report and for a check's pipes
_OWN = 2  # of the server's sockets: the one that listens and the one that wakes it


class Channel(HTTPChannel):  # type: ignore[misc] # waitress has no types
    """A connection; waitress closes it IDLE_S after its last activity, which what is sent in drops is not."""

    last_activity: float

    def __init__(self, server: Any, *rest: Any, **named: Any) -> None:
        super().__init__(server, *rest, **named)
        others = [one for one in server.active_channels.values() if one is not self]
        silent = [one for one in others if not one.requests]
        if silent and len(others) + _OWN + 1 >= self.adj.connection_limit:
            # Not will_close, which waits until the client reads.
            min(silent, key=lambda one: one.last_activity).handle_close()

    def handle_read(self) -> None:
        """Take what came; the clock of a request that had begun goes on."""
        before, since = self.request, self.last_activity
        super().handle_read()
        if before is not None and self.request is before:
            self.last_activity = since


def server(endpoint: Endpoint, door: socket.socket) -> Any:
    """A waitress server that answers at the socket while its run() runs.

    Errors: OSError (EMFILE) where this process may not open enough files.
    """
    logging.getLogger("waitress").setLevel(logging.ERROR)  # that requests and connections wait is no news
    limit = connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(list(Path("/proc/self/fd").iterdir())))
    made = waitress.create_server(
        endpoint,
        sockets=[door],
        ident="fi-doctor",
        threads=_THREADS,
        connection_limit=limit + _OWN,
        backlog=CONNECTIONS,
        channel_timeout=IDLE_S,
        cleanup_interval=IDLE_S // 4,
        max_request_header_size=_HEADER_BYTES,
        max_request_body_size=_BODY_BYTES,
        log_socket_errors=False,
        asyncore_use_poll=True,
    )
    made.channel_class = Channel
    return made


def connections(allowed: int, used: int) -> int:
    """How many there can be at once; a server that runs out of descriptors while it accepts would turn in vain.

    allowed: descriptors of this process, negative for any number. Errors: OSError (EMFILE).
    """
    room = CONNECTIONS if allowed < 0 else min(CONNECTIONS, allowed - used - _SPARE)
    if room < _LEAST:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return room
