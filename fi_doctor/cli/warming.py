"""`fi-doctor warm`: the pipeline is called, what it did is written."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Iterator

from fi_doctor import filling
from fi_doctor.cli import emit, installed, parse
from fi_doctor.cli.asked import AskedWarm
from fi_doctor.cli.commands import listed_features
from fi_doctor.errors import DataError, UsageError
from fi_doctor.facts import Gathering
from fi_doctor.model import Depth, Request, Silent, Watch
from fi_doctor.reports import warming
from fi_doctor.reports.files import data_of

_WRITES = "fi-doctor check --target h100 --warm-list warm.txt"


def warm(asked: AskedWarm, gathering: Gathering) -> int:
    """Fill the cache, or say what that takes, and write it; a signal leaves what was finished where it is."""
    kb, specs = installed.known()
    rows = features(asked, tuple(one.id for one in listed_features(kb, specs)))
    if asked.listed is not None and not rows:
        emit.say(f"fi-doctor: {asked.listed} names no row: nothing is to be compiled (exit 0)")
        return 0
    request = Request(
        depth=Depth.BUILD,
        features=rows,
        budget_s=parse.duration_s(asked.budget, "--budget"),
        jobs=asked.jobs,
        memory_mib=parse.memory_mib(asked.memory, "--memory"),
        gentle=asked.gentle,
        typed=_typed(asked),
    )
    try:
        with _progress(quiet=asked.quiet) as watch:
            done = filling.warm(
                request,
                is_all=asked.is_all,
                is_dry=asked.is_dry,
                is_forced=asked.is_forced,
                kb=kb,
                specs=specs,
                gathering=gathering,
                watch=watch,
            )
    except KeyboardInterrupt:
        if not asked.is_dry:
            emit.say("fi-doctor: what was finished is kept; the same command goes on from there")
        raise
    width, _ = emit.style()
    emit.write(warming.to_json(done) if asked.is_json else warming.render(done, width=width), None)
    emit.say(f"fi-doctor: {warming.verdict(done)} (exit {done.code})")
    return done.code


def features(asked: AskedWarm, known: tuple[str, ...]) -> tuple[str, ...]:
    """The rows that are named, on the command line or in a file of lines, of which those with # are none."""
    if asked.listed is None:
        return parse.names(asked.features, known, "--feature")
    try:
        lines = data_of(pathlib.Path(asked.listed)).decode("utf-8").splitlines()
    except (DataError, UnicodeDecodeError) as error:
        why = error.why if isinstance(error, DataError) else str(error)
        raise UsageError(f"--list: {asked.listed} cannot be read", why=why, todo=_WRITES) from error
    named = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return parse.names(named, known, f"--list {asked.listed}")


def _typed(asked: AskedWarm) -> dict[str, str]:
    """What is no default."""
    usual = AskedWarm()
    words = (("--memory", asked.memory, usual.memory), ("--budget", asked.budget, usual.budget))
    return {name: value for name, value, default in words if value != default}


@contextlib.contextmanager
def _progress(*, quiet: bool) -> Iterator[Watch]:
    if quiet:
        yield Silent()
        return
    with warming.WarmProgress(sys.stderr, is_terminal=sys.stderr.isatty()) as progress:
        yield progress
