"""Settings that options name: `--env-file`, `--manifest` and `--vllm-args`; all are read before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fi_doctor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fi_doctor.model import Given
    from fi_doctor.model.given import Stated

VLLM_ARGS = "--vllm-args"


def read(
    env_files: tuple[str, ...],
    manifests: tuple[str, ...],
    vllm_args: str | None,
    *,
    say: Callable[[str], None],
    obstacle: str = "",
) -> tuple[Stated, ...]:
    """All settings that are given, each with its place. obstacle: an option with which nothing is judged.

    say: is given a line for what cannot be judged.

    Errors: UsageError, DataError where a file or a command line cannot be read.
    """
    named = {"--env-file": env_files, "--manifest": manifests, VLLM_ARGS: () if vllm_args is None else (vllm_args,)}
    for option, names in named.items():
        if "" in names and option != VLLM_ARGS:
            raise UsageError(f"{option}: '' names no file", todo=f"fi-doctor check {option} FILE")
        if names and obstacle:
            raise UsageError(f"{option} and {obstacle}: nothing is judged then", todo="leave one of the two out")
    if not (env_files or manifests or vllm_args is not None) or obstacle:
        return ()
    from fi_doctor.facts.manifests import read_env_file, read_manifest

    files = [read_env_file(Path(name)) for name in env_files]
    parts = [part for name in manifests for part in _of_servers(read_manifest(Path(name)))]
    for given in parts:
        for what, why in given.unread.items():
            say(f"warning: {given.origin}: {what} is not judged: {why}")
    return (
        *(one for given in (*files, *parts) for one in _variables(given)),
        *(one for given in parts for one in _words(given, say)),
        *_typed(vllm_args or ""),
    )


def own(kv_cache_dtype: str | None) -> tuple[Stated, ...]:
    """What an option of ours says in vLLM's words, of which only vLLM can refuse the value."""
    from fi_doctor.model.given import Stated

    if kv_cache_dtype is None:
        return ()
    return (Stated(name="--kv-cache-dtype", kind="flag", value=kv_cache_dtype, file="the command line", server="vllm"),)


def _of_servers(found: tuple[Given, ...]) -> list[Given]:
    """Those parts of a manifest that start a server; all of them where none of them tells that."""
    servers = [one for one in found if one.server]
    return servers or list(found)


def _variables(given: Given) -> Iterable[Stated]:
    from fi_doctor.facts.environment import shown
    from fi_doctor.model.given import Stated
    from fi_doctor.model.secrets import HIDDEN

    for name, one in given.variables.items():
        value = None if one.value is None else shown(name, one.value)
        yield Stated(
            name=name,
            kind="env",
            value=None if value == HIDDEN else value,
            file=given.file,
            part=given.part,
            line=one.line,
            server=given.server,
            image=given.image,
        )


def _words(given: Given, say: Callable[[str], None]) -> Iterable[Stated]:
    """The flags of a part's command line; nothing of one that is no list of options, as a script's rest may be."""
    from msgspec.structs import replace

    if not given.server:
        return ()
    try:
        flags = _flags(given.words, given.file, given.server, part=given.part, line=given.line)
    except UsageError as error:
        say(f"warning: {given.origin}: its command line is not judged: {error.what.removeprefix(f'{VLLM_ARGS}: ')}")
        return ()
    return [replace(one, image=given.image) for one in flags]


def _typed(text: str) -> Iterable[Stated]:
    from fi_doctor.cli.modelling import words_of

    return _flags(words_of(text), VLLM_ARGS, "vllm")


def _flags(words: tuple[str, ...], file: str, server: str, *, part: str = "", line: int = 0) -> list[Stated]:
    from fi_doctor.cli.modelling import of_value, options_of
    from fi_doctor.facts.environment import shown
    from fi_doctor.model.given import Stated
    from fi_doctor.model.secrets import HIDDEN

    found = []
    for name, values in options_of(words):
        told = [shown(of_value(name), value) for value in values]
        if name:
            found.append(
                Stated(
                    name=name,
                    kind="flag",
                    value=None if HIDDEN in told else (told[0] if told else ""),
                    more=tuple(told[1:]),
                    file=file,
                    part=part,
                    line=line,
                    server=server,
                )
            )
    return found
