"""Which options of `fleet` say nothing in the way that is asked for: a cluster, reports, collectives, `warm`."""

from __future__ import annotations

import typer

from fi_doctor.errors import UsageError

_ON_NODES = ("all_nodes", "runtime_env", "depth", "budget", "jobs", "model", "vllm_args")  # a check on each node
_OF_RAY = ("address", "installed", "node_timeout", "wait")
_OF_VERDICTS = ("driver", "as_recorded", "redact", "feature", "require", "fail_on", "rows")
# Also where they decide nothing, these do no harm.
_ANYWHERE = ("config", "no_config", "knowledge", "quiet")


def refuse_unread(context: typer.Context) -> None:
    """Raise UsageError where an option was typed that the way asked for does not read."""
    typed = _typed(context)
    if context.invoked_subcommand is not None:
        command = f"fi-doctor fleet {context.invoked_subcommand}"
        _refuse(typed, tuple(typed), f"options of {command} come behind its name", f"{command} {_first(typed)}")
    if "reports" in typed:
        if "address" in typed:
            raise UsageError("--reports and --address: files or a cluster", todo="fi-doctor fleet --reports FOLDER")
        of_ranks = ("tp", "pp", "collectives", "nccl_log")
        why = "--reports reads what nodes have written, and asks nothing of a cluster"
        _refuse(typed, (*_ON_NODES, *_OF_RAY, *of_ranks), why, "fi-doctor fleet --reports FOLDER")
    elif "nccl_log" in typed:
        why = "--nccl-log reads logs only"
        _refuse(typed, (*_ON_NODES, *_OF_RAY, *_OF_VERDICTS), why, "fi-doctor fleet --collectives --nccl-log FILE")
    elif "collectives" in typed:
        why = "--collectives is done instead of checks"
        _refuse(typed, (*_ON_NODES, *_OF_VERDICTS), why, "fi-doctor fleet --collectives --tp 2")


def _typed(context: typer.Context) -> dict[str, str]:
    """Name of each parameter that was typed -> its option."""
    found = {}
    for one in context.command.params:
        source = context.get_parameter_source(one.name or "")
        if source is not None and source.name == "COMMANDLINE" and one.name and one.name not in _ANYWHERE:
            found[one.name] = one.opts[0]
    return found


def _refuse(typed: dict[str, str], unread: tuple[str, ...], why: str, todo: str) -> None:
    options = [option for name, option in typed.items() if name in unread]
    if options:
        says = "it says" if len(options) == 1 else "they say"
        raise UsageError(f"{', '.join(options)}: {says} nothing here", why=why, todo=todo)


def _first(typed: dict[str, str]) -> str:
    return next(iter(typed.values()), "")
