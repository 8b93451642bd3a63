"""What stands beside a report and is not in it: texts behind ids, addresses of pages, the files that asked for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Anchor(NamedTuple):
    """A file on which results are placed."""

    uri: str  # relative to the repository that it lies in, with "/"; else an address, file:///...
    lines: Mapping[str, int] = {}  # key, "fail-on" or "require.moe.*" -> its line, from 1


class Beside(NamedTuple):
    """All of it; formats that need none of it leave it alone."""

    texts: Mapping[str, str] = {}  # id of a finding, or a verdict -> what `fi-doctor explain ID` prints
    pages: Mapping[str, str] = {}  # id -> address of the page that says the same
    anchor: Anchor | None = None  # the policy, or without one the lock


NOTHING = Beside()
