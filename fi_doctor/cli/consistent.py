"""Options that cannot stand beside each other, or say nothing; UsageError names them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from fi_doctor.cli import serving
from fi_doctor.errors import UsageError
from fi_doctor.model import Depth

if TYPE_CHECKING:
    from fi_doctor.cli.asked import Asked


def source(asked: Asked) -> None:
    """What is examined: one machine, or one recording."""
    recorded = [
        name for name, value in (("--from", asked.from_file), ("--example", asked.example)) if value is not None
    ]
    named_python(asked.python, "check")
    serving.check(asked.as_user, asked.pid, recorded=recorded[0] if recorded else "")
    if recorded and asked.gentle:
        raise UsageError(f"--gentle: nothing is run with {recorded[0]}", todo="leave one of the two out")
    if len(recorded) > 1:
        raise UsageError("--from and --example: one recording at a time", todo="fi-doctor check --example NAME")
    if recorded and asked.python is not None:
        raise UsageError(f"--python: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if recorded and asked.binaries:
        raise UsageError(f"--binary: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if asked.is_watched and (recorded or asked.quiet):
        other = [*recorded, "--quiet"][0]
        raise UsageError(f"--watch and {other}: there is nothing to watch", todo="leave one of the two out")
    if "" in asked.binaries:
        raise UsageError("--binary: '' names no file", todo="fi-doctor check --binary path/to/extension.so")
    if asked.as_recorded and not recorded:
        raise UsageError(
            "--as-recorded: there is no recording", todo="fi-doctor check --from report.yaml --as-recorded"
        )


def proving(asked: Asked) -> None:
    """UsageError where something is to be tried and nothing is to be run."""
    depths = {"--prove": (Depth.STATIC.value,), "--prove-vllm": (Depth.STATIC.value, Depth.BUILD.value)}
    given = {"--prove": asked.prove, "--prove-vllm": asked.prove_vllm}
    for option in (name for name, is_given in given.items() if is_given):
        if asked.is_recorded:
            source = "--from" if asked.from_file is not None else "--example"
            why = "what is to be proven is tried on the machine that it is for"
            raise UsageError(f"{option}: nothing is run with {source}", why=why, todo="leave one of the two out")
        if asked.depth in depths[option]:
            raise UsageError(
                f"{option} and {asked.origin('depth')} {asked.depth}: nothing is tried at that depth",
                todo=f"--depth {'run' if asked.prove_vllm else 'build'}",
            )
    if asked.prove_vllm and asked.wanted is None:
        raise UsageError("--prove-vllm without --model", todo="fi-doctor check --model gpt-oss-20b --prove-vllm")


def elsewhere(asked: Asked) -> None:
    """UsageError where what is to be judged for --target can only be asked of the machine that is here."""
    given = {
        "--from": asked.from_file is not None,
        "--example": asked.example is not None,
        "--pid": asked.pid is not None,
        "--prove": asked.prove,
        "--prove-vllm": asked.prove_vllm,
    }
    for option in (name for name, is_given in given.items() if is_given):
        raise UsageError(f"{option} and --target: what --target describes is not here", todo="leave one of the two out")
    if asked.depth == Depth.RUN.value:
        raise UsageError(
            f"{asked.origin('depth')} run and --target: nothing can be run on a GPU that is not here",
            todo="--depth build compiles for it",
        )


def listing(asked: Asked) -> None:
    """UsageError where nothing is judged that a list could be of."""
    if asked.target is None:
        raise UsageError(
            "--warm-list without --target: it lists what is not compiled for a GPU that is not here",
            todo=f"fi-doctor check --target h100 --warm-list {shlex.quote(asked.warm_list or 'warm.txt')}",
        )


def named_python(python: str | None, command: str) -> None:
    """UsageError where it names none."""
    if python == "":
        raise UsageError(
            "--python: '' names no interpreter", todo=f'fi-doctor {command} --python "$(command -v python3)"'
        )


def of_lock(path: str | None, *, is_locked: bool, is_frozen: bool, is_thorough: bool) -> None:
    """UsageError where a lock is named, or how to take it, and none is to be taken."""
    given = {repr(path): path is not None, "--frozen": is_frozen, "--thorough": is_thorough}
    for words, is_given in given.items():
        if is_given and not is_locked:
            why = f"a lock is taken by `fi-doctor check --locked{f' {path}' if path else ''}`"
            raise UsageError(f"unexpected {words} without --locked", why=why, todo="fi-doctor check --help")


def unmeasured(asked: Asked) -> None:
    """UsageError where options speak of a recording."""
    source(asked)
    given = {
        "--from": asked.from_file is not None,
        "--example": asked.example is not None,
        "--as-recorded": asked.as_recorded,
        "--env-file": bool(asked.env_files),
        "--manifest": bool(asked.manifests),
        "--vllm-args": asked.vllm_args is not None,
        "--prove": asked.prove,
        "--prove-vllm": asked.prove_vllm,
        "--target": asked.target is not None,
        "--redact": asked.redact,
    }
    others = {"--as-user": asked.as_user is not None, "--pid": asked.pid is not None}
    for option in (name for name, is_given in others.items() if is_given):
        raise UsageError(
            f"{option} and --locked: a lock holds what this user and this shell see", todo="leave one of the two out"
        )
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} and --locked: the lock says what was measured", todo="leave one of the two out")
    of_model = {
        "--model": asked.model is not None,
        "--tp": asked.tp is not None,
        "--pp": asked.pp is not None,
        "--dp": asked.dp is not None,
        "--ep": asked.ep,
        "--kv-cache-dtype": asked.kv_cache_dtype is not None,
    }
    for option in (name for name, is_given in of_model.items() if is_given):
        raise UsageError(f"{option} and --locked: a lock says nothing of models", todo="leave one of the two out")
