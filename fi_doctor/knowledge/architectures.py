"""Which architectures of models the releases of vLLM have, as far as they were read."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.errors import BrokenDoctorError
from fi_doctor.knowledge.decode import decode_list, read_yaml
from fi_doctor.model import Strict

_FILE = Path(__file__).parent / "data" / "architectures.yaml"


class _Range(Strict, frozen=True):
    since: str  # the first release that was read and has them
    until: str  # the last
    names: tuple[str, ...]


def lacks(name: str, vllm_version: str) -> str:
    """Why a release is not known to have an architecture, "vLLM 0.33.0 is not known to have ..."; "" where it is.

    It may serve one that it has not, by a plugin or by transformers' own code. A release before the first or behind the
    last that was read is taken to have what those have.
    """
    if not name:
        return "the model's configuration names no architecture"
    if (parsed := parse_version(vllm_version)) is None:
        return ""
    release = Version(parsed.base_version)
    ranges = _load()
    first = min((one.since for one in ranges), key=Version)
    last = max((one.until for one in ranges), key=Version)
    for one in ranges:
        is_since = one.since == first or Version(one.since) <= release
        is_until = one.until == last or release <= Version(one.until)
        if is_since and is_until and name in one.names:
            return ""
    return f"vLLM {vllm_version} is not known to have the architecture {name[:100]!r}"


@cache
def _load() -> list[_Range]:
    errors: list[str] = []
    found = decode_list(_Range, read_yaml(_FILE, _FILE.parent, errors), _FILE.name, errors)
    if errors or not found:
        raise BrokenDoctorError(f"{_FILE} cannot be used", why="\n       ".join(errors), todo="install fi-doctor anew")
    return found
