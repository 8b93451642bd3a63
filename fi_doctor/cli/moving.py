"""The options of `plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from fi_doctor.cli.options import EnvFile, Example, Knowledge, Manifest, Python, VllmArgs


def plan(  # noqa: PLR0913 - the options of a command
    *,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="GPU|KEY=VALUE,...",
            help="Where the move ends: b200, vllm=0.33.0 or cuda=13.0,driver=580, as --target of check; may be "
            "repeated. What is not named stays, or moves because a release that is named requires it.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TARGET|FILE",
            help="Where it begins: h100,vllm=0.17.1,cuda=12.8 over what is examined, or a report. Default: what is "
            "examined.",
        ),
    ] = None,
    example: Example = None,
    python: Python = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require",
            metavar="NAME",
            help="These rows must still be there; a glob, may be repeated. Where one is lost, the smallest change that "
            "keeps them is looked for.",
        ),
    ] = None,
    env_file: EnvFile = None,
    manifest: Manifest = None,
    vllm_args: VllmArgs = None,
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
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here, not to stdout.")
    ] = None,
    knowledge: Knowledge = None,
) -> int:
    """What breaks in a move to other versions or another GPU.

    Which versions move together and why, the rows that are lost or may work then, settings that end, what a first
    start compiles, and with --require what keeps those rows. It is all declared or predicted: nothing is built or run.

    Exit codes: 0 nothing required is lost, 1 something is, 2 usage, 3 it cannot be told.
    """
    from fi_doctor.cli import planning

    asked = planning.AskedPlan(
        to=tuple(to or ()),
        source=from_,
        example=example,
        python=python,
        required=tuple(require or ()),
        env_files=tuple(env_file or ()),
        manifests=tuple(manifest or ()),
        vllm_args=vllm_args,
        formats=tuple(format_ or ()),
        output=output,
        knowledge=knowledge,
    )
    return planning.plan(asked)
