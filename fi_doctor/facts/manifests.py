"""Settings that files give a server: variables and command lines of Dockerfiles, compose files and manifests of pods.

Read as they are written: nothing is built, resolved against a cluster, or fetched.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import msgspec

from fi_doctor.errors import DataError
from fi_doctor.facts.encoded import text_of
from fi_doctor.facts.files import read_whole
from fi_doctor.facts.serve_words import served_by
from fi_doctor.facts.yaml_manifests import read_yaml_manifest
from fi_doctor.model import Given, Variable

LARGEST_BYTES = 1 << 20
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)")
_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def read_env_file(path: Path) -> Given:
    """The variables of a file of NAME=value lines. Errors: DataError with the lines that are none."""
    from dotenv.parser import parse_stream  # noqa: PLC0415 - where such a file is given

    bindings = list(parse_stream(io.StringIO(_text(path))))
    wrong = [f"line {one.original.line}: {one.original.string.strip()[:60]!r}" for one in bindings if one.error]
    if wrong:
        raise DataError(f"{str(path)!r} is no file of variables", why="; ".join(wrong), todo="NAME=value, one a line")
    variables = {
        one.key: Variable(value=one.value, line=_line_of(one.original.string, one.original.line))
        for one in bindings
        if one.key
    }
    return Given(file=str(path), part="", variables=variables)


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


def read_dockerfile(path: Path, text: str) -> tuple[Given, ...]:
    """What the last stage has, with what it takes over of earlier stages; a build argument's value is not known."""
    from dockerfile_parse import DockerfileParser  # noqa: PLC0415 - where such a file is given

    stages: dict[str, Given] = {}
    entries: dict[str, tuple[str, ...]] = {}
    now, image = Given(file=str(path), part=""), ""
    entry: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    awaited, line, name = "", 0, ""
    for one in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:
        word, value = one["instruction"], one["value"]
        if awaited:
            awaited = "" if one["content"].strip() == awaited else awaited
            continue
        if word in ("RUN", "COPY") and (found := _HEREDOC.search(value)):
            awaited = found[1]
        elif word == "FROM":
            if name:
                stages[name], entries[name] = now, entry
            base, _, rest = value.partition(" ")
            image, name = base, rest.strip().lower().removeprefix("as ").strip()
            now = stages.get(base.lower(), Given(file=str(path), part=""))
            entry, command = entries.get(base.lower(), ()), ()
        elif word == "ENV":
            added = _environment(value, one["startline"] + 1, now.variables)
            now = msgspec.structs.replace(now, variables={**now.variables, **added})
        elif word == "ENTRYPOINT":
            entry, command, line = _words(value), (), one["startline"] + 1
        elif word == "CMD":
            command, line = _words(value), one["startline"] + 1
    served = served_by((*entry, *command), image, has_entry=bool(entry))
    line = line if served.server else 0
    own = {variable: Variable(value=value, line=line) for variable, value in served.variables.items()}
    variables = {**now.variables, **own}
    return (msgspec.structs.replace(now, server=served.server, words=served.words, line=line, variables=variables),)


def _environment(value: str, line: int, known: dict[str, Variable]) -> dict[str, Variable]:
    """The variables of an ENV instruction: "A=1 B=two" or the old "A one value"."""
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    if words and "=" not in words[0]:
        name, _, rest = value.strip().partition(" ")
        return {name: Variable(value=_expanded(rest.strip(), known), line=line)}
    pairs = (_PAIR.fullmatch(word) for word in words)
    return {pair[1]: Variable(value=_expanded(pair[2], known), line=line) for pair in pairs if pair}


def _expanded(value: str, known: dict[str, Variable]) -> str | None:
    """With variables of the file put in; None where one of them is not known here."""
    missing = False

    def put(found: re.Match[str]) -> str:
        nonlocal missing
        one = known.get(found[1] or found[2])
        missing = missing or one is None or one.value is None
        return "" if one is None or one.value is None else one.value

    text = re.sub(r"\$(?:\{(\w+)\}|(\w+))", put, value)
    return None if missing or "${" in text else text


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
