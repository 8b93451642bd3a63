"""The verdict for a deployment: what vLLM chooses for a model, and what is known of those kernels here. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fi_doctor.diagnosis import doubts, front
from fi_doctor.diagnosis.called import vllm_use
from fi_doctor.diagnosis.matrix import deciding_cells
from fi_doctor.model import (
    Cell,
    Evidence,
    Facts,
    FeatureRow,
    Gate,
    KnowledgeBase,
    Missing,
    Package,
    Report,
    Request,
    Verdict,
)
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Deployed, Effect, Part, Wanted
from fi_doctor.model.deployments import Deployment
from fi_doctor.model.traits import Traits, traits_of

# Options of `vllm serve` by the names of its engine arguments, as whoever asks vLLM passes them on.
ENGINE = {
    "--all2all-backend": "all2all_backend",
    "--attention-backend": "attention_backend",
    "--attention-config.backend": "attention_backend",
    "--enable-lora": "enable_lora",
    "--enforce-eager": "enforce_eager",
    "--kernel-config.linear_backend": "linear_backend",
    "--kernel-config.moe_backend": "moe_backend",
    "--linear-backend": "linear_backend",
    "--moe-backend": "moe_backend",
}
SWITCHES = ("--enable-lora", "--enforce-eager")
_OF_TABLE = ("all2all_backend", "attention_backend", "enable_lora", "enforce_eager", "moe_backend")  # that it asks for
_NO_FLASHINFER = "has-flashinfer-false-*"  # findings: vLLM then takes nothing from FlashInfer
_MAY_BE_NONE = ("allreduce", "allreduce_fusion", "all2all")  # operators that a deployment may do without
_HEADS = re.compile(r"(?:^|_)d(\d+)(?=_|$)")
_WORST = (Verdict.BROKEN, Verdict.WRONG_RESULT, Verdict.UNSUPPORTED, Verdict.UNKNOWN, Verdict.WORKS)
_ORDER = (Effect.FAILS, Effect.WRONG_RESULT, Effect.UNKNOWN, Effect.FLASHINFER, Effect.OTHER)
_EFFECTS = {
    Verdict.WORKS: Effect.FLASHINFER,
    Verdict.BROKEN: Effect.FAILS,
    Verdict.UNSUPPORTED: Effect.FAILS,
    Verdict.WRONG_RESULT: Effect.WRONG_RESULT,
}


def options_of(deployment: Deployment, environment: Mapping[str, str]) -> dict[str, object]:
    """What vLLM is started with, by the names of its engine arguments, with the variables that are known."""
    given = {
        ENGINE[name]: True if name in SWITCHES and not value else value
        for name, value in deployment.flags.items()
        if name in ENGINE
    }
    return {
        **given,
        "tensor_parallel_size": deployment.tensor_parallel,
        "pipeline_parallel_size": deployment.pipeline_parallel,
        "data_parallel_size": deployment.data_parallel,
        "enable_expert_parallel": deployment.expert_parallel,
        "kv_cache_dtype": deployment.kv_cache_dtype,
        "variables": dict(environment),
    }


def traits(wanted: Wanted, sm: int, facts: Facts) -> Traits:
    """What the choices depend on."""
    return traits_of(wanted.model, options_of(wanted.deployment, facts.environment), sm)


def needed(choices: Iterable[Choice]) -> tuple[str, ...]:
    """The rows of the matrix that the choices run through, sorted."""
    return tuple(sorted({name for choice in choices if choice.is_flashinfer for name in choice.features}))


def narrowed(request: Request, choices: Sequence[Choice]) -> Request:
    """The request for what the deployment runs through: those rows have to work, and no others are looked at.

    Rows that were asked for by name stay those.
    """
    rows = needed(choices)
    features = request.features or (("import.*", *rows) if choices else ())
    return replace(request, features=features, required=(*request.required, *rows))


def judge(  # noqa: PLR0913 - the whole of what the answer rests on
    wanted: Wanted,
    choices: tuple[Choice, ...] | Missing,
    kb: KnowledgeBase,
    report: Report,
    sm: int | Missing,
    *,
    stopped: tuple[str, ...] = (),
) -> Deployed:
    """The answer. choices: Missing where it is not known what vLLM chooses, and why.

    stopped: how vLLM ended when it was started for this. The model that ended it is smaller than what is to be served
    and has a GPU that others may use, so it is a doubt and no failure.
    """
    model, deployment, facts = wanted.model, wanted.deployment, report.facts
    vllm = facts.packages.get("vllm", Missing(reason="vLLM was not looked for"))
    version = vllm.version if isinstance(vllm, Package) else vllm
    unconsidered = _unconsidered(wanted, facts)
    notes = tuple(
        f"{name} was not taken into account, which may change the choice of {', '.join(operators)}"
        for name, operators in unconsidered.items()
    )
    notes += tuple(f"{field} of the model's configuration: {why}" for field, why in model.unread.items())
    if short := doubts.of_gpus(deployment, facts):
        notes += (short,)
    build = doubts.of_build(facts)
    notes += (f"the installed vLLM is a modified build: {build}",) if build else ()
    refusals = doubts.refusals(model, deployment)
    if odd := front.unknown(deployment.flags, facts.vllm):
        refusals += (doubts.Refusal(Effect.UNKNOWN, f"{', '.join(odd)}: no option of vLLM {version} that is known"),)
    refusals += tuple(doubts.Refusal(Effect.UNKNOWN, f"vLLM was started here, and {words}") for words in stopped)
    if isinstance(choices, Missing):
        parts: tuple[Part, ...] = ()
        refusals += (doubts.Refusal(Effect.UNKNOWN, f"what vLLM would choose is not known: {choices.reason}"),)
    else:
        unread = doubts.of_fields(model)
        refusals += doubts.of_operators(unread, choices)
        parts = tuple(
            _doubted(choice, wanted, unconsidered, unread, report, build) or _part(choice, wanted, kb, report, sm)
            for choice in choices
        )
    effects = [*(part.effect for part in parts), *(one.effect for one in refusals)]
    effect = min(effects, key=_ORDER.index, default=Effect.UNKNOWN)
    why = _sentence(effect, parts, refusals)
    if refused := front.refused(deployment, report.findings):
        effect, why = Effect.FAILS, f"it will fail: vLLM {version} does not know {', '.join(refused)}"
    return Deployed(
        model=model,
        deployment=deployment,
        sm=sm,
        vllm=version,
        effect=effect,
        why=why,
        parts=parts,
        notes=notes,
        known_by=_known_by(choices),
        stopped=stopped,
    )


def with_gate(gate: Gate, deployed: Deployed) -> Gate:
    """The gate, which also asks that the deployment is known to run."""
    code = {Effect.FAILS: 1, Effect.WRONG_RESULT: 1, Effect.UNKNOWN: 3}.get(deployed.effect, 0)
    if (gate.code == 0 and code) or (gate.code == 3 and code == 1):
        return replace(gate, code=code, reason=f"{gate.reason}; {deployed.why}")
    return gate


def _doubted(  # noqa: PLR0913, PLR0917 - each doubt by itself
    choice: Choice,
    wanted: Wanted,
    unconsidered: Mapping[str, tuple[str, ...]],
    unread: Mapping[str, tuple[str, ...]],
    report: Report,
    build: str,
) -> Part | None:
    """What the table says and may be otherwise here, or vLLM said without all that is set."""
    is_asked = choice.evidence is not Evidence.DECLARED
    # Where vLLM has answered for attention, which sizes of heads its kernel has is still read of those fields.
    if (not is_asked or choice.operator == "attention") and (
        odd := [name for name, operators in unread.items() if choice.operator in operators]
    ):
        return Part(choice=choice, effect=Effect.UNKNOWN, why=f"{', '.join(odd)} makes no sense, and may change it")
    if build and not is_asked:
        return Part(choice=choice, effect=Effect.UNKNOWN, why="by the table; a modified build may choose otherwise")
    may = [name for name, operators in unconsidered.items() if choice.operator in operators]
    if may := [name for name in may if not (is_asked and _was_given(name, wanted, report.facts))]:
        return Part(choice=choice, effect=Effect.UNKNOWN, why=f"{', '.join(may)} may change it")
    if is_asked:
        return None
    if why := doubts.of_network(choice, wanted.model, report.facts):
        return Part(choice=choice, effect=Effect.UNKNOWN, why=why)
    closed = [one.id for one in report.findings if fnmatch.fnmatchcase(one.id, _NO_FLASHINFER)]
    if choice.is_flashinfer and closed:
        why = f"vLLM sees no FlashInfer that it can use ({closed[0]})"
        return Part(choice=choice, effect=Effect.UNKNOWN, why=why)
    return None


def _was_given(name: str, wanted: Wanted, facts: Facts) -> bool:
    """Whether vLLM had an option or a variable when it was asked or started: not what files set for another one."""
    return name in ENGINE or (name in facts.environment and name not in wanted.variables)


def _part(choice: Choice, wanted: Wanted, kb: KnowledgeBase, report: Report, sm: int | Missing) -> Part:
    if choice.chosen == "none":
        if choice.operator in _MAY_BE_NONE and not choice.how.startswith("nothing serves"):
            return Part(choice=choice, effect=Effect.OTHER, why="not used")
        return Part(choice=choice, effect=Effect.FAILS, why=choice.how.partition("; table")[0])
    if choice.is_flashinfer is None:
        return Part(choice=choice, effect=Effect.UNKNOWN, why=choice.how.partition("; table")[0])
    if not choice.is_flashinfer:
        return Part(choice=choice, effect=Effect.OTHER, why=f"{choice.chosen} serves")
    rows = [row for row in report.features if row.feature in choice.features and row.sm == sm]
    missing = [name for name in choice.features if name not in {row.feature for row in rows}]
    verdicts = [_of_model(row, wanted, kb, report.facts) for row in rows]
    verdicts += [(Verdict.UNKNOWN, f"{name} is not in this report") for name in missing]
    if not verdicts:
        return Part(choice=choice, effect=Effect.UNKNOWN, why=f"no row of the matrix tells of {choice.chosen} here")
    verdict, why = min(verdicts, key=lambda one: _WORST.index(one[0]))
    return Part(choice=choice, effect=_EFFECTS.get(verdict, Effect.UNKNOWN), why=why, rows=choice.features)


def _unconsidered(wanted: Wanted, facts: Facts) -> dict[str, tuple[str, ...]]:
    """Options and variables that are set, may change a choice, and are not known to the table."""
    known = None if isinstance(facts.vllm, Missing) else facts.vllm.variables  # others have no effect
    variables = [name for name in (*facts.environment, *wanted.variables) if known is None or name in known]
    given = (*wanted.deployment.flags, *variables)
    names = [name for name in given if ENGINE.get(name) not in _OF_TABLE and name not in doubts.ASKED]
    names += [name for name in doubts.ASKED if name in wanted.variables]
    found = {
        name: {one for glob, several in doubts.MAY_CHANGE.items() if fnmatch.fnmatchcase(name, glob) for one in several}
        for name in names
    }
    return {name: tuple(sorted(operators)) for name, operators in sorted(found.items()) if operators}


def _of_model(row: FeatureRow, wanted: Wanted, kb: KnowledgeBase, facts: Facts) -> tuple[Verdict, str]:
    """What a row says of this model: of its cells those with heads of its size, where the row has several."""
    feature = kb.feature(row.feature)
    use = vllm_use(feature, row.sm, facts) if feature else None
    cells = deciding_cells(use, row.cells)
    sizes = {layers.head_size for layers in wanted.model.attention if layers.head_size}
    with_heads = [cell for cell in cells if _HEADS.search(cell.variant)]
    if not (row.feature.startswith("attention.") and with_heads and sizes):
        return row.verdict, f"{row.feature}: {row.why}"
    found: list[tuple[Verdict, str]] = []
    for size in sorted(sizes):
        of_size = [cell for cell in with_heads if _is_of(cell, size, wanted)]
        if not of_size:
            found.append((Verdict.UNKNOWN, f"{row.feature}: heads of {size} elements were not tried"))
        found += [(cell.verdict, f"{row.feature}, {cell.variant}: {cell.why}") for cell in of_size]
    return min(found, key=lambda one: _WORST.index(one[0]))


def _is_of(cell: Cell, size: int, wanted: Wanted) -> bool:
    sizes = {int(found) for found in _HEADS.findall(cell.variant)}
    words = cell.variant.split("_")
    return (
        size in sizes
        and not ("fp16" in words and wanted.model.dtype == "bfloat16")
        and not ("graph" in words and "--enforce-eager" in wanted.deployment.flags)
    )


def _sentence(effect: Effect, parts: tuple[Part, ...], refusals: tuple[doubts.Refusal, ...]) -> str:
    deciding = [part for part in parts if part.effect is effect]
    named = "; ".join(
        (
            *(one.why for one in refusals if one.effect is effect),
            *(f"{part.choice.operator}{_chosen(part.choice)}: {part.why}" for part in deciding),
        )
    )
    match effect:
        case Effect.FAILS:
            return f"it will fail: {named}"
        case Effect.WRONG_RESULT:
            return f"it will give wrong results: {named}"
        case Effect.UNKNOWN:
            return f"it cannot be told whether it works: {named}"
        case Effect.FLASHINFER:
            mine = ", ".join(dict.fromkeys(part.choice.operator for part in deciding))
            return f"it will run, on FlashInfer for {mine}{_others(parts)}"
        case _:
            return f"it will run without FlashInfer{_others(parts)}"


def _chosen(choice: Choice) -> str:
    return f" ({choice.chosen})" if choice.chosen else ""


def _others(parts: tuple[Part, ...]) -> str:
    used = [part for part in parts if part.effect is Effect.OTHER and part.choice.chosen != "none"]
    others = ", ".join(dict.fromkeys(f"{part.choice.operator} on {part.choice.chosen}" for part in used))
    return f"; {others}" if others else ""


def _known_by(choices: tuple[Choice, ...] | Missing) -> str:
    if isinstance(choices, Missing) or not choices:
        return ""
    known = sorted(choices, key=lambda choice: choice.is_flashinfer is None)  # those that are known first
    said = [choice.how.partition("; ")[2] if choice.chosen == "none" else choice.how for choice in known]
    return next((words.partition(":")[0] for words in said if words), "")
