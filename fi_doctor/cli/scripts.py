"""`fi-doctor probes list` and `probes show`: the scripts that build, run and check."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The probes: scripts that build, run and check.")


@app.command("list")
def list_() -> int:
    """Each probe with its feature, its module and its question."""
    from fi_doctor.cli import commands

    return commands.probes_list()


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a probe, e.g. norm.rmsnorm.")],
) -> int:
    """The script of a probe.

    It is ready to run by hand, without fi-doctor, or to paste into an issue.
    """
    from fi_doctor.cli import commands

    return commands.probes_show(name)
