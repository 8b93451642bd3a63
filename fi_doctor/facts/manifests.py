"""Settings that files give a server: variables and command lines of Dockerfiles, compose files and manifests of pods.

Read as they are written: nothing is built, resolved against a cluster, or fetched.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fi_doctor.errors import DataError
from fi_doctor.facts.encoded import text_of
from fi_doctor.facts.files import read_whole
from fi_doctor.facts.serve_words import served_by
from fi_doctor.facts.yaml_manifests import read_yaml_manifest
from fi_doctor.model import Given, Variable

if TYPE_CHECKING:
    from dotenv.parser import Binding

LARGEST_BYTES = 1 << 20
_LONGEST = 4096  # of a value that others are put into: what three lines can say may fill a machine
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)")
_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""")
_DOLLAR = "\0"
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read_env_file(path: Path) -> Given:
    """The variables of a file of NAME=value lines. Errors: DataError with the lines that are none."""
    from dotenv.parser import parse_stream  # noqa: PLC0415 - where such a file is given

    bindings = list(parse_stream(io.StringIO(_text(path))))
    wrong = [
        f"line {one.original.line}: {one.original.string.strip()[:60]!r}"
        for one in bindings
        if one.error or (one.key and not _NAME.fullmatch(one.key))
    ]
    if wrong:
        raise DataError(f"{str(path)!r} is no file of variables", why="; ".join(wrong), todo="NAME=value, one a line")
    variables = {
        one.key: Variable(value=_as_read(one), line=_line_of(one.original.string, one.original.line))
        for one in bindings
        if one.key
    }
    return Given(file=str(path), part="", variables=variables)


def _as_read(one: Binding) -> str | None:
    """The value; None where a shell or compose would put something in, and docker would not."""
    is_literal = "$" not in (one.value or "") and "`" not in (one.value or "")
    return one.value if is_literal or re.search(r"=\s*'", one.original.string) else None


def read_manifest(path: Path) -> tuple[Given, ...]:
    """What each process of a manifest is given; its kind is told by its name and what stands in it.

    Errors: DataError where it cannot be read or is of no kind that is known.
    """
    name = path.name.lower()
    if name.endswith((".yaml", ".yml", ".json")):
        return read_yaml_manifest(path, _text(path))
    if name.endswith(".env") or name == ".env":
        return (read_env_file(path),)
    text = _text(path)
    if "dockerfile" in name or "containerfile" in name or re.search(r"(?mi)^FROM \S", text):
        return read_dockerfile(path, text)
    raise DataError(
        f"{str(path)!r} is no manifest that is known",
        why="it is called neither Dockerfile nor *.yaml, *.yml, *.json or *.env",
        todo="fi-doctor check --manifest deploy.yaml",
    )


class _Stage(NamedTuple):
    """A stage of a Dockerfile as far as it was read."""

    image: str = ""
    name: str = ""
    given: Given = Given(file="", part="")
    entry: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    has_command: bool = False  # of its own: an entry point drops the one of the stage that it takes over
    line: int = 0

    def after(self, word: str, value: str, line: int) -> _Stage:
        """With one instruction more."""
        if word == "ENV":
            known = self.given.variables
            added = {**known, **_environment(value, line, known)}
            return self._replace(given=msgspec.structs.replace(self.given, variables=added))
        if word == "ENTRYPOINT":
            kept = self.command if self.has_command else ()
            return self._replace(entry=_words(value), command=kept, line=line)
        if word == "CMD":
            return self._replace(command=_words(value), has_command=True, line=line)
        return self


def read_dockerfile(path: Path, text: str) -> tuple[Given, ...]:
    """What the last stage has, with what it takes over of earlier stages; a build argument's value is not known."""
    from dockerfile_parse import DockerfileParser  # noqa: PLC0415 - where such a file is given

    stages: dict[str, _Stage] = {}
    none = _Stage(given=Given(file=str(path), part=""))
    now, awaited = none, ""
    for one in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        word, value = one["instruction"], one["value"]
        if awaited:
            awaited = "" if one["content"].strip() == awaited else awaited
        elif word in ("RUN", "COPY", "ADD") and (found := _HEREDOC.search(value)):
            awaited = found[1]
        elif word == "FROM":
            stages[now.name] = now
            base, name = _from(value)
            before = stages.get(base.lower(), none._replace(image=base))
            now = before._replace(name=name, has_command=False)
        else:
            now = now.after(word, value, one["startline"] + 1)
    served = served_by((*now.entry, *now.command), now.image, has_entry=bool(now.entry))
    line = now.line if served.server else 0
    own = {variable: Variable(value=value, line=line) for variable, value in served.variables.items()}
    variables = {**now.given.variables, **own}
    told = {"server": served.server, "words": served.words, "line": line, "image": now.image}
    return (msgspec.structs.replace(now.given, variables=variables, **told),)


def _from(value: str) -> tuple[str, str]:
    """The image or stage that a stage begins with, and what it is called: "--platform=x vllm/vllm-openai AS last"."""
    words = [word for word in value.split() if not word.startswith("--")]
    return words[0] if words else "", words[2].lower() if len(words) > 2 else ""


def _environment(value: str, line: int, known: dict[str, Variable]) -> dict[str, Variable]:
    """The variables of an ENV instruction: "A=1 B=two" or the old "A one value"."""
    value = _QUOTED.sub(_kept, value)
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    if words and "=" not in words[0]:
        name, _, rest = value.strip().partition(" ")
        return {name: Variable(value=_expanded(rest.strip(), known), line=line)}
    pairs = (_PAIR.fullmatch(word) for word in words)
    return {pair[1]: Variable(value=_expanded(pair[2], known), line=line) for pair in pairs if pair}


def _kept(found: re.Match[str]) -> str:
    """A quoted text or an escaped sign, with a mark for each dollar that stands for itself."""
    text = found[0]
    return text.replace("$", _DOLLAR) if text.startswith("'") else text.replace("\\$", _DOLLAR)


def _expanded(value: str, known: dict[str, Variable]) -> str | None:
    """With variables of the file put in; None where one of them is not known here, or all is longer than a page."""
    missing, length = False, 0

    def put(found: re.Match[str]) -> str:
        nonlocal missing, length
        one = known.get(found[1] or found[2])
        length += len(one.value) if one is not None and one.value is not None else 0
        missing = missing or one is None or one.value is None or length > _LONGEST
        return "" if missing or one is None or one.value is None else one.value

    text = re.sub(r"\$(?:\{(\w+)\}|(\w+))", put, value)
    return None if missing or "${" in text else text.replace(_DOLLAR, "$")


def _words(value: str) -> tuple[str, ...]:
    """Of CMD and ENTRYPOINT, as JSON or as a shell's line."""
    try:
        return msgspec.json.decode(value, type=tuple[str, ...])
    except (msgspec.MsgspecError, RecursionError):
        return ("sh", "-c", value)


def _line_of(text: str, line: int) -> int:
    """The line of a binding itself, behind blank lines and comments that the parser counts to it."""
    return line + len(text[: len(text) - len(text.lstrip())].splitlines())


def _text(path: Path) -> str:
    try:
        return text_of(read_whole(path, LARGEST_BYTES))
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be read", why=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{str(path)!r} cannot be read", why=f"it is not {error.encoding.upper()}: {error.reason}"
        ) from error
