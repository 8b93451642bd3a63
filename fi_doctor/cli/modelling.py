"""What `--model` names, and how the options say that it is deployed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fi_doctor.diagnosis.deployment import ENGINE, SWITCHES
from fi_doctor.errors import UsageError
from fi_doctor.facts import model_cache, served_model
from fi_doctor.facts.environment import shown
from fi_doctor.facts.serve_words import served_by
from fi_doctor.knowledge import models
from fi_doctor.model import Deployment, ServedModel
from fi_doctor.model.deployed import Wanted
from fi_doctor.model.numbers import whole

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
_EXPERT, _DTYPE = "--enable-expert-parallel", "--kv-cache-dtype"
_SWITCHES = (_EXPERT, *SWITCHES)
_MOST = 4096
_SHOWN = 40  # characters of what cannot be split
_LONGEST = 200  # of a name that is compared with those that are known


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
        words = tuple(shlex.split(text))
    except ValueError as error:
        begun = max(text.rfind(quote) for quote in "'\"\\")  # and not all of it: a key may be among the words
        why = f"{str(error).lower()} in {text[begun : begun + _SHOWN]!r}"
        raise UsageError("--vllm-args cannot be split into words", why=why, todo="quote it once more") from error
    found = served_by(words)
    if found.variables:
        raise UsageError(
            f"--vllm-args: {next(iter(found.variables))} is a variable, and no word of vLLM's",
            todo="fi-doctor check --env-file FILE, with that line in it",
        )
    return found.words if found.server == "vllm" else words


def served(word: str) -> tuple[ServedModel, dict[str, Any]]:
    """The model that a path, a repository in Hugging Face's cache, or a name that is known stands for.

    With what its configuration holds. Errors: UsageError where it stands for nothing, DataError where it is unreadable.
    """
    if not word:
        raise UsageError("--model: '' names no model", todo="fi-doctor check --model gpt-oss-20b")
    path: Path | None = model_cache.expanded(word)
    if not os.path.lexists(str(path)):
        path = model_cache.cached_config(word, os.environ) if model_cache.is_repository(word) else None
    if path is not None:
        config, source = served_model.read_config(path), str(served_model.config_path(path))
    elif known := models.config_of(word):
        config, source = known, f"preset {word}"
    else:
        raise _not_found(word)
    return served_model.model_of(config, word, source), config


def _not_found(word: str) -> UsageError:
    cached = "with a config.json in Hugging Face's cache"
    why = f"there is no such file or folder, and it is neither {cached} nor a name that is known"
    near = models.nearest(word[:_LONGEST])
    why += f"; the nearest of those: {', '.join(near)}" if near else f": {', '.join(models.presets())}"
    todo = "name the folder of its config.json" + (f", or fi-doctor check --model {near[0]}" if near else "")
    return UsageError(f"--model: {word[:100]!r} is not found", why=why, todo=todo)


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
    flags = _apart(_flags(words))
    _refuse_half_said(flags)
    sizes = {}
    for name, short in _NUMBERS.items():
        own = {"tp": tp, "pp": pp, "dp": dp}[short]
        sizes[short] = _size(name, flags.pop(name, None), own, f"--{short}")
    dtype = flags.pop(_DTYPE, None)
    if dtype and kv_cache_dtype and dtype != kv_cache_dtype:
        raise UsageError(f"--kv-cache-dtype {kv_cache_dtype} and {dtype} in --vllm-args", todo="give one of the two")
    expert = flags.pop(_EXPERT, None) is not None
    return Deployment(
        tensor_parallel=sizes["tp"],
        pipeline_parallel=sizes["pp"],
        data_parallel=sizes["dp"],
        expert_parallel=ep or expert,
        kv_cache_dtype=kv_cache_dtype or dtype or "auto",
        flags={name: value if name in ("", *ENGINE) else shown(of_value(name), value) for name, value in flags.items()},
    )


def model_in(words: tuple[str, ...]) -> str:
    """The model that a command line names: the word behind `serve`, or that of --model; "" where it names none."""
    flags = _flags(words)
    named = flags.get("", "") or flags.get("--model", "")
    if "--model" in flags and not named:
        raise UsageError("--vllm-args: --model names no model", todo="--model openai/gpt-oss-20b")
    return named


def _flags(words: tuple[str, ...]) -> dict[str, str]:
    """Each option with its value, "" for a switch that is on; the model itself under "". Of several the last counts."""
    found: dict[str, str] = {}
    for name, values in options_of(words):
        if (switch := name.replace("--no-", "--", 1)) != name and switch in _SWITCHES:
            found.pop(switch, None)
        else:
            found[name] = " ".join(values)
    return found


def _refuse_half_said(flags: Mapping[str, str]) -> None:
    """UsageError for what vLLM's parser refuses or takes for another option, where the answer hangs on it."""
    deciding = (*_NUMBERS, *_SWITCHES, _DTYPE, *(name for name in ENGINE if "." not in name))
    for name, value in flags.items():
        whole = [one for one in deciding if one.startswith(name) and one != name] if len(name) > 2 else []
        if whole:
            raise UsageError(f"--vllm-args: {name} may be short for {' or '.join(whole)}", todo="write it out")
        short = f"-{name.lstrip('-').rstrip('0123456789')}"
        if name != short and short in _SHORT:
            raise UsageError(f"--vllm-args: vLLM has no {name}", todo=f"{_SHORT[short]}, or {short} and its value")
        if name in _SWITCHES and value:
            raise UsageError(f"--vllm-args: {name} is a switch, and takes no {value!r}", todo=name)
        if not value and name in (_DTYPE, *ENGINE) and name not in _SWITCHES:
            raise UsageError(f"--vllm-args: {name} names no value", todo=f"{name} auto")
    said: dict[str, str] = {}
    for name, value in flags.items():
        other = said.setdefault(ENGINE.get(name, name), name)
        if flags[other] != value:
            raise UsageError(f"--vllm-args: {other} {flags[other]} and {name} {value}", todo="give one of the two")


def options_of(words: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Each option with the words behind it, none for a switch; the model itself under "". Errors: UsageError.

    The model may also stand behind one of the switches that are known here.
    """
    rest = list(words)
    while rest and rest[0] in ("vllm", "serve", "exec"):
        rest.pop(0)
    found: list[tuple[str, tuple[str, ...]]] = []
    if rest and not rest[0].startswith("-"):
        found.append(("", (rest.pop(0),)))
    while rest:
        word = rest.pop(0)
        if found and found[-1][0] in _SWITCHES and not _is_option(word) and "" not in dict(found):
            found.append(("", (word,)))
            continue
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
        while not given and rest and not _is_option(rest[0]) and name not in _SWITCHES:
            taken.append(rest.pop(0))
        found.append((name, tuple(taken)))
    return found


def of_value(name: str) -> str:
    """What an option calls its value: the last of "--compilation-config.pass_config.x", since PASS names a secret."""
    return name.rpartition(".")[2]


def _apart(flags: Mapping[str, str]) -> dict[str, str]:
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
        number = whole(written)
        if number is None or not 1 <= number <= _MOST:
            raise UsageError(f"--vllm-args: {name} {written!r} is not a number of GPUs", todo=f"{name} 8")
        if own is not None and own != number:
            raise UsageError(f"{option} {own} and {name} {written} in --vllm-args", todo="give one of the two")
        return number
    return own or 1
