"""What `check`, `report` and `warm` were asked for, as typed, and the earliest moment at which reading can begin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from fi_doctor.cli import emit, giving, outputs, parse, serving, streams, yielding
from fi_doctor.errors import UsageError
from fi_doctor.facts import Gathering
from fi_doctor.facts.binaries import Reader
from fi_doctor.facts.sources import unread
from fi_doctor.model import Depth

if TYPE_CHECKING:
    from fi_doctor.knowledge.policies import Written
    from fi_doctor.model.deployed import Wanted
    from fi_doctor.model.given import Stated


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `check` and `report` as they were typed, and then as they are settled; None: not typed."""

    python: str | None = None
    as_user: str | None = None  # NAME|UID[:GROUP]
    pid: int | None = None
    from_file: str | None = None
    example: str | None = None
    as_recorded: bool = False
    depth: str | None = None
    budget: str | None = None
    features: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    rows: str | None = None
    jobs: int | None = None
    memory: str | None = None
    fresh_cache: bool = False
    gentle: bool = False
    binaries: tuple[str, ...] = ()  # files and folders
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    config: str | None = None
    no_config: bool = False
    explain_gate: bool = False
    quiet: bool = False
    model: str | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: bool = False
    kv_cache_dtype: str | None = None
    env_files: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    vllm_args: str | None = None
    prove: bool = False
    prove_vllm: bool = False
    knowledge: str | None = None
    # Of these nothing is typed.
    is_called: bool = False  # by a program, that takes the report itself: nothing is written, no variable is read
    policy: Written | None = None
    targets: tuple[outputs.Target, ...] = ()
    wanted: Wanted | None = None  # what --model and its companions come to
    stated: tuple[Stated, ...] = ()  # what those files and words set
    origins: dict[str, str] = {}  # key -> what messages call the place where its value stands
    sources: dict[str, str] = {}  # the same of the keys whose value somebody gave

    @property
    def is_recorded(self) -> bool:
        """Whether a recording is judged, and not this machine."""
        return self.from_file is not None or self.example is not None

    def origin(self, key: str) -> str:
        """What messages call the place where the value of a key stands: "--budget", "fi-doctor.toml: budget"."""
        return self.origins.get(key, f"--{key}")


