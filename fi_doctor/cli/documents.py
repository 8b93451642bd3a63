"""The options of `lock`, `warm`, `diff`, `cache`, `explain`, `features` and `schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from fi_doctor.cli.options import (
    Budget,
    Example,
    FeatureOption,
    From,
    Gentle,
    Jobs,
    Knowledge,
    Memory,
    Output,
    Python,
    Quiet,
)


def lock(  # noqa: PLR0913 - the options of a command
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="What a report of this machine has proved ('-' reads stdin)."),
    ] = None,
    python: Python = None,
    budget: Budget = "10m",
    feature: FeatureOption = None,
    jobs: Jobs = 0,
    memory: Memory = "auto",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write what was proved.")
    ] = "fi-doctor.lock",
    quiet: Quiet = False,
) -> int:
    """Check, and write down what was proved and what it rests on.

    With --from: what a report of this machine has proved, if the interpreter that it names (or --python) is still as
    it was. Exits 0 once it is written, 3 when nothing was proved.
    """
    from fi_doctor.cli.asked import Asked, begin_lock

    asked = Asked(
        python=python,
        from_file=from_,
        budget=budget,
        features=tuple(feature or ()),
        jobs=jobs,
        memory=memory,
        output=output,
        quiet=quiet,
    )
    asked, gathering = begin_lock(asked)
    from fi_doctor.cli import locking

    return locking.lock(asked, gathering)


def warm(  # noqa: PLR0913 - the options of a command
    *,
    feature: FeatureOption = None,
    all_: Annotated[bool, typer.Option("--all", help="The modules of every row, with all its variants.")] = False,
    list_: Annotated[
        str | None, typer.Option("--list", metavar="FILE", help="The rows in this file, of check --warm-list.")
    ] = None,
    jobs: Jobs = 0,
    memory: Memory = "auto",
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Bound on it all; what does not fit is not begun.")
    ] = "8h",
    gentle: Gentle = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be compiled, and what that takes.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where it is known to come to nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    python: Python = None,
    quiet: Quiet = False,
) -> int:
    """Compile beforehand what a server would.

    FlashInfer's own cache is filled, so that a first start compiles nothing. Without --feature and --all: what vLLM
    calls by default on this GPU. What is there is not compiled again.

    Exit codes: 0 all is there, 1 something failed or was not begun, 3 nothing can be compiled here, or in vain.
    """
    from fi_doctor.cli.asked import AskedWarm, begin_warm

    asked = AskedWarm(
        python=python,
        features=tuple(feature or ()),
        listed=list_,
        is_all=all_,
        jobs=jobs,
        memory=memory,
        budget=budget,
        is_dry=dry_run,
        is_forced=anyway,
        gentle=gentle,
        is_json=json,
        quiet=quiet,
    )
    gathering = begin_warm(asked)
    from fi_doctor.cli import warming

    return warming.warm(asked, gathering)


def cache(  # noqa: PLR0913 - the options of a command
    *,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove modules that are poisoned or stale, after saying which.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --prune: only say what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: do not ask.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="A line for every module, also those that are well.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML.")] = False,
    python: Python = None,
) -> int:
    """What is in FlashInfer's JIT cache, and what of it is bad.

    Poisoned: it would be taken and cannot be loaded. Stale: built otherwise than would be done today. Nothing is
    compiled, and what other versions of FlashInfer left is listed and never removed.

    Exit codes: 0 nothing is bad or all that was is removed, 1 something is bad, 3 there is no FlashInfer.
    """
    from fi_doctor.cli import caching

    return caching.cache(
        caching.AskedCache(
            python=python,
            prunes=prune,
            is_dry=dry_run,
            is_sure=yes,
            is_whole=all_,
            is_json=json,
            is_yaml=yaml,
        )
    )


def diff(  # noqa: PLR0913 - the options of a command
    *,
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A report that was written as YAML or JSON, or an example.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="[AFTER]", help="Another one; '-' reads stdin. Left out: a check of this machine, now."),
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Build and run nothing: facts, and what is known from them alone.")
    ] = False,
    as_recorded: Annotated[bool, typer.Option("--as-recorded", help="The verdicts as they were, not today's.")] = False,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT[:PATH]",
            help="console, json or markdown; may be repeated, one of them without a path. Default: by the ending of "
            "--output, else console.",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the difference here, not to stdout.")
    ] = None,
    exit_code: Annotated[
        bool,
        typer.Option(
            "--exit-code",
            help="Exit 1 when any row differs in verdict, evidence or scope, to the better too; 3 when there is no "
            "row to compare; else 0, as always without it.",
        ),
    ] = False,
    python: Python = None,
    quiet: Quiet = False,
) -> int:
    """What differs between two reports, or since one.

    Verdicts come first, each with what can be the cause: of the facts that differ those that the row can rest on, the
    fewest and closest first. Then all facts, then findings. With BEFORE alone this machine is checked as deep as that
    report was, where it can be, for the same rows.
    """
    from fi_doctor.cli import differing

    asked = differing.AskedDiff(
        before=before,
        after=after,
        is_static=static,
        as_recorded=as_recorded,
        formats=tuple(format_ or ()),
        output=output,
        has_exit_code=exit_code,
        python=python,
        quiet=quiet,
    )
    return differing.diff(asked)


def explain(  # noqa: PLR0913 - the options of a command
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID | FILE ...", help="An id, or logs ('-' reads stdin)."),
    ] = None,
    *,
    env_file: Annotated[
        list[str] | None,
        typer.Option("--env-file", metavar="FILE", help="Of its machine: collect-env, pip list, a report; repeatable."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="All ids, by kind.")] = False,
    here: Annotated[bool, typer.Option("--here", help="The log is of this machine: read its facts, too.")] = False,
    python: Python = None,
    format_: Annotated[
        list[str] | None,
        typer.Option("--format", "-f", metavar="FORMAT[:PATH]", help="console, json or markdown; may be repeated."),
    ] = None,
    knowledge: Knowledge = None,
    output: Output = None,
) -> int:
    """What an id means, or a log tells.

    Of a log: the cause, how sure it is, and what mends it. An id is of a finding, row, probe, fault, family of faults
    or verdict. A name with a slash, or that ends as a log does, is a file.

    Exit codes: 0 a cause is named or no error is told, 2 a file cannot be read (of several, the answer is that of the
    others) or the command line is wrong, 3 there is an error and no cause, nothing to read, or no cause
    in what could be read of a damaged file.
    """
    from fi_doctor.cli import explaining

    asked = explaining.AskedExplain(
        names=tuple(names or ()),
        is_list=list_,
        env_files=tuple(env_file or ()),
        is_here=here,
        python=python,
        formats=tuple(format_ or ()),
        output=output,
        knowledge=knowledge,
    )
    return explaining.explain(asked)


def features(  # noqa: PLR0913 - the options of a command
    *,
    missing: Annotated[bool, typer.Option("--missing", help="Only what is missing somewhere, and where.")] = False,
    calls: Annotated[
        bool, typer.Option("--calls", help="How vLLM calls FlashInfer: what does not fit, what cannot be told.")
    ] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="The rows of the matrix, and what each release of vLLM does with them.")
    ] = False,
    python: Python = None,
    from_: From = None,
    example: Example = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="console|json|markdown", help="How to write it.")
    ] = "console",
    knowledge: Knowledge = None,
    output: Output = None,
) -> int:
    """What a complete backend needs, and what is there.

    For each operator: whether the installed FlashInfer has it, where the installed vLLM calls it, and whether it works
    here, by a report or a static look. Exits 0 once it is written; --missing and --calls exit 3 where nothing can be
    told.
    """
    from fi_doctor.cli import covering

    asked = covering.AskedFeatures(
        only_missing=missing,
        is_calls=calls,
        is_rows=rows,
        python=python,
        from_file=from_,
        example=example,
        form=format_,
        output=output,
        knowledge=knowledge,
    )
    return covering.features(asked)


def schema(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="report, difference, policy, lock, coverage, cache, explain, plan, fleet."),
    ],
) -> int:
    """The JSON Schema of what fi-doctor writes or reads."""
    from fi_doctor.cli import schemas

    return schemas.schema(name)
