"""`fi-doctor knowledge`: what is known, where it is from, and a bundle of it for other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fi_doctor.cli.options import Knowledge

if TYPE_CHECKING:
    from fi_doctor.knowledge.bundles import Opened

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What is known: its version, and bundles of it.")


@app.command("show")
def show(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[DIR|FILE]", help="A folder or a bundle; without it, the knowledge that is used."),
    ] = None,
    *,
    knowledge: Knowledge = None,
) -> int:
    """Version, what it was checked on, counts and digest.

    All of it is read and checked: exit code 2 says which file is wrong, and how.
    """
    from fi_doctor.cli import consulting, emit
    from fi_doctor.errors import UsageError
    from fi_doctor.knowledge import SHIPPED, bundles

    if path is not None and knowledge is not None:
        raise UsageError(f"--knowledge and {path}: both name the knowledge", todo="leave one of the two out")
    there = consulting.place(path if knowledge is None else knowledge)
    with bundles.opened(SHIPPED if there is None else there) as found:
        where = "ships with fi-doctor" if there is None else str(there)
        emit.write("\n".join([f"knowledge {found.kb.version}, {where}", *_lines(found)]) + "\n", None)
    return 0


@app.command("pack")
def pack(
    folder: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="As fi_doctor/knowledge/data; without it, what ships.")
    ] = None,
    *,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The bundle, a zip file.")],
) -> int:
    """Write a folder of knowledge as one file with the SHA-256 of all that is in it.

    `--knowledge FILE` takes it. It is not signed: the digests find damage, not malice. The same folder gives the same
    file.
    """
    from fi_doctor.cli import consulting, emit
    from fi_doctor.errors import UsageError
    from fi_doctor.knowledge import SHIPPED, bundles

    there = consulting.place(folder) if folder is not None else SHIPPED
    try:
        found = bundles.pack(there or SHIPPED, Path(output))
    except OSError as error:
        raise UsageError(f"{output} cannot be written", why=error.strerror or str(error)) from error
    emit.say(f"fi-doctor: knowledge {found.kb.version} in {output}, {found.files} files, sha256 {found.digest}")
    return 0


def _lines(found: Opened) -> list[str]:
    kb = found.kb
    names = len({one.name for one in kb.settings})
    counts = {"rules": kb.rules, "faults": found.faults, "rows of the matrix": kb.features}
    counts |= {f"entries of {names} settings": kb.settings, "operators of a complete backend": kb.operators}
    newest = ", ".join(f"{name} {version}" for name, version in sorted(kb.newest.items()))
    return [
        "checked on:",
        *(f"  {one}" for one in kb.checked_on),
        f"newest releases that it was checked on: {newest or 'not told'}",
        ", ".join(f"{len(several)} {name}" for name, several in counts.items()) + f", in {found.files} files",
        f"sha256 {found.digest} (of the list of the digests of its files; it is not signed)",
    ]
