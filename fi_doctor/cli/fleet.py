"""`fi-doctor fleet`: the reports of many nodes merged, the odd ones explained, one exit code for all."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fi_doctor.cli.fleet_ways import refuse_unread
from fi_doctor.cli.options import (
    BudgetOrNot,
    Config,
    FailOn,
    FeatureOption,
    JobsOrNot,
    Knowledge,
    Model,
    NoConfig,
    Output,
    Python,
    Quiet,
    Redact,
    Require,
    Rows,
    VllmArgs,
)
from fi_doctor.cli.ray_options import (
    Address,
    AllNodes,
    AllRanks,
    AskedRay,
    FleetDepth,
    Installed,
    NcclLog,
    NodeTimeout,
    PpRanks,
    RuntimeEnv,
    TpRanks,
    Wait,
)
from fi_doctor.errors import UsageError

if TYPE_CHECKING:
    from fi_doctor.cli import outputs
    from fi_doctor.fleet.merging import Fleet

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)


class AskedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `fleet` as they were typed."""

    reports: tuple[str, ...] = ()  # folders, globs, files
    ray: AskedRay = AskedRay()  # of which nothing counts where reports are named
    driver: str | None = None  # the node on which vLLM is started
    as_recorded: bool = False
    redact: bool = False
    features: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    rows: str | None = None
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    config: str | None = None
    no_config: bool = False
    knowledge: str | None = None


