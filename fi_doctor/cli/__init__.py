"""The command line: argv becomes a Request, what was rendered is written, and the exit code is the gate's."""

from __future__ import annotations

import sys


def run(argv: list[str]) -> int:
    """The exit code of `fi-doctor ARGV`; expected failures are printed here in their three parts."""
    import typer

    from fi_doctor.cli.app import app
    from fi_doctor.errors import DoctorError

    # Typer re-exports BadParameter alone of the exceptions that it or click raise; its bases are the others.
    click_error = next(
        base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException" and issubclass(base, Exception)
    )
    command = typer.main.get_command(app)
    try:
        code = command.main(args=argv, prog_name="fi-doctor", standalone_mode=False)
    except DoctorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except click_error as error:
        return _usage(error, argv)
    except typer.Abort:
        raise KeyboardInterrupt from None
    return int(code or 0)


def _usage(error: Exception, argv: list[str]) -> int:
    message = str(getattr(error, "format_message", error.__str__)()).strip().rstrip(".")
    command = next((word for word in argv if not word.startswith("-")), "")
    known = {"check", "report", "explain", "probes", "features"}
    help_of = f"fi-doctor {command} --help" if command in known else "fi-doctor --help"
    print(f"error: {message}\n  try: {help_of}", file=sys.stderr)
    return 2
