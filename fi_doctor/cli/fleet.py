"""`fi-doctor fleet`: the reports of many nodes merged, the odd ones explained, one exit code for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fi_doctor.cli.options import (
    AsRecorded,
    Config,
    FailOn,
    FeatureOption,
    Knowledge,
    NoConfig,
    Output,
    Require,
    Rows,
)

if TYPE_CHECKING:
    from fi_doctor.cli import outputs
    from fi_doctor.fleet.merging import Fleet

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


class AskedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `fleet` as they were typed."""

    reports: tuple[str, ...] = ()  # folders, globs, files
    address: str | None = None  # of a Ray cluster
    driver: str | None = None  # the node on which vLLM is started
    as_recorded: bool = False
    features: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    rows: str | None = None
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    config: str | None = None
    no_config: bool = False
    knowledge: str | None = None


@app.callback(help="Every node of a fleet at once: who is odd and why, and whether what was asked for holds.")
def fleet(  # noqa: PLR0913 - the options of a command
    context: typer.Context,
    *,
    reports: Annotated[
        list[str] | None,
        typer.Option(
            "--reports",
            metavar="DIR|GLOB",
            help="Reports of the nodes, as `report --json` or `check -f json` writes them, named by node; repeatable.",
        ),
    ] = None,
    driver: Annotated[
        str | None,
        typer.Option(
            "--driver", metavar="NODE", help="Where vLLM is started: its variables are compared with the others'."
        ),
    ] = None,
    as_recorded: AsRecorded = False,
    feature: FeatureOption = None,
    require: Require = None,
    fail_on: FailOn = None,
    rows: Rows = None,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT[:PATH]",
            help="console, json, yaml, markdown, junit, html or prometheus; may be repeated.",
        ),
    ] = None,
    output: Output = None,
    config: Config = None,
    no_config: NoConfig = False,
    knowledge: Knowledge = None,
) -> int:
    """Every node of a fleet at once."""
    if context.invoked_subcommand is not None:
        return 0
    asked = AskedFleet(
        reports=tuple(reports or ()),
        driver=driver,
        as_recorded=as_recorded,
        features=tuple(feature or ()),
        required=tuple(require or ()),
        fail_on=tuple(fail_on or ()),
        rows=rows,
        formats=tuple(format_ or ()),
        output=output,
        config=config,
        no_config=no_config,
        knowledge=knowledge,
    )
    return check(asked)


def check(asked: AskedFleet) -> int:
    """Merge, write, and give the gate's code. Errors: UsageError, CannotTellError where there is no report."""
    from fi_doctor.cli import commands, installed, outputs
    from fi_doctor.cli.asked import Asked
    from fi_doctor.cli.settle import settle
    from fi_doctor.errors import UsageError
    from fi_doctor.fleet import merging, rendering, sources

    if not asked.reports:
        raise UsageError("fleet: nothing says where the reports are", todo="fi-doctor fleet --reports FOLDER")
    targets = outputs.targets(asked.formats, "--format", asked.output, forms=rendering.FORMATS)
    outputs.check(targets)
    settled = settle(
        Asked(
            from_file="",
            features=asked.features,
            required=asked.required,
            fail_on=asked.fail_on,
            rows=asked.rows,
            config=asked.config,
            no_config=asked.no_config,
            knowledge=asked.knowledge,
        )
    )
    kb, specs = installed.known(asked.knowledge)
    known = tuple(feature.id for feature in commands.listed_features(kb, specs))
    request = commands.request_of(settled, known, kb)
    files = sources.paths(asked.reports)
    found = merging.merge(
        sources.reports(files), request, kb=kb, specs=specs, driver=asked.driver, as_recorded=asked.as_recorded
    )
    return tell(found, targets)


def tell(found: Fleet, targets: tuple[outputs.Target, ...]) -> int:
    """Write a fleet in all formats, then the deciding line; the gate's code."""
    from fi_doctor.cli import emit, outputs
    from fi_doctor.fleet import rendering

    width, _ = emit.style()
    outputs.put(targets, lambda one: rendering.render(found, one.form, width=width))
    gate = found.document.gate
    for warning in gate.warnings:
        emit.say(f"warning: {warning}")
    emit.say(f"fi-doctor: {gate.reason} (exit {gate.code})")
    return gate.code
