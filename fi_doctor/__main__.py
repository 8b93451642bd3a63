"""The console script: our own imports are taken away from the examined PYTHONPATH, then the command begins."""

from __future__ import annotations

import os
import sys


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code, at once."""
    # Before any other import: a yaml.py that lies there would be run by us, and could write into the report.
    _leave_examined_path()
    from fi_doctor.cli.process import main as begin

    begin(sys.argv[1:] if argv is None else argv)


def _leave_examined_path() -> None:
    """Take PYTHONPATH and the current folder off our sys.path; children are given PYTHONPATH as it is.

    What Python itself would have put there stays, and so does the folder that holds this package: one that is not
    installed (a checkout, `pip install --target`) is found by PYTHONPATH, and there its dependencies lie too.
    """
    named = os.environ.get("PYTHONPATH")
    examined = {_place(entry) for entry in ["", *(named.split(os.pathsep) if named else [])]}
    own = _place(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - pathlib may itself lie there
    kept = {own, *map(_place, _standard())}
    sys.path[:] = [entry for entry in sys.path if _place(entry) in kept or _place(entry) not in examined]


def _standard() -> list[str]:
    """The folders of the standard library and of installed packages."""
    library = os.path.dirname(os.__file__)  # noqa: PTH120 - as above
    site = sys.modules.get("site")  # absent with -S
    packages = [*site.getsitepackages(), site.getusersitepackages()] if site else []
    return [library, os.path.join(library, "lib-dynload"), *packages]  # noqa: PTH118 - as above


def _place(entry: str) -> str:
    try:
        return os.path.realpath(entry or os.curdir)
    except OSError:  # the current folder was deleted
        return entry


if __name__ == "__main__":
    main()
