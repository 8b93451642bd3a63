"""What all processes of one run share."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fi_doctor.model import Facts, PlannedProbe, Request, Watch
from fi_doctor.probing import surroundings, template
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


@contextlib.contextmanager
def opened(
    tried: Sequence[PlannedProbe], *, facts: Facts, request: Request, watch: Watch, environ: Mapping[str, str]
) -> Iterator[Bench]:
    """What the processes for these probes share, for request.budget_s from now on; its folders go afterwards."""
    with (
        surroundings.scratch(facts, request, environ) as base,
        surroundings.own_folder(environ) as variables,
        template.started(tried, facts, variables, base) as forker,
    ):
        yield Bench(
            facts=facts,
            request=request,
            watch=watch,
            environ=variables,
            scratch=base,
            deadline=time.monotonic() + request.budget_s,
            stop=threading.Event(),
            talk=threading.Lock(),
            told_paths=threading.Event(),
            template=forker,
        )


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
