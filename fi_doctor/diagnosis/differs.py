"""Variables that a serving process has otherwise than the shell in which fi-doctor was started."""

from __future__ import annotations

import shlex

from fi_doctor.model import Facts, Finding, KnowledgeBase, Missing, Severity

SERVER_DIFFERS = "server-environment-differs"
# Beside those of the settings: they decide which GPUs, libraries and folders a process takes.
_FURTHER = (
    "CC",
    "CUDA_DEVICE_ORDER",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "FLASHINFER_DISABLE_JIT",
    "FLASHINFER_NO_DOWNLOAD",
    "HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "TMPDIR",
)


def find(kb: KnowledgeBase, facts: Facts) -> tuple[Finding, ...]:
    """A finding for each variable that matters and is not the same; none where no process was named.

    Values that are hidden are alike here: of secrets nothing is compared.
    """
    if isinstance(facts.server, Missing):
        return ()
    shell, server = facts.server.shell, facts.environment
    settings = {one.name: one.what for one in kb.settings if one.kind == "env"}
    names = sorted({*settings, *_FURTHER})
    variables = tuple(
        _finding(name, server.get(name), shell.get(name), settings.get(name, ""), facts.server.pid)
        for name in names
        if server.get(name) != shell.get(name) and not (name == "HOME" and "FLASHINFER_WORKSPACE_BASE" in server)
    )
    tools = (_tool(name, *places, facts.server.pid) for name, places in sorted(facts.server.tools.items()))
    return (*variables, *(one for one in tools if one is not None))


def _finding(name: str, there: str | None, here: str | None, what: str, pid: int) -> Finding:
    if there is None:
        title = f"the server does not have the {name} that you have"
        mend = f"Start the server with {name}={shlex.quote(here or '')}, where that is what it should have"
    elif here is None:
        title = f"the server has a {name} that you do not have"
        mend = f"To try by hand what the server does: export {name}={shlex.quote(there)}"
    else:
        title = f"the server has another {name} than you have"
        mend = f"Start the server with {name}={shlex.quote(here)}, where that is what it should have"
    said = f"Process {pid}: {_shown(there)}; this shell: {_shown(here)}. The verdicts are those of the server."
    return Finding(
        id=SERVER_DIFFERS,
        cause="server-environment",
        severity=Severity.INFO if here is None else Severity.WARNING,
        title=title,
        why=f"{said} {name}: {what}." if what else said,
        fix=(mend,),
        features=(),
        source="https://man7.org/linux/man-pages/man5/proc_pid_environ.5.html",
    )


def _tool(name: str, there: str, here: str, pid: int) -> Finding | None:
    """What is said of a tool that the server does not find where this shell finds it."""
    if there == here or not here:
        return None
    title = f"the server finds another {name} than you do" if there else f"the server finds no {name} on its PATH"
    folder = shlex.quote(here.rpartition("/")[0] or "/")
    return Finding(
        id=SERVER_DIFFERS,
        cause="server-environment",
        severity=Severity.WARNING,
        title=title,
        why=f"Process {pid}: {there or 'none'}; this shell: {here}. The verdicts are those of the server.",
        fix=(f"Start the server with {folder} on its PATH, where that is what it should find",),
        features=(),
        source="https://man7.org/linux/man-pages/man5/proc_pid_environ.5.html",
    )


def _shown(value: str | None) -> str:
    return "not set" if value is None else f'"{value}"'
