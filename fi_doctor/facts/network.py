"""Whether anything could be downloaded, told without asking the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fi_doctor.facts.files import is_file, is_folder, read_text
from fi_doctor.model import FlashInfer, Missing, Network

_NO_DOWNLOAD = "FLASHINFER_NO_DOWNLOAD"  # any value, from 0.6.7.post1 on: jit/cubin_loader.py get_artifact
_REPOSITORY = "FLASHINFER_CUBINS_REPOSITORY"
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_UP, _REJECT = 0x1, 0x200  # RTF_UP, RTF_REJECT in linux/route.h
_NOWHERE = "0" * 32


def read_network(
    flashinfer: FlashInfer | Missing, environ: Mapping[str, str], proc: Path = Path("/proc/self")
) -> Network:
    """What routes and variables say. proc: the folder of the process whose network it is."""
    return Network(
        default_route=_read_default_route(proc),
        proxies=tuple(name for name in _PROXIES if environ.get(name)),
        no_download=_no_download(flashinfer, environ),
        repository_is_local=_is_there(environ.get(_REPOSITORY, "")),
    )


def has_default_route(route: str, ipv6_route: str) -> bool:
    """Whether one of the tables /proc/net/route and /proc/net/ipv6_route leads out; lo leads nowhere."""
    for line in route.splitlines()[1:]:
        words = line.split()
        if len(words) >= 8 and words[1] == words[7] == "00000000" and _leads_out(words[3]):
            return True
    for line in ipv6_route.splitlines():
        words = line.split()
        if len(words) == 10 and words[:2] == [_NOWHERE, "00"] and words[9] != "lo" and _leads_out(words[8]):
            return True
    return False


def _leads_out(flags: str) -> bool:
    try:
        return bool(int(flags, 16) & _UP) and not int(flags, 16) & _REJECT
    except ValueError:
        return False


def _is_there(path: str) -> bool:
    return bool(path) and (is_file(path) or is_folder(path))


def _read_default_route(proc: Path) -> bool | Missing:
    tables = [read_text(proc / "net" / name) for name in ("route", "ipv6_route")]
    first = tables[0]
    if isinstance(first, Missing):
        return first
    return has_default_route(*("" if isinstance(table, Missing) else table for table in tables))


def _no_download(flashinfer: FlashInfer | Missing, environ: Mapping[str, str]) -> str:
    """That the installed FlashInfer reads the variable, and it is set."""
    if isinstance(flashinfer, Missing) or not environ.get(_NO_DOWNLOAD):
        return ""
    source = read_text(Path(flashinfer.root) / "jit/cubin_loader.py")
    return f"{_NO_DOWNLOAD} is set" if isinstance(source, str) and _NO_DOWNLOAD in source else ""
