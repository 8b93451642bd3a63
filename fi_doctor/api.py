"""fi-doctor for programs: `diagnose` checks a machine or judges a report anew, `load` reads a report, `plan` plans.

They return a `fi_doctor.model.Report` or `fi_doctor.model.plans.Plan`, write nothing to stdout and stderr, never end
the process, set no signal handler and may be called in any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from fi_doctor import knowing
from fi_doctor.cli import commands
from fi_doctor.cli.asked import Asked, begin_check
from fi_doctor.errors import UsageError
from fi_doctor.facts.remembered import memory_folder
from fi_doctor.model import Report
from fi_doctor.model.plans import Plan
from fi_doctor.processes import HOUSEHOLD
from fi_doctor.reports import document

PathLike = str | os.PathLike[str]


def diagnose(  # noqa: PLR0913 - the options of check
    *,
    python: PathLike | None = None,
    as_user: str | None = None,
    pid: int | None = None,
    from_: PathLike | None = None,
    example: str | None = None,
    as_recorded: bool = False,
    depth: Literal["static", "build", "run"] | None = None,
    budget: str | None = None,
    feature: str | Iterable[str] = (),
    require: str | Iterable[str] = (),
    fail_on: str | Iterable[str] = (),
    rows: Literal["all", "called"] | None = None,
    jobs: int | None = None,
    memory: str | None = None,
    fresh_cache: bool = False,
    binary: PathLike | Iterable[PathLike] = (),
    config: PathLike | None = None,
    model: PathLike | None = None,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: bool = False,
    kv_cache_dtype: str | None = None,
    env_file: PathLike | Iterable[PathLike] = (),
    manifest: PathLike | Iterable[PathLike] = (),
    vllm_args: str | None = None,
    prove: bool = False,
    prove_vllm: bool = False,
    target: str | None = None,
    knowledge: PathLike | None = None,
    tell: Callable[[str], None] | None = None,
) -> Report:
    """The report of `fi-doctor check` with the same options; `report.gate.code` is its exit code.

    An argument that is left out means what the option does, with two differences: no variable FI_DOCTOR_* is read, and
    no policy is looked for. `config` names one, and without it the gate is that of the arguments alone.

    python: the interpreter to examine, by default the one that runs this.
    depth: "static" takes about a second; None, as deep as the machine allows, may compile for minutes.
    budget: a time with its unit, "90s", "10m", "1h30m". memory: a size with its unit, "16g", "8192m". jobs: processes.
    feature, require, fail_on: words or globs as the options take them; rows that are left out are not looked at.
    from_, example: a report to be judged by today's knowledge instead of this machine; as_recorded keeps its verdicts.
    tp, pp, dp: numbers of GPUs, with model. target: a machine that is not here, "h200,driver=580".
    tell: is called with a line for what is set aside: a probe that cannot be used, a setting that cannot be judged.

    Files of the user's cache that remember what was read are written, and at depth build and run FlashInfer's JIT
    cache grows. Probes run in child processes, which are killed with all that they started; an orphan that clears its
    environment is not, since it could be any child of the program that calls.

    Several calls at once are safe, but each takes all CPUs and GPUs for itself, and times are then not those of one.
    Files, `os.environ` and the current folder must not change while it works.

    Errors: `fi_doctor.DoctorError`, with `what`, `why`, `todo` and the `exit_code` of the command: UsageError for
    arguments, which it names as options; DataError for a policy, a report or another file; TargetError for an
    interpreter that cannot be used; CannotTellError where nothing can be told. Anything else is a fault in fi-doctor.
    Source: the stages of `fi_doctor.pipeline.diagnose` and `rejudge`.
    """
    say = tell or _unsaid
    asked = Asked(
        python=_path(python),
        as_user=as_user,
        pid=pid,
        # Of a file by its whole path neither stdin nor an example is made.
        from_file=None if from_ is None else os.path.abspath(from_),  # noqa: PTH100 - a link stays one
        example=example,
        as_recorded=as_recorded,
        depth=depth,
        budget=budget,
        features=_words(feature),
        required=_words(require),
        fail_on=_words(fail_on),
        rows=rows,
        jobs=jobs,
        memory=memory,
        fresh_cache=fresh_cache,
        binaries=_words(binary),
        config=_path(config),
        no_config=config is None,
        model=_path(model),
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype,
        env_files=_words(env_file),
        manifests=_words(manifest),
        vllm_args=vllm_args,
        prove=prove,
        prove_vllm=prove_vllm,
        target=target,
        knowledge=_path(knowledge),
        quiet=True,
        is_called=True,
    )
    _check_words(asked)
    HOUSEHOLD.has_others = True
    asked, gathering = begin_check(asked, say)
    kb, specs = knowing.load(memory_folder(), None if knowledge is None else Path(knowledge))
    for spec in specs:
        if spec.fault:
            say(f"probe {spec.id} of {spec.origin} cannot be used: {spec.fault}")
    return commands.judge(asked, gathering, kb, specs)


def plan(  # noqa: PLR0913 - the options of plan
    *,
    to: str | Iterable[str],
    from_: PathLike | None = None,
    example: str | None = None,
    python: PathLike | None = None,
    require: str | Iterable[str] = (),
    env_file: PathLike | Iterable[PathLike] = (),
    manifest: PathLike | Iterable[PathLike] = (),
    vllm_args: str | None = None,
    knowledge: PathLike | None = None,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """The plan of `fi-doctor plan` with the same options; `plan.code` is its exit code.

    to: "b200,vllm=0.33.0". from_: where the move begins, as `to`, or the file of a report. It takes about a second, and
    some seconds where what is required is lost and what keeps it is looked for. Nothing is built or run.

    Errors: as `diagnose`.
    Source: the stages of `fi_doctor.moving.planning.plan`.
    """
    from fi_doctor.cli import planning  # noqa: PLC0415 - `diagnose` has no need of it

    say = tell or _unsaid
    asked = planning.AskedPlan(
        to=_words(to),
        source=_path(from_),
        example=example,
        python=_path(python),
        required=_words(require),
        env_files=_words(env_file),
        manifests=_words(manifest),
        vllm_args=vllm_args,
    )
    _check_words(asked)
    HOUSEHOLD.has_others = True
    folder = None if knowledge is None else Path(knowledge)
    return planning.made(asked, lambda: knowing.load(memory_folder(), folder), say)


def load(path: PathLike) -> Report:
    """The report in a file, JSON or YAML by its content, with the verdicts that it was written with.

    A report of an older minor version of the schema is read as far as it goes: what it lacks has the value that means
    "not told". Of a newer one what is not known here is left out, and unknown words of a closed set become "unknown".
    The file has 64 MiB at most, 8 MiB as YAML. `diagnose(from_=path)` judges it by today's knowledge.

    Errors: `fi_doctor.DoctorError` (DataError) where there is no such file, it is no report, or one of another major
    version.
    Source: `fi_doctor.reports.document`.
    """
    return document.read_file(Path(path))


def _check_words(asked: msgspec.Struct) -> None:
    """UsageError for a text that no command line and no name of a file can have."""
    values = msgspec.structs.asdict(asked).values()
    for word in (one for value in values for one in (value if isinstance(value, tuple) else (value,))):
        try:
            is_possible = not isinstance(word, str) or b"\0" not in os.fsencode(word)
        except UnicodeEncodeError:
            is_possible = False
        if not is_possible:
            why = "it has a character that no argument and no name of a file can have"
            raise UsageError(f"{word!r} cannot be taken", why=why, todo="leave that character out")


def _unsaid(line: str) -> None:
    del line


def _path(path: PathLike | None) -> str | None:
    return None if path is None else os.fspath(path)


def _words(given: PathLike | Iterable[PathLike]) -> tuple[str, ...]:
    """One word, or several."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    return tuple(os.fspath(one) for one in several)
