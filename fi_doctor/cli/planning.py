"""`fi-doctor plan`: two ends of a move, read and judged alike, and what differs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from fi_doctor.cli import asked as asking
from fi_doctor.cli import consistent, giving, outputs, targeting
from fi_doctor.errors import UsageError
from fi_doctor.model import Report, secrets
from fi_doctor.model.targets import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from fi_doctor.facts import Gathering
    from fi_doctor.model import Facts, KnowledgeBase, ProbeSpec
    from fi_doctor.model.plans import Plan

_A_FILE = re.compile(r"^-$|[/\\]|\.(?:json|ya?ml)$", re.IGNORECASE)
_EXAMPLE = "fi-doctor plan --to b200,vllm=0.33.0"
FORMATS = ("console", "json", "markdown")


class AskedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `plan` as they were typed."""

    to: tuple[str, ...] = ()
    source: str | None = None  # a target, or a report
    example: str | None = None
    python: str | None = None
    required: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    vllm_args: str | None = None
    formats: tuple[str, ...] = ()  # FORMAT or FORMAT:PATH
    output: str | None = None
    knowledge: str | None = None


def plan(asked: AskedPlan) -> int:
    """Write the plan; its code is the exit code."""
    wanted = outputs.targets(asked.formats, "--format", asked.output, forms=FORMATS)
    outputs.check(wanted)
    from fi_doctor.cli import emit, installed

    found = made(asked, lambda: installed.known(asked.knowledge), emit.say)
    from fi_doctor.reports import plans

    width, _ = emit.style()
    forms = {"json": plans.to_json, "markdown": plans.markdown}
    outputs.put(wanted, lambda one: forms.get(one.form, lambda it: plans.render(it, width=width))(found))
    emit.say(f"fi-doctor: {found.reason} (exit {found.code})")
    return found.code


def made(
    asked: AskedPlan,
    load: Callable[[], tuple[KnowledgeBase, tuple[ProbeSpec, ...]]],
    say: Callable[[str], None],
) -> Plan:
    """The plan. load: what is known, and the probes. say: is given a line for what cannot be judged.

    Errors: UsageError with what is near, DataError for a report, TargetError for an interpreter.
    """
    _check(asked)
    words = ",".join(asked.to)
    to = _described(words, "--to")
    begin = None if asked.source is None or _is_recorded(asked) else _described(asked.source, "--from")
    # Reading begins before anything else is imported: it waits for children.
    gathering = None if _is_recorded(asked) else _gathering(asked, begin)
    stated = giving.read(asked.env_files, asked.manifests, asked.vllm_args, say=say)
    from fi_doctor.moving import ends, judging, planning

    kb, specs = load()
    required, globbed = _features(asked.required, kb, specs)
    recorded = _recorded(asked) if gathering is None else None
    facts = _facts(recorded, gathering, kb, specs)
    if begin is not None:
        facts = ends.end(facts, _on(begin, facts, asked.source or ""), is_here=True).facts
    found = planning.plan(
        facts,
        _on(to, facts, words),
        required=required,
        globbed=globbed,
        known=judging.Known(kb, specs, stated),
        words=(asked.source or (f"--example {asked.example}" if asked.example else ""), words),
        recorded=recorded,
        is_here=recorded is None and begin is None,
    )
    return secrets.without(found, secrets.held(os.environ if gathering is None else gathering.environ, os.environ))


def _check(asked: AskedPlan) -> None:
    if not any(word.strip() for word in asked.to):
        raise UsageError("plan: --to names no move", why="what is not named stays as it is", todo=_EXAMPLE)
    consistent.named_python(asked.python, "plan")
    if asked.source is not None and asked.example is not None:
        raise UsageError("--from and --example: a move begins at one place", todo="leave one of the two out")
    if asked.python is not None and _is_recorded(asked):
        which = "--example" if asked.example is not None else "--from with a report"
        raise UsageError(f"--python: nothing is examined with {which}", todo="leave one of the two out")


def _is_recorded(asked: AskedPlan) -> bool:
    return asked.example is not None or (asked.source is not None and _is_file(asked.source))


def _is_file(words: str) -> bool:
    """Whether --from names a report and no target."""
    return bool(_A_FILE.search(words)) or os.path.lexists(words)


def _described(words: str, option: str) -> Target:
    try:
        return targeting.target(words, needs_gpu=False)
    except UsageError as error:
        said, why, todo = (
            text.replace("fi-doctor check --target", f"fi-doctor plan {option}").replace("--target", option)
            for text in (error.what, error.why, error.todo)
        )
        raise UsageError(said, why=why, todo=todo) from error


def _gathering(asked: AskedPlan, begin: Target | None) -> Gathering:
    aimed: dict[str, Any] = {}
    if begin is not None and begin.sm:
        from fi_doctor.targeting import gpus_of

        aimed = {"gpus": gpus_of(begin)}
    return asking.gathering(asking.interpreter(asked.python), **aimed)


def _recorded(asked: AskedPlan) -> Report:
    from fi_doctor.cli import commands

    return commands.recorded(asking.Asked(from_file=asked.source, example=asked.example))


def _facts(
    recorded: Report | None, gathering: Gathering | None, kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]
) -> Facts:
    from fi_doctor import upgraded
    from fi_doctor.diagnosis import symbols

    if recorded is not None:
        return upgraded.completed(recorded.facts)
    assert gathering is not None  # noqa: S101 - one of the two is there
    return gathering.finish(symbols.of(kb, specs))


def _on(target: Target, facts: Facts, words: str) -> Target:
    """The target with as many GPUs as are there, where it does not say how many. Errors: UsageError."""
    from fi_doctor.model import Missing

    gpus = () if isinstance(facts.gpus.gpus, Missing) else facts.gpus.gpus
    names_number = targeting.names_number(words)
    if target.sm:
        return target if names_number else replace(target, gpus=max(1, len(gpus)))
    if not names_number:
        return target
    sms = {gpu.sm for gpu in gpus if isinstance(gpu.sm, int)}
    if len(sms) != 1:
        raise UsageError("plan: gpus= and no GPU", why="of which kind they are is not known", todo=_EXAMPLE)
    name = gpus[0].name if gpus[0].name != "GPU" else ""
    return replace(target, sm=sms.pop(), name=name)


def _features(
    words: tuple[str, ...], kb: KnowledgeBase, specs: tuple[ProbeSpec, ...]
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The features that --require names, by name, and those of them that only a glob names. Errors: UsageError."""
    from fi_doctor.cli import commands, parse
    from fi_doctor.model import selects

    known = tuple(feature.id for feature in commands.listed_features(kb, specs))
    globs = parse.names(words, known, "--require")
    chosen = tuple(sorted(name for name in known if globs and selects(globs, name)))
    return chosen, frozenset(chosen) - {*globs}
