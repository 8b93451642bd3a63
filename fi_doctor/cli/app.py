"""The commands and their options. No decision lives here: each command hands over to fi_doctor.cli.commands."""

from __future__ import annotations

from typing import Annotated

import typer

from fi_doctor.cli import bundling, documents, exporting, fleet, linting, moving, publishing, scripts
from fi_doctor.cli.options import (
    AsRecorded,
    AsUser,
    Binary,
    Budget,
    BudgetOrNot,
    Config,
    DepthOption,
    Dp,
    EnvFile,
    Ep,
    Example,
    ExplainGate,
    FailOn,
    FeatureOption,
    ForIssue,
    Format,
    FreshCache,
    From,
    Frozen,
    Gentle,
    Jobs,
    JobsOrNot,
    Knowledge,
    KvCacheDtype,
    Locked,
    LockFile,
    Manifest,
    Memory,
    MemoryOrNot,
    Model,
    NoConfig,
    Output,
    Pid,
    Pp,
    Prove,
    ProveVllm,
    Python,
    Quiet,
    Redact,
    ReportDepth,
    Require,
    Rows,
    Target,
    Thorough,
    Tp,
    VllmArgs,
    WarmList,
    Watch,
)

app = typer.Typer(
    name="fi-doctor",
    no_args_is_help=True,
    add_completion=False,
    # Rich would double the time of --help and draws boxes into CI logs.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(scripts.app, name="probes")
app.add_typer(bundling.app, name="knowledge")
app.add_typer(fleet.app, name="fleet")


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Which FlashInfer kernels that vLLM would use work here, which do not and why, and what to set.

    Exit codes: 0 what was asked for holds, 1 measured and does not hold, 2 usage, 3 could not tell,
    4 a fault in fi-doctor.
    """
    if version:
        from fi_doctor import __version__

        typer.echo(f"fi-doctor {__version__}")
        raise typer.Exit(0)


@app.command()
def check(  # noqa: PLR0913 - the options of the main command
    *,
    lock: LockFile = None,
    locked: Locked = False,
    frozen: Frozen = False,
    thorough: Thorough = False,
    python: Python = None,
    as_user: AsUser = None,
    pid: Pid = None,
    from_: From = None,
    example: Example = None,
    as_recorded: AsRecorded = False,
    depth: DepthOption = None,
    budget: BudgetOrNot = None,
    feature: FeatureOption = None,
    require: Require = None,
    fail_on: FailOn = None,
    rows: Rows = None,
    jobs: JobsOrNot = None,
    memory: MemoryOrNot = None,
    fresh_cache: FreshCache = False,
    gentle: Gentle = False,
    binary: Binary = None,
    format_: Format = None,
    output: Output = None,
    redact: Redact = False,
    config: Config = None,
    no_config: NoConfig = False,
    explain_gate: ExplainGate = False,
    model: Model = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = False,
    kv_cache_dtype: KvCacheDtype = None,
    env_file: EnvFile = None,
    manifest: Manifest = None,
    vllm_args: VllmArgs = None,
    prove: Prove = False,
    prove_vllm: ProveVllm = False,
    target: Target = None,
    warm_list: WarmList = None,
    knowledge: Knowledge = None,
    quiet: Quiet = False,
    watch: Watch = False,
) -> int:
    """Build, run and check the kernels, print the matrix.

    The exit code says what was found: 0 what was asked for holds, 1 it does not, 3 could not tell.
    """
    from fi_doctor.cli.asked import Asked, begin_check, begin_locked

    asked = Asked(
        python=python,
        as_user=as_user,
        pid=pid,
        from_file=from_,
        example=example,
        as_recorded=as_recorded,
        depth=depth,
        budget=budget,
        features=tuple(feature or ()),
        required=tuple(require or ()),
        fail_on=tuple(fail_on or ()),
        rows=rows,
        jobs=jobs,
        memory=memory,
        fresh_cache=fresh_cache,
        gentle=gentle,
        binaries=tuple(binary or ()),
        formats=tuple(format_ or ()),
        output=output,
        redact=redact,
        config=config,
        no_config=no_config,
        explain_gate=explain_gate,
        quiet=quiet,
        is_watched=watch,
        model=model,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype,
        env_files=tuple(env_file or ()),
        manifests=tuple(manifest or ()),
        vllm_args=vllm_args,
        prove=prove,
        prove_vllm=prove_vllm,
        target=",".join(target) if target else None,
        warm_list=warm_list,
        knowledge=knowledge,
    )
    if lock is not None or locked or frozen or thorough:
        asked, quick = begin_locked(asked, lock, is_locked=locked, is_frozen=frozen, is_thorough=thorough)
        from fi_doctor.cli import locking

        return locking.check(asked, lock, quick, is_frozen=frozen, is_thorough=thorough)
    asked, gathering = begin_check(asked)
    from fi_doctor.cli import commands

    return commands.check(asked, gathering)


@app.command()
def report(  # noqa: PLR0913 - the options of a command
    *,
    yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML (the default).")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    for_issue: ForIssue = None,
    python: Python = None,
    as_user: AsUser = None,
    pid: Pid = None,
    from_: From = None,
    example: Example = None,
    as_recorded: AsRecorded = False,
    depth: ReportDepth = "static",
    budget: Budget = "10m",
    feature: FeatureOption = None,
    jobs: Jobs = 0,
    memory: Memory = "auto",
    fresh_cache: FreshCache = False,
    binary: Binary = None,
    model: Model = None,
    tp: Tp = None,
    pp: Pp = None,
    dp: Dp = None,
    ep: Ep = False,
    kv_cache_dtype: KvCacheDtype = None,
    env_file: EnvFile = None,
    manifest: Manifest = None,
    vllm_args: VllmArgs = None,
    prove: Prove = False,
    prove_vllm: ProveVllm = False,
    target: Target = None,
    knowledge: Knowledge = None,
    output: Output = None,
    redact: Redact = False,
    quiet: Quiet = False,
) -> int:
    """Write facts and verdicts to attach to a bug report.

    Exits 0 once it is written, whatever it says.
    """
    from fi_doctor.cli.asked import Asked, begin
    from fi_doctor.cli.outputs import report_format

    asked = Asked(
        python=python,
        as_user=as_user,
        pid=pid,
        from_file=from_,
        example=example,
        as_recorded=as_recorded,
        depth=depth,
        budget=budget,
        features=tuple(feature or ()),
        jobs=jobs,
        memory=memory,
        fresh_cache=fresh_cache,
        binaries=tuple(binary or ()),
        formats=(report_format(yaml=yaml, json=json, for_issue=for_issue),),
        output=output,
        redact=redact,
        quiet=quiet,
        model=model,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        kv_cache_dtype=kv_cache_dtype,
        env_files=tuple(env_file or ()),
        manifests=tuple(manifest or ()),
        vllm_args=vllm_args,
        prove=prove,
        prove_vllm=prove_vllm,
        target=",".join(target) if target else None,
        knowledge=knowledge,
    )
    asked, gathering = begin(asked)
    from fi_doctor.cli import commands

    return commands.report(asked, gathering, for_issue)


app.command()(documents.warm)
app.command()(exporting.env)
app.command()(documents.cache)
app.command()(documents.lock)
app.command()(documents.diff)
app.command()(moving.plan)
app.command()(publishing.serve)
app.command()(linting.lint)


app.command(context_settings={"ignore_unknown_options": True})(documents.explain)  # settings may begin with dashes
app.command()(documents.features)
app.command()(documents.schema)
