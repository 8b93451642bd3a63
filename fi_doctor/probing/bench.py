"""What all processes of one run share."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fi_doctor.model import Facts, Request, Watch
from fi_doctor.probing.board import Board
from fi_doctor.probing.template import Template


class Cancelled(Exception):  # noqa: N818 - it is no fault
    """The whole run is being stopped."""


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """What they share."""

    facts: Facts
    request: Request
    watch: Watch
    environ: Mapping[str, str]
    scratch: Path | None  # where all caches are, when not in their usual places
    deadline: float  # time.monotonic() at which the budget is used up
    stop: threading.Event  # set when the run is being stopped
    talk: threading.Lock  # one thread at a time talks to the watch
    told_paths: threading.Event  # set once it was said that another FlashInfer is imported
    board: Board = msgspec.field(default_factory=Board)  # how the modules stand that are built beforehand
    template: Template | None = None  # what forks processes that need not import torch and flashinfer again


def forks(bench: Bench) -> bool:
    """Whether the template can fork, once it has imported; what is wrong with it is said once."""

    def gives_up() -> bool:
        if bench.stop.is_set():
            raise Cancelled
        return time.monotonic() >= bench.deadline

    if bench.template is None:
        return False
    if bench.template.is_ready(gives_up):
        return True
    with bench.talk:
        if complaint := bench.template.complain():
            bench.watch.note(complaint)
    return False
