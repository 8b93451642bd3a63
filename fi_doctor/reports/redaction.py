"""Whose machine it was: taken out of what is shown to strangers, with whatever looks like a secret."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from fi_doctor.model import Missing, Report, secrets

# People's names in folders, serial numbers, addresses, names of hosts.
_HOME = re.compile(r"(?:/(?:home\d*|Users|users|scratch|u)/|\b[A-Za-z]:\\+Users\\+|(?<![\w/])~)([A-Za-z][^/\\\s:'\"]*)")
_SERIAL = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_ADDRESSES = (
    re.compile(r"(?<=://)[^/\s@]+@"),
    re.compile(r"\b[\w.+-]+@[\w.-]+"),
    re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}:\d+\b"),
    # A library may have a version of four numbers; none of what is told here begins like a private network.
    re.compile(r"(?<![\w.])(?:10|127|172\.(?:1[6-9]|2\d|3[01])|192\.168|169\.254)(?:\.\d{1,3}){2,3}(?![\w.])"),
    re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE),
    re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){1,7}:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?(?![\w:])", re.IGNORECASE),
    re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?![\w:])", re.IGNORECASE),
    re.compile(r"\b(?:[\w-]+\.)+(?:internal|local|lan|corp|intra|home|cluster)(?:\.[\w-]+)*\b"),
)
# Variables whose value is the name of a host, or of what belongs to somebody.
_HOST_VARIABLE = re.compile(
    r"(?:^|_)(?:IP|HOST|HOSTS|HOSTID|HOSTNAME|ADDR|ADDRESS|ENDPOINT|URL|URI|MASTER|NODE)(?:_|$)"
)
_LOGIN = re.compile(r"\b((?i:basic)\s+)[\w+/=.~-]{8,}")
_NAMES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME")  # variables that are a name of a person or a host
_COMMON = frozenset({"root", "user", "ubuntu", "localhost", "vllm", "nobody", "admin", "node", "gpu", "home", "docker"})
_Told = TypeVar("_Told", bound=msgspec.Struct)
_SHORTEST = 3  # characters of a name that is looked for wherever it stands


def redacted(text: str) -> str:
    """The text without what looks like names of people and hosts, serial numbers of GPUs, addresses and secrets."""
    return _redacted(text, _people(text), {})


def redact(report: Report, environ: Mapping[str, str]) -> Report:
    """The report without names of people and hosts, addresses and serial numbers; each GPU keeps a number.

    environ: the variables of this process, which name its user and its host.
    """
    return without_names(report, host_names(report.facts.system.hostname), environ)


def without_names(record: _Told, hosts: Iterable[str], environ: Mapping[str, str]) -> _Told:
    """The same of whatever is told; hosts: what machines are called in it."""
    plain = msgspec.to_builtins(record)
    texts = tuple(_texts(plain))
    whole = "\n".join(texts)  # of thousands of machines few are named in it
    names = {*_own_names(environ), *hosts, *(name for text in texts for name in _people(text))}
    return msgspec.convert(_everywhere(plain, frozenset(name for name in names if name in whole), {}), type(record))


def host_names(host: str | Missing) -> Iterator[str]:
    """What a machine of this name is called: the whole name and that without its domain, unless it is a common word."""
    if isinstance(host, str):
        found = (host, host.partition(".")[0])
        yield from (name for name in found if len(name) >= _SHORTEST and name.lower() not in _COMMON)


def names_host(variable: str) -> bool:
    """Whether the value of a variable of this name tells of a host, or of what belongs to somebody."""
    return _HOST_VARIABLE.search(variable) is not None


def _own_names(environ: Mapping[str, str]) -> Iterator[str]:
    found = [environ.get(name, "") for name in _NAMES]
    found += [os.uname().nodename, socket.gethostname(), socket.gethostname().partition(".")[0]]
    try:
        entry = pwd.getpwuid(os.getuid())
        found += [entry.pw_name, *entry.pw_gecos.split(",")[:1]]
    except KeyError:
        pass
    return (name for name in found if len(name) >= _SHORTEST and name.lower() not in _COMMON)


def _people(text: str) -> set[str]:
    return {name for name in _HOME.findall(text) if len(name) >= _SHORTEST}


def _redacted(text: str, names: set[str] | frozenset[str], serials: dict[str, str]) -> str:
    text = _HOME.sub("~", text)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(name)}\d*(?![\w.])", "<user>", text)
    text = _LOGIN.sub(r"\1<hidden>", secrets.hidden(text))
    for address in _ADDRESSES:
        text = address.sub("<address>", text)
    return _SERIAL.sub(lambda found: serials.get(found[0], f"{found[1]}-<serial>"), text)


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, one in value.items():
                yield from _texts(key)
                yield from _texts(one)
        case list() | tuple():
            for one in value:
                yield from _texts(one)


def _everywhere(value: object, names: frozenset[str], serials: dict[str, str]) -> object:
    match value:
        case str():
            for found in _SERIAL.finditer(value):
                serials.setdefault(found[0], f"{found[1]}-<serial-{len(serials) + 1}>")
            return _redacted(value, names, serials)
        case dict():
            return {
                _everywhere(key, names, serials): secrets.HIDDEN
                if isinstance(key, str) and isinstance(one, str) and key.isupper() and names_host(key)
                else _everywhere(one, names, serials)
                for key, one in value.items()
            }
        case list() | tuple():
            return [_everywhere(one, names, serials) for one in value]
    return value
