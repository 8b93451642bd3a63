"""The command line: argv becomes a Request, what was rendered is written, and the exit code is the gate's."""

from __future__ import annotations

import contextlib
import copy
import io
import re
from typing import TYPE_CHECKING

from fi_doctor.cli import streams
from fi_doctor.errors import DoctorError, UsageError

if TYPE_CHECKING:
    import typer


def run(argv: list[str]) -> int:
    """The exit code of `fi-doctor ARGV`; expected failures are printed here in their three parts."""
    import typer

    from fi_doctor.cli.app import app

    # Typer re-exports BadParameter alone of the exceptions that it or click raise; its bases are the others.
    click_error = next(
        base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException" and issubclass(base, Exception)
    )
    command = typer.main.get_command(_only(app, argv))
    printed = io.StringIO()  # by the parser: help and version; the commands write by themselves
    try:
        # Not command.main(): it turns SIGTERM into Ctrl-C's code, and an EPIPE from anywhere into exit code 1.
        with contextlib.redirect_stdout(printed), command.make_context("fi-doctor", list(argv)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as done:
        return _shown(printed.getvalue()) or int(done.exit_code)
    except DoctorError as error:
        return _failed(error)
    except click_error as error:
        named = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback}
        return _usage(error, _commands(argv, named))


def _only(app: typer.Typer, argv: list[str]) -> typer.Typer:
    """The application with the command alone that is called; the others cost a thirtieth of a second to make."""
    named = [one for one in app.registered_commands if one.callback and [one.callback.__name__] == argv[:1]]
    if not named:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = named, []
    return alone


def _shown(text: str) -> int:
    """0 once it is on stdout, UsageError's code when it cannot be."""
    try:
        streams.put(text)
    except UsageError as error:
        return _failed(error)
    return 0


def _failed(error: DoctorError) -> int:
    streams.tell_error(error)
    return error.exit_code


def _usage(error: Exception, words: list[str]) -> int:
    """Print what the parser has against the words, with the nearest word where it knows one.

    words: those that name the command.
    """
    message = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".?")
    if message.startswith("Usage:"):  # no command: the message is the help
        streams.tell(message)
        return UsageError.exit_code
    message, _, hint = message.partition(". Did you mean ")
    command = ["fi-doctor", *words]
    near = list(getattr(error, "possibilities", None) or re.findall(r"'([^']+)'", hint))
    if near:
        message = message.partition(" (Possible options")[0]
    listing = " ".join([*command, "--help"])
    if command == ["fi-doctor", "probes", "show"] and message.startswith("Missing argument"):
        listing = "fi-doctor probes list"
    todo = " ".join([*command, near[0]]) if near else listing
    why = f"`{listing}` lists what there is"
    return _failed(UsageError(message[:1].lower() + message[1:], why=why, todo=todo))


def _commands(argv: list[str], named: set[str]) -> list[str]:
    """The words that name the command, as far as there is one of such a name."""
    words = [word for word in argv[:2] if not word.startswith("-")]
    groups = {"probes": ("list", "show"), "knowledge": ("show", "pack")}
    if words and words[0] in groups:
        return words if words[1:] and words[1] in groups[words[0]] else words[:1]
    return [word for word in words[:1] if word in named]