class AskedWarm(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `warm` as they were typed."""

    python: str | None = None
    features: tuple[str, ...] = ()
    is_all: bool = False
    jobs: int = 0
    memory: str = "auto"
    budget: str = "8h"
    is_dry: bool = False
    is_forced: bool = False
    is_json: bool = False
    gentle: bool = False
    quiet: bool = False


def begin_warm(asked: AskedWarm) -> Gathering:
    """Check the words of `warm`, then begin to read this machine."""
    if asked.is_all and asked.features:
        raise UsageError("--all and --feature: all rows or some of them", todo="fi-doctor warm --all")
    check_python(asked.python, "warm")
    streams.check_stdout()
    if asked.gentle:
        yielding.give_way()
    return gathering(interpreter(asked.python), calls=unread)


def begin_check(asked: Asked, say: Callable[[str], None] = emit.say) -> tuple[Asked, Gathering | None]:
    """`begin` with what the policy and variables say where nothing was typed."""
    from fi_doctor.cli.settle import settle

    _check_source(asked)
    if asked.gentle:
        yielding.give_way()
    return begin(settle(asked), say)


def begin(asked: Asked, say: Callable[[str], None] = emit.say) -> tuple[Asked, Gathering | None]:
    """Check the words, then begin to read this machine; nothing is read where a recording is judged.

    say: is given a line for what is set and cannot be judged.

    Apart from the commands, because reading waits for children (the examined interpreter, nvcc) while everything else
    is imported and loaded: a third of a static check.
    """
    _check_source(asked)
    asked = _with_wanted(_with_stated(_ready(asked), say))
    _check_proving(asked)
    if asked.is_recorded:
        return asked, None
    python, environ, who = serving.examined(asked.python, asked.as_user, asked.pid)
    return asked, gathering(python, environ, serving=who, binaries=Reader(asked.binaries))


def begin_locked(
    asked: Asked, path: str | None, *, is_locked: bool, is_frozen: bool, is_thorough: bool
) -> tuple[Asked, Gathering]:
    """`begin_check` for what a lock stands for: without CUDA, and of vLLM only what is not remembered."""
    from fi_doctor.cli.settle import settle

    _check_options(path, is_locked=is_locked, is_frozen=is_frozen, is_thorough=is_thorough)
    _check_unmeasured(asked)
    if asked.gentle:
        yielding.give_way()
    asked = _ready(settle(asked))
    return asked, quick_gathering(asked)


def begin_lock(asked: Asked) -> tuple[Asked, Gathering | None]:
    """`begin`, where --python may stand beside --from: the interpreter with which the report is compared."""
    check_python(asked.python, "lock")
    begun, gathering = begin(asked if asked.from_file is None else msgspec.structs.replace(asked, python=None))
    return msgspec.structs.replace(begun, python=asked.python), gathering


def quick_gathering(asked: Asked) -> Gathering:
    """Begin to read what a lock compares."""
    return gathering(interpreter(asked.python), asks_cuda=False, calls=unread)


def interpreter(python: str | None) -> str:
    """The one that --python names, else our own."""
    return sys.executable if python is None else python


def gathering(python: str, environ: dict[str, str] | None = None, **options: Any) -> Gathering:
    """Begin to read what belongs to an interpreter, and of its packages what is not remembered."""
    from fi_doctor.facts.remembered import memory_folder
    from fi_doctor.locking.readings import Readings

    readings = Readings(memory_folder())
    readers = {name: getattr(readings, name) for name in ("vllm", "calls", "named", "libraries")}
    return Gathering(python, environ, **{**readers, **options})


def _ready(asked: Asked) -> Asked:
    """The same with the depth looked at, and where the report goes, once it is known that it can be written there."""
    if asked.depth is not None:
        parse.choice(asked.depth, [depth.value for depth in Depth], asked.origin("depth"))
    if asked.is_called:
        return asked
    if not asked.targets:
        asked = msgspec.structs.replace(asked, targets=outputs.targets(asked.formats, "--format", asked.output))
    outputs.check(asked.targets)
    return asked


def _with_wanted(asked: Asked) -> Asked:
    """The same with what is to be served, as --model and --vllm-args say together."""
    given = {"--tp": asked.tp, "--pp": asked.pp, "--dp": asked.dp, "--kv-cache-dtype": asked.kv_cache_dtype}
    if asked.model is None and asked.vllm_args is None:
        for option in (*(name for name, value in given.items() if value is not None), *(["--ep"] if asked.ep else [])):
            raise UsageError(f"{option} without --model", todo="fi-doctor check --model openai/gpt-oss-20b --tp 2")
        return asked
    if asked.model is not None and asked.as_recorded:
        raise UsageError("--model and --as-recorded: nothing is judged then", todo="leave one of the two out")
    from fi_doctor.cli import modelling

    wanted = modelling.wanted(asked)
    if wanted is not None:
        variables = tuple(one.name for one in asked.stated if one.kind == "env")
        wanted = msgspec.structs.replace(wanted, variables=variables)
    return msgspec.structs.replace(asked, wanted=wanted)


def _with_stated(asked: Asked, say: Callable[[str], None]) -> Asked:
    """The same with the settings that files and words give, which are read here."""
    obstacle = "--as-recorded" if asked.as_recorded else ""
    stated = giving.read(asked.env_files, asked.manifests, asked.vllm_args, say=say, obstacle=obstacle)
    return msgspec.structs.replace(asked, stated=stated)


def _check_source(asked: Asked) -> None:
    recorded = [
        name for name, value in (("--from", asked.from_file), ("--example", asked.example)) if value is not None
    ]
    check_python(asked.python, "check")
    serving.check(asked.as_user, asked.pid, recorded=recorded[0] if recorded else "")
    if recorded and asked.gentle:
        raise UsageError(f"--gentle: nothing is run with {recorded[0]}", todo="leave one of the two out")
    if len(recorded) > 1:
        raise UsageError("--from and --example: one recording at a time", todo="fi-doctor check --example NAME")
    if recorded and asked.python is not None:
        raise UsageError(f"--python: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if recorded and asked.binaries:
        raise UsageError(f"--binary: nothing is examined with {recorded[0]}", todo="leave one of the two out")
    if "" in asked.binaries:
        raise UsageError("--binary: '' names no file", todo="fi-doctor check --binary path/to/extension.so")
    if asked.as_recorded and not recorded:
        raise UsageError(
            "--as-recorded: there is no recording", todo="fi-doctor check --from report.yaml --as-recorded"
        )


def _check_proving(asked: Asked) -> None:
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


def check_python(python: str | None, command: str) -> None:
    """UsageError where it names none."""
    if python == "":
        raise UsageError(
            "--python: '' names no interpreter", todo=f'fi-doctor {command} --python "$(command -v python3)"'
        )


def _check_options(path: str | None, *, is_locked: bool, is_frozen: bool, is_thorough: bool) -> None:
    """UsageError where a lock is named, or how to take it, and none is to be taken."""
    given = {repr(path): path is not None, "--frozen": is_frozen, "--thorough": is_thorough}
    for words, is_given in given.items():
        if is_given and not is_locked:
            why = f"a lock is taken by `fi-doctor check --locked{f' {path}' if path else ''}`"
            raise UsageError(f"unexpected {words} without --locked", why=why, todo="fi-doctor check --help")


def _check_unmeasured(asked: Asked) -> None:
    """UsageError where options speak of a recording."""
    _check_source(asked)
    given = {
        "--from": asked.from_file is not None,
        "--example": asked.example is not None,
        "--as-recorded": asked.as_recorded,
        "--env-file": bool(asked.env_files),
        "--manifest": bool(asked.manifests),
        "--vllm-args": asked.vllm_args is not None,
        "--prove": asked.prove,
        "--prove-vllm": asked.prove_vllm,
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
