"""What `check`, `report` and `warm` were asked for, as typed, and the earliest moment at which reading can begin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from fi_doctor.cli import consistent, emit, giving, outputs, parse, serving, streams, yielding
from fi_doctor.errors import UsageError
from fi_doctor.facts import Gathering
from fi_doctor.facts.binaries import Reader
from fi_doctor.facts.sources import unread
from fi_doctor.model import Depth

if TYPE_CHECKING:
    from fi_doctor.knowledge.policies import Written
    from fi_doctor.model.deployed import Wanted
    from fi_doctor.model.given import Stated
    from fi_doctor.model.targets import Target


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
    redact: bool = False
    config: str | None = None
    no_config: bool = False
    explain_gate: bool = False
    quiet: bool = False
    is_watched: bool = False
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
    target: str | None = None
    warm_list: str | None = None
    # Of these nothing is typed.
    is_called: bool = False  # by a program, that takes the report itself: nothing is written, no variable is read
    is_fleet: bool = False  # it is asked of many machines at once
    policy: Written | None = None
    targets: tuple[outputs.Target, ...] = ()
    aim: Target | None = None  # the machine that --target describes
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
    listed: str | None = None  # file that `check --warm-list` wrote
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
    given = {"--all": asked.is_all, "--feature": bool(asked.features), "--list": asked.listed is not None}
    if sum(given.values()) > 1:
        named = " and ".join(name for name, is_given in given.items() if is_given)
        raise UsageError(f"{named}: all rows or some of them", todo="fi-doctor warm --all")
    consistent.named_python(asked.python, "warm")
    streams.check_stdout()
    if asked.gentle:
        yielding.give_way()
    return gathering(interpreter(asked.python), calls=unread)


def begin_check(asked: Asked, say: Callable[[str], None] = emit.say) -> tuple[Asked, Gathering | None]:
    """`begin` with what the policy and variables say where nothing was typed."""
    from fi_doctor.cli.settle import settle

    consistent.source(asked)
    if asked.gentle:
        yielding.give_way()
    return begin(settle(asked), say)


def begin(asked: Asked, say: Callable[[str], None] = emit.say) -> tuple[Asked, Gathering | None]:
    """Check the words, then begin to read this machine; nothing is read where a recording is judged.

    say: is given a line for what is set and cannot be judged.

    Apart from the commands, because reading waits for children (the examined interpreter, nvcc) while everything else
    is imported and loaded: a third of a static check.
    """
    consistent.source(asked)
    asked = _with_wanted(_with_stated(_with_target(_ready(asked)), say))
    consistent.proving(asked)
    if asked.is_recorded:
        return asked, None
    python, environ, who = serving.examined(asked.python, asked.as_user, asked.pid)
    aimed = {}
    if asked.aim is not None:
        from fi_doctor.targeting import gpus_of

        aimed = {"gpus": gpus_of(asked.aim)}
    return asked, gathering(python, environ, serving=who, binaries=Reader(asked.binaries), **aimed)


def begin_locked(
    asked: Asked, path: str | None, *, is_locked: bool, is_frozen: bool, is_thorough: bool
) -> tuple[Asked, Gathering]:
    """`begin_check` for what a lock stands for: without CUDA, and of vLLM only what is not remembered."""
    from fi_doctor.cli.settle import settle

    consistent.of_lock(path, is_locked=is_locked, is_frozen=is_frozen, is_thorough=is_thorough)
    consistent.unmeasured(asked)
    if asked.gentle:
        yielding.give_way()
    asked = _ready(settle(asked))
    return asked, quick_gathering(asked)


def begin_lock(asked: Asked) -> tuple[Asked, Gathering | None]:
    """`begin`, where --python may stand beside --from: the interpreter with which the report is compared."""
    consistent.named_python(asked.python, "lock")
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


def _with_target(asked: Asked) -> Asked:
    """The same with the machine that --target describes, which is judged by files alone unless more is asked for."""
    if asked.warm_list is not None:
        consistent.listing(asked)
        emit.check_writable(asked.warm_list, "--warm-list")
    if asked.target is None:
        return asked
    consistent.elsewhere(asked)
    from fi_doctor.cli import targeting

    return msgspec.structs.replace(asked, aim=targeting.target(asked.target), depth=asked.depth or Depth.STATIC.value)


def _with_wanted(asked: Asked) -> Asked:
    """The same with what is to be served, as --model and --vllm-args say together."""
    if asked.model is None and asked.vllm_args is None:
        _refuse_without_model(asked)
        return asked
    if asked.model is not None and asked.as_recorded:
        raise UsageError("--model and --as-recorded: nothing is judged then", todo="leave one of the two out")
    from fi_doctor.cli import modelling

    wanted = modelling.wanted(asked)
    if wanted is None:
        _refuse_without_model(asked)
    else:
        variables = tuple(one.name for one in asked.stated if one.kind == "env")
        wanted = msgspec.structs.replace(wanted, variables=variables)
    return msgspec.structs.replace(asked, wanted=wanted)


def _refuse_without_model(asked: Asked) -> None:
    given = {"--tp": asked.tp, "--pp": asked.pp, "--dp": asked.dp, "--kv-cache-dtype": asked.kv_cache_dtype}
    for option in (*(name for name, value in given.items() if value is not None), *(["--ep"] if asked.ep else [])):
        raise UsageError(f"{option} without --model", todo="fi-doctor check --model openai/gpt-oss-20b --tp 2")


def _with_stated(asked: Asked, say: Callable[[str], None]) -> Asked:
    """The same with the settings that files and words give, which are read here."""
    obstacle = "--as-recorded" if asked.as_recorded else ""
    stated = giving.read(asked.env_files, asked.manifests, asked.vllm_args, say=say, obstacle=obstacle)
    return msgspec.structs.replace(asked, stated=stated)