@app.callback(help="Many nodes, by Ray or their reports: who is odd, and why.")
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
    address: Address = None,
    all_nodes: AllNodes = False,
    installed: Installed = False,
    runtime_env: RuntimeEnv = None,
    node_timeout: NodeTimeout = None,
    wait: Wait = "10m",
    depth: FleetDepth = "static",
    budget: BudgetOrNot = None,
    jobs: JobsOrNot = None,
    model: Model = None,
    tp: TpRanks = None,
    pp: PpRanks = None,
    vllm_args: VllmArgs = None,
    collectives: AllRanks = False,
    nccl_log: NcclLog = None,
    driver: Annotated[
        str | None,
        typer.Option(
            "--driver",
            metavar="NODE",
            help="Where vLLM is started: its variables are compared with the others'. Of a cluster by default: here.",
        ),
    ] = None,
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="The verdicts as they were written, not today's.")
    ] = False,
    redact: Redact = False,
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
    quiet: Quiet = False,
) -> int:
    """Reports of many nodes: who is odd, and why."""
    refuse_unread(context)
    if context.invoked_subcommand is not None:
        return 0
    given = {"--budget": budget, "--jobs": jobs, "--model": model, "--vllm-args": vllm_args}
    given |= {} if model is None and vllm_args is None else {"--tp": tp, "--pp": pp}
    ray = AskedRay(
        address="auto" if address is None else address,
        takes_all=all_nodes,
        is_installed=installed,
        environments=tuple(runtime_env or ()),
        node_timeout=node_timeout,
        wait=wait,
        depth=depth,
        words=_words(given, _looked_at(feature, require)),
        quiet=quiet,
    )
    if not collectives and not nccl_log and "--tp" not in given and (tp or pp):
        raise UsageError("--tp and --pp: of what", todo="fi-doctor fleet --collectives --tp 2, or --model MODEL --tp 2")
    if collectives or nccl_log:
        from fi_doctor.cli import outputs, ray_ranks
        from fi_doctor.reports.collectives import FORMATS

        targets = outputs.targets(tuple(format_ or ()), "--format", output, forms=FORMATS)
        return ray_ranks.collectives(ray, (tp or 1, pp or 1), tuple(nccl_log or ()), targets)
    asked = AskedFleet(
        reports=tuple(reports or ()),
        ray=ray,
        driver=driver,
        as_recorded=as_recorded,
        redact=redact,
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


@app.command()
def warm(  # noqa: PLR0913 - the options of a command
    *,
    address: Address = None,
    share: Annotated[
        str,
        typer.Option(
            "--share",
            metavar="DIR|URL",
            help="A folder that all nodes have, or a URL for fsspec: each distinct cache is built on one node and "
            "taken from there by the others. Without it each node builds its own.",
        ),
    ] = "",
    feature: FeatureOption = None,
    all_: Annotated[bool, typer.Option("--all", help="The modules of every row, with all its variants.")] = False,
    jobs: JobsOrNot = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Bound on the building, on each node.")
    ] = "8h",
    gentle: Annotated[
        bool, typer.Option(help="Beside live servers: lowest priority, a quarter of the CPUs of each node.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be compiled.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where it is known to come to nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    python: Python = None,
    installed: Installed = False,
    quiet: Quiet = False,
) -> int:
    """Compile beforehand, on the nodes of a Ray cluster, what servers there would.

    Each distinct cache (toolkit, GPU architecture, FlashInfer, folders) is built once and shared, where there is a
    place for it. What was shared is used only with the digest that its builder told, and each node then says whether
    it would still compile anything.
    """
    from fi_doctor.cli import parse, ray_warming
    from fi_doctor.cluster.warming import Asked

    given = {"--jobs": jobs, "--budget": budget, "--python": python}
    flags = {"--all": all_, "--gentle": gentle, "--dry-run": dry_run, "--anyway": anyway}
    words = (*_words(given, tuple(feature or ())), *(name for name, is_on in flags.items() if is_on))
    asked = AskedRay(address="auto" if address is None else address, is_installed=installed, quiet=quiet)
    limit_s = parse.duration_s(budget, "--budget") + 600
    if share and "://" not in share and not os.path.isabs(share):  # noqa: PTH117 - as it was typed
        raise UsageError(
            f"--share {share}: a folder that depends on where it is named from",
            why="each node has another current folder",
            todo="--share /FOLDER, which all nodes have, or a URL as s3://BUCKET/FOLDER",
        )
    return ray_warming.warm(asked, Asked(words, share, limit_s, is_dry=dry_run), is_json=json)


def _looked_at(features: list[str] | None, required: list[str] | None) -> tuple[str, ...]:
    """What a node looks at: all, or what is named, and then also what must work there."""
    return (*features, *(one.partition("=")[0] for one in required or ())) if features else ()


def _words(given: Mapping[str, object], features: tuple[str, ...]) -> tuple[str, ...]:
    """Of `report` on each node: what was typed, as it was typed."""
    typed = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return (*typed, *(word for name in features for word in ("--feature", name)))


def check(asked: AskedFleet) -> int:
    """Merge, write, and give the gate's code. Errors: UsageError, CannotTellError where there is no report."""
    from fi_doctor.cli import commands, installed, outputs
    from fi_doctor.cli.asked import Asked
    from fi_doctor.cli.settle import settle
    from fi_doctor.fleet import merging, rendering, sources

    targets = outputs.targets(asked.formats, "--format", asked.output, forms=rendering.FORMATS)
    outputs.check(targets)
    settled = settle(
        Asked(
            from_file="",
            is_fleet=True,
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
    strangers = os.environ if asked.redact else None
    merge = functools.partial(
        merging.merge, request=request, kb=kb, specs=specs, as_recorded=asked.as_recorded, strangers=strangers
    )
    if asked.reports:
        files = sources.paths(asked.reports)
        sources.check_apart(files, (one.path for one in targets if one.path is not None))
        notes: list[str] = []
        return tell(merge(sources.reports(files, notes), driver=asked.driver, notes=notes), targets)
    from fi_doctor.cli import ray_nodes

    early = functools.partial(tell, targets=targets, ends=False)
    return tell(ray_nodes.fleet(asked.ray, merge, asked.driver, early), targets)


def tell(found: Fleet, targets: tuple[outputs.Target, ...], *, ends: bool = True) -> int:
    """Write a fleet in all formats, then the deciding line; the gate's code, with which it ends unless by a signal."""
    from fi_doctor.cli import emit, outputs
    from fi_doctor.fleet import rendering

    width, _ = emit.style()
    outputs.put(targets, lambda one: rendering.render(found, one.form, width=width))
    gate = found.document.gate
    for warning in gate.warnings:
        emit.say(f"warning: {warning}")
    emit.say(f"fi-doctor: {gate.reason}{f' (exit {gate.code})' if ends else ''}")
    return gate.code
