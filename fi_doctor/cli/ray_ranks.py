"""`fi-doctor fleet --collectives`: ranks are placed and run, or logs of NCCL read, and what came of it is written."""

from __future__ import annotations

import glob
from pathlib import Path

from fi_doctor.cli import emit, outputs, parse
from fi_doctor.cli.ray_nodes import grid, teller
from fi_doctor.cli.ray_options import AskedRay
from fi_doctor.cluster import collectives as running
from fi_doctor.errors import DataError, UsageError
from fi_doctor.reports import collectives as telling
from fi_doctor.reports.files import data_of

_USUAL_STEP_S = 60.0


def collectives(
    asked: AskedRay, size: tuple[int, int], logs: tuple[str, ...], targets: tuple[outputs.Target, ...]
) -> int:
    """Write what came of it; 0 all work, 1 one does not, 3 it could not be told. size: ranks of a stage, stages."""
    tp, pp = size
    outputs.check(targets)
    if logs:
        done = running.of_logs([(path, _text(path)) for word in logs for path in _paths(word)], tp, pp)
    else:
        step = asked.node_timeout
        limits = running.Asked(
            tp,
            pp,
            step_s=_USUAL_STEP_S if step is None else parse.duration_s(step, "--node-timeout"),
            wait_s=parse.duration_s(asked.wait, "--wait"),
        )
        if tp * pp == 1:
            raise UsageError(
                "--collectives: one rank has nobody to talk to", todo="fi-doctor fleet --collectives --tp 2"
            )
        with grid(asked) as found:
            done = running.run(found, limits, teller(asked))
    width, _ = emit.style()
    outputs.put(targets, lambda one: telling.render(done, one.form, width=width or 80))
    emit.say(f"fi-doctor: {done.reason} (exit {done.code})")
    return done.code


def _paths(word: str) -> list[str]:
    found = sorted(glob.glob(word)) or [word]  # noqa: PTH207 - as a shell has it
    return [path for path in found if Path(path).is_file()] or [word]


def _text(path: str) -> str:
    try:
        return data_of(Path(path)).decode("utf-8", "replace")
    except DataError as error:
        raise DataError(f"--nccl-log {path}: {error.why}", todo="name a file that is there") from error
