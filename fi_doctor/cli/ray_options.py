"""The options of `fi-doctor fleet` that concern a Ray cluster."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="auto|HOST:PORT|ray://...",
        help="Check the nodes of this Ray cluster. Default without --reports: auto.",
    ),
]
AllNodes = Annotated[bool, typer.Option("--all-nodes", help="Nodes of the cluster without a GPU, too.")]
Installed = Annotated[
    bool,
    typer.Option(
        "--installed", help="Use whichever fi-doctor the nodes have. Default: this one, shipped where a node lacks it."
    ),
]
RuntimeEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime-env",
        metavar="FILE",
        help="Check inside this runtime environment of Ray (YAML or JSON); may be repeated, each is checked.",
    ),
]
NodeTimeout = Annotated[
    str | None,
    typer.Option("--node-timeout", metavar="TIME", help="What one node may take. [default: 2m; 1h where it builds]"),
]
Wait = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="How long a node is waited for whose GPUs are all taken.")
]
FleetDepth = Annotated[
    str,
    typer.Option(
        "--depth", metavar="static|build|run", help="On each node: read only, which takes no GPU; compile too; run too."
    ),
]
AllRanks = Annotated[
    bool,
    typer.Option(
        "--collectives",
        help="Instead of checks: collectives between the ranks of --tp and --pp, over gloo and NCCL, every number "
        "looked at.",
    ),
]
NcclLog = Annotated[
    list[str] | None,
    typer.Option(
        "--nccl-log", metavar="FILE", help="With --collectives: read these logs (NCCL_DEBUG=INFO) instead of running."
    ),
]
TpRanks = Annotated[
    int | None, typer.Option("--tp", metavar="N", min=1, max=4096, help="Tensor parallel: ranks of a stage.")
]
PpRanks = Annotated[int | None, typer.Option("--pp", metavar="N", min=1, max=4096, help="Pipeline parallel: stages.")]


class AskedRay(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a cluster, as it was typed."""

    address: str = "auto"
    takes_all: bool = False
    is_installed: bool = False
    environments: tuple[str, ...] = ()  # files
    node_timeout: str | None = None
    wait: str = "10m"
    depth: str = "static"
    words: tuple[str, ...] = ()  # of `report`, for each node
    quiet: bool = False
