"""`fi-doctor env`: the recommended settings alone, for a shell, a container or a command line."""

from __future__ import annotations

from typing import Annotated

import typer

from fi_doctor.cli.options import (
    AsUser,
    Budget,
    EnvFile,
    Example,
    FeatureOption,
    From,
    Jobs,
    Knowledge,
    Manifest,
    Memory,
    Output,
    Pid,
    Prove,
    Python,
    Quiet,
    ReportDepth,
    VllmArgs,
)


def env(  # noqa: PLR0913 - the options of a command
    *,
    format_: Annotated[
        str,
        typer.Option(
            "--format", "-f", metavar="FORMAT", help="shell, dotenv, docker, k8s, vllm-args, sglang-args or json."
        ),
    ] = "shell",
    optional: Annotated[
        bool, typer.Option("--optional", help="Also what turns on what works here and is off by default.")
    ] = False,
    sglang: Annotated[
        str | None,
        typer.Option("--sglang", metavar="VERSION", help="For this release of SGLang, as if it were installed."),
    ] = None,
    python: Python = None,
    as_user: AsUser = None,
    pid: Pid = None,
    from_: From = None,
    example: Example = None,
    depth: ReportDepth = "static",
    budget: Budget = "10m",
    feature: FeatureOption = None,
    jobs: Jobs = 0,
    memory: Memory = "auto",
    env_file: EnvFile = None,
    manifest: Manifest = None,
    vllm_args: VllmArgs = None,
    prove: Prove = False,
    knowledge: Knowledge = None,
    output: Output = None,
    quiet: Quiet = False,
) -> int:
    """The recommended settings alone, each with its reason.

    `eval "$(fi-doctor env)"` sets them; what is no variable is a comment. Of vllm-args only the words go to stdout, and
    the reasons to stderr: `vllm serve MODEL $(fi-doctor env --format vllm-args)`. Those of sglang-args are for the
    installed SGLang, or for the release that --sglang names. Settings that do nothing, or not what they say, are told
    on stderr. Exits 0 once it is written.
    """
    from msgspec.structs import replace

    from fi_doctor.cli import emit, parse
    from fi_doctor.cli.asked import Asked, begin
    from fi_doctor.reports import exports

    form = parse.choice(format_, exports.FORMS, "--format")
    if sglang is not None:
        parse.version(sglang, "--sglang")
    emit.check_writable(output)
    asked, gathering = begin(
        Asked(
            python=python,
            as_user=as_user,
            pid=pid,
            from_file=from_,
            example=example,
            depth=depth,
            budget=budget,
            features=tuple(feature or ()),
            jobs=jobs,
            memory=memory,
            quiet=quiet,
            env_files=tuple(env_file or ()),
            manifests=tuple(manifest or ()),
            vllm_args=vllm_args,
            prove=prove,
        )
    )
    from fi_doctor.cli import commands, installed

    kb, specs = installed.known(knowledge)
    report = commands.judge(asked, gathering, kb, specs)
    told: tuple[str, ...] = ()
    if sglang is not None:
        from fi_doctor.diagnosis import advice, called

        report = replace(report, recommendations=advice.advise_sglang(kb, report, sglang))
        if not any(called.Server("sglang", sglang).knows(feature) for feature in kb.features):
            told = (f"of SGLang {sglang} nothing is known, and nothing recommended",)
    done = exports.export(report, form, optional=optional)
    emit.write(done.text, output)
    for line in (*told, *done.told, *exports.settings_told(report.findings), *exports.disproved_told(report)):
        emit.say(line)
    return 0
