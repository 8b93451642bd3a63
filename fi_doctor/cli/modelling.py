"""What `--model` names, and how the options say that it is deployed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fi_doctor.errors import UsageError
from fi_doctor.facts import model_cache, served_model
from fi_doctor.knowledge import models
from fi_doctor.model import Deployment, ServedModel
from fi_doctor.model.deployed import Wanted

if TYPE_CHECKING:
    from fi_doctor.cli.asked import Asked

# What vLLM's parser takes for one another (engine/arg_utils.py, 0.33.0).
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-O": "--optimization-level",
    "-dcp": "--decode-context-parallel-size",
    "-sc": "--speculative-config",
}
_NUMBERS = {
    "--tensor-parallel-size": "tp",
    "--pipeline-parallel-size": "pp",
    "--data-parallel-size": "dp",
}
_MOST = 4096


def wanted(asked: Asked) -> Wanted | None:
    """What --model, --tp and their companions and --vllm-args say together; None where they name no model.

    Errors: UsageError, DataError.
    """
    words = words_of(asked.vllm_args or "")
    deployment = deployed(
        words, tp=asked.tp, pp=asked.pp, dp=asked.dp, ep=asked.ep, kv_cache_dtype=asked.kv_cache_dtype
    )
    named = model_in(words)
    if asked.model is not None and named and asked.model != named:
        raise UsageError(f"--model {asked.model} and {named} in --vllm-args", todo="give one of the two")
    word = asked.model if asked.model is not None else named
    if asked.model is None and not named:
        return None
    model, config = served(word)
    return Wanted(model=model, deployment=deployment, config=config)


def words_of(text: str) -> tuple[str, ...]:
    """The words of --vllm-args, as a shell splits them. Errors: UsageError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        why = f"{str(error).lower()} in {text!r}"
        raise UsageError("--vllm-args cannot be split into words", why=why, todo="quote it once more") from error


def served(word: str) -> tuple[ServedModel, dict[str, Any]]:
    """The model that a path, a repository in Hugging Face's cache, or a name that is known stands for.

    With what its configuration holds. Errors: UsageError where it stands for nothing, DataError where it is unreadable.
    """
    if not word:
        raise UsageError("--model: '' names no model", todo="fi-doctor check --model gpt-oss-20b")
    path: Path | None = Path(word).expanduser()
    if not os.path.lexists(str(path)):
        path = model_cache.cached_config(word, os.environ) if model_cache.is_repository(word) else None
    if path is not None:
        config, source = served_model.read_config(path), str(served_model.config_path(path))
    elif known := models.config_of(word):
        config, source = known, f"preset {word}"
    else:
        why = "there is no such file or folder, and it is neither in Hugging Face's cache nor one of those"
        why = f"{why} that are known: {', '.join(models.presets())}"
        todo = "name the folder of its config.json"
        raise UsageError(f"--model: {word[:100]!r} is not found", why=why, todo=todo)
    return served_model.model_of(config, word, source), config


def deployed(  # noqa: PLR0913 - an option each
    words: tuple[str, ...],
    *,
    tp: int | None,
    pp: int | None,
    dp: int | None,
    ep: bool,
    kv_cache_dtype: str | None,
) -> Deployment:
    """What the words of vLLM's command line and our own options say together. Errors: UsageError where they differ."""
    flags = _apart(dict(_flags(words)))
    sizes = {}
    for name, short in _NUMBERS.items():
        own = {"tp": tp, "pp": pp, "dp": dp}[short]
        sizes[short] = _size(name, flags.pop(name, None), own, f"--{short}")
    dtype = flags.pop("--kv-cache-dtype", None)
    if dtype and kv_cache_dtype and dtype != kv_cache_dtype:
        raise UsageError(f"--kv-cache-dtype {kv_cache_dtype} and {dtype} in --vllm-args", todo="give one of the two")
    expert = flags.pop("--enable-expert-parallel", None) is not None
    return Deployment(
        tensor_parallel=sizes["tp"],
        pipeline_parallel=sizes["pp"],
        data_parallel=sizes["dp"],
        expert_parallel=ep or expert,
        kv_cache_dtype=kv_cache_dtype or dtype or "auto",
        flags=flags,
    )


def model_in(words: tuple[str, ...]) -> str:
    """The model that a command line names: the word behind `serve`, or that of --model; "" where it names none."""
    flags = dict(_flags(words))
    return flags.get("", "") or flags.get("--model", "")


def _flags(words: tuple[str, ...]) -> list[tuple[str, str]]:
    """Each option with its value, "" for a switch; the model itself under ""."""
    return [(name, " ".join(values)) for name, values in options_of(words)]


def options_of(words: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each option with the words behind it, none for a switch; the model itself under "". Errors: UsageError."""
    rest = list(words)
    while rest and rest[0] in ("vllm", "serve", "exec"):
        rest.pop(0)
    found: list[tuple[str, tuple[str, ...]]] = []
    if rest and not rest[0].startswith("-"):
        found.append(("", (rest.pop(0),)))
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            raise UsageError(
                f"--vllm-args: {word!r} belongs to no option",
                why=f"it stands after {found[-1][0] or 'the model'} {' '.join(found[-1][1])}".rstrip() if found else "",
                todo="fi-doctor check --vllm-args '--tensor-parallel-size 8 --enforce-eager'",
            )
        name, given, value = word.partition("=")
        if name[:2] == "-O" and name[2:].isdigit():  # -O3
            name, given, value = "-O", "=", name[2:]
        base, dot, below = name.partition(".")
        base = _SHORT.get(base, base)
        name = f"{base.replace('_', '-') if base.startswith('--') else base}{dot}{below}"
        taken = [value] if given else []
        while not given and rest and not _is_option(rest[0]):
            taken.append(rest.pop(0))
        found.append((name, tuple(taken)))
    return found


def _apart(flags: dict[str, str]) -> dict[str, str]:
    """With configurations that are given as JSON taken apart: "--attention-config" -> "--attention-config.backend"."""
    found: dict[str, str] = {}
    for name, value in flags.items():
        table = None
        if name.endswith("-config") and value.startswith("{"):
            with contextlib.suppress(msgspec.DecodeError, RecursionError):
                table = msgspec.json.decode(value, type=dict[str, Any])
        if table is None:
            found[name] = value
        else:
            found |= {f"{name}.{key}": one if isinstance(one, str) else json.dumps(one) for key, one in table.items()}
    return found


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


def _size(name: str, written: str | None, own: int | None, option: str) -> int:
    if written is not None:
        if not written.isdecimal() or not 1 <= int(written) <= _MOST:
            raise UsageError(f"--vllm-args: {name} {written!r} is not a number of GPUs", todo=f"{name} 8")
        if own is not None and own != int(written):
            raise UsageError(f"{option} {own} and {name} {written} in --vllm-args", todo="give one of the two")
        return int(written)
    return own or 1
