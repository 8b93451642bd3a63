"""What is asked for in the end, key by key: the command line, else FI_DOCTOR_*, else the policy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from fi_doctor.cli import emit, nearest, outputs, parse
from fi_doctor.cli.asked import Asked
from fi_doctor.errors import UsageError
from fi_doctor.model import Depth, nearness

if TYPE_CHECKING:
    from fi_doctor.knowledge.policies import Written

_PREFIX = "FI_DOCTOR_"
READ = (
    "BUDGET",
    "CONFIG",
    "DEPTH",
    "FAIL_ON",
    "FEATURE",
    "FORMAT",
    "JOBS",
    "MEMORY",
    "REQUIRE",
    "ROWS",
)
_FOR_EVERY_COMMAND = ("KNOWLEDGE",)  # read by fi_doctor.cli.consulting
_KEYS = ("allow", "versions")  # of a policy that no variable stands for
_OURS = ("CHILD", "NINJA", "PROBE_DEVICE", "SCRATCH")  # set for our own children
# How like a name must be to one that is read. Kubernetes sets FI_DOCTOR_SERVICE_HOST, FI_DOCTOR_PORT_80_TCP and, of
# a service fi-doctor-require, FI_DOCTOR_REQUIRE_PORT, which are less alike; BUGDET and FAILON are more.
_NEAR = 0.75
_OF_SERVICES = re.compile(r"_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$")
_T = TypeVar("_T")


def settle(asked: Asked) -> Asked:
    """The same options with what was not typed filled in. Errors: UsageError; DataError for a policy."""
    environ = {} if asked.is_called else os.environ
    misnamed = list(_look_at_variables(environ))
    written = _policy(asked, environ)
    said = _Said(written, environ)
    file = written.file if written else None
    # A recording was made as deep as it was made.
    is_deep = not asked.is_recorded
    read: dict[str, Callable[[], Any]] = {
        "depth": lambda: (
            said.first("depth", asked.depth, file and file.depth, str) if is_deep else _told(asked.depth, environ)
        ),
        "budget": lambda: said.first("budget", asked.budget, file and file.budget, str),
        "jobs": lambda: said.first("jobs", asked.jobs, file and file.jobs, parse.whole),
        "memory": lambda: said.first("memory", asked.memory, file and file.memory, str),
        "features": lambda: said.first("feature", asked.features or None, file and file.feature, _list) or (),
        "required": lambda: said.first("require", asked.required or None, None, _list) or (),
        "fail_on": lambda: said.first("fail-on", asked.fail_on or None, file and file.fail_on, _list) or (),
        "rows": lambda: said.first("rows", asked.rows, file and file.rows, str),
        "targets": lambda: _targets(asked, said, file.format if file else None),
    }
    values: dict[str, Any] = {}
    wrong = [error for name, find in read.items() if (error := _fill(values, name, find, said.origins)) is not None]
    settled = replace(asked, policy=written, origins=said.origins, sources=said.sources, **values)
    if misnamed or wrong:
        # Who has to mend these wants to know of the others too, which else are looked at when all is loaded.
        from fi_doctor.cli.commands import known_names
        from fi_doctor.cli.policy import wrong_values

        parse.together([*misnamed, *wrong, *wrong_values(settled, known_names(asked.knowledge)[0])])
    return settled


def _fill(values: dict[str, Any], name: str, find: Callable[[], Any], origins: dict[str, str]) -> UsageError | None:
    """Put in a value that can be used; else what is wrong with it."""
    try:
        value = find()
        _check_word(name, value, origins)
    except UsageError as error:
        return error
    values[name] = value
    return None


def _check_word(name: str, value: Any, origins: dict[str, str]) -> None:
    """UsageError where a word of no feature is none; the names of features are looked at once they are known."""
    origin = origins.get(name, f"--{name}")
    if value is None:
        return
    match name:
        case "depth":
            parse.choice(value, [depth.value for depth in Depth], origin)
        case "budget":
            parse.duration_s(value, origin)
        case "memory":
            parse.memory_mib(value, origin)
        case _:
            pass


def _look_at_variables(environ: Mapping[str, str]) -> Iterator[UsageError]:
    """An error for each that nothing reads and that is called nearly like one that is: a gate would be open.

    Of the others that nothing reads each gets a warning.
    """
    known = sorted((*READ, *_FOR_EVERY_COMMAND))
    for name in sorted(name for name, value in environ.items() if name.startswith(_PREFIX) and value):
        word = name.removeprefix(_PREFIX)
        if word in (*known, *_OURS):
            continue
        near = nearness.nearest(word, known, _NEAR)
        if near:
            yield UsageError(
                f"{name}: no variable is called that",
                why=f"nothing reads it; the nearest that is read is {_PREFIX}{near}",
                todo=f"set {_PREFIX}{near}, or unset {name}",
            )
        elif not _OF_SERVICES.search(name):
            key = word.lower().replace("_", "-")
            why = f": {key} is a key of the policy only" if key in _KEYS else ""
            emit.say(f"warning: {name} is not read{why}; read are {_PREFIX}{', _'.join(known)}")


def _policy(asked: Asked, environ: Mapping[str, str]) -> Written | None:
    """The policy that is named, or else the nearest one; None where there is none."""
    if asked.no_config:
        if asked.config is not None:
            raise UsageError("--config and --no-config: a policy or none", todo="leave one of the two out")
        return None
    named = asked.config if asked.config is not None else environ.get(f"{_PREFIX}CONFIG") or None
    path = Path(named) if named is not None else _nearest()
    if path is None:
        return None
    from fi_doctor.cli import policy

    return policy.load(path, asked.knowledge)


def _nearest() -> Path | None:
    try:
        return nearest.find(Path.cwd())
    except OSError:  # the current folder was deleted, or is closed to this user
        return None


def _told(typed: str | None, environ: Mapping[str, str]) -> str | None:
    """The depth where none is asked for: a variable that has no meaning there may be set, but to a word that is one."""
    variable = f"{_PREFIX}DEPTH"
    if text := environ.get(variable):
        parse.choice(text, [depth.value for depth in Depth], variable)
    return typed


class _Said:
    """Who said what: for each key the first place that says something, and what messages call it."""

    def __init__(self, written: Written | None, environ: Mapping[str, str]) -> None:
        self.origins: dict[str, str] = {}
        self.sources: dict[str, str] = {}  # of the keys whose value somebody gave
        self._file = Path(written.name).name if written else ""
        self._environ = environ

    def first(self, key: str, typed: _T | None, of_file: _T | None, read: Callable[[str], _T]) -> _T | None:
        """The value of a key; None where nobody says it. read: makes one of the text of a variable."""
        variable = _PREFIX + key.upper().replace("-", "_")
        text = self._environ.get(variable, "")
        if typed is not None:
            self.gave(key, f"--{key}")
            return typed
        if text:
            self.gave(key, variable)
            try:
                return read(text)
            except ValueError as error:
                raise UsageError(f"{variable}: {text!r} {error}", todo=f"unset {variable}") from error
        if of_file is not None:
            self.gave(key, f"{self._file}: {key}")
            return of_file
        self.origins[key] = f"--{key}"
        return None

    def gave(self, key: str, place: str) -> None:
        """Note who gave the value of a key."""
        self.origins[key] = self.sources[key] = place


def _targets(asked: Asked, said: _Said, of_file: tuple[str, ...] | None) -> tuple[outputs.Target, ...]:
    if asked.formats or asked.output is not None:
        said.gave("format", "--format" if asked.formats else "-o")
        return outputs.targets(asked.formats, "--format", asked.output)
    words = said.first("format", None, of_file, _list)
    return outputs.targets(words or (), said.origins["format"])


def _list(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("names nothing")
    return words
