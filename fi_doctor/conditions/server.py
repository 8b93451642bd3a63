"""What conditions can ask about the process of --pid; nothing is known where none was named."""

from __future__ import annotations

import re
from collections.abc import Callable

from fi_doctor.conditions.leaves import Kind
from fi_doctor.conditions.relations import Relation
from fi_doctor.model import Facts, LoadedLibrary, Missing, Server
from fi_doctor.model.numbers import whole

_CUDART = re.compile(r"/libcudart(?:-[0-9a-f]+)?\.so\.(\d+)")
_MAX_FILES = "Max open files"


def _server(read: Callable[[Server], Relation]) -> Callable[[Facts], Relation]:
    return lambda facts: facts.server if isinstance(facts.server, Missing) else read(facts.server)


def _libraries(read: Callable[[tuple[LoadedLibrary, ...]], Relation]) -> Callable[[Facts], Relation]:
    return _server(lambda server: server.libraries if isinstance(server.libraries, Missing) else read(server.libraries))


def deleted_libraries(libraries: tuple[LoadedLibrary, ...]) -> Relation:
    """CUDA libraries that it still runs although their files were removed or replaced."""
    return tuple(library.path for library in libraries if library.deleted)


def several_cudarts(libraries: tuple[LoadedLibrary, ...]) -> Relation:
    """The CUDA run times of several majors that it has loaded at once."""
    found = {library.path: match[1] for library in libraries if (match := _CUDART.search(library.path))}
    return tuple(found) if len(set(found.values())) > 1 else ()


def open_files(server: Server) -> Relation:
    """How many files it may have open."""
    word = server.limits.get(_MAX_FILES, "").partition(" ")[0]
    number = whole(word)
    return () if number is None else (number,)


SUBJECTS: dict[str, tuple[Kind, Callable[[Facts], Relation]]] = {
    "server_pid": (Kind.NUMBER, _server(lambda server: (server.pid,))),
    "server_root": (Kind.TEXT, _server(lambda server: (server.root,))),
    "server_elsewhere": (
        Kind.FLAG,
        _server(lambda server: server.own_mounts if isinstance(server.own_mounts, Missing) else (server.own_mounts,)),
    ),
    "server_libraries_deleted": (Kind.TEXT, _libraries(deleted_libraries)),
    "server_cudarts": (Kind.TEXT, _libraries(several_cudarts)),
    "server_open_files": (Kind.NUMBER, _server(open_files)),
}
