"""Which kernels vLLM would choose for what is to be served: by the table of its releases, or as it says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from msgspec.structs import replace

from fi_doctor.diagnosis import deployment, operators, tiny
from fi_doctor.facts import choices as asking
from fi_doctor.facts import starting
from fi_doctor.knowledge import architectures, choosing
from fi_doctor.model import Depth, Evidence, Facts, Gpu, Missing, Package, PlannedProbe, Report, Request
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Wanted
from fi_doctor.workers import Workers

Choices = tuple[Choice, ...] | Missing
_MULTIPROCESSORS = 132  # of a GPU that is not here; vLLM asks whether there are more than 16


def capability(planned: Sequence[PlannedProbe]) -> int | Missing:
    """The compute capability for which the deployment is judged: of several the lowest, which limits."""
    found = sorted({probe.sm for probe in planned if not isinstance(probe.sm, Missing)})
    why = "no GPU is seen; FLASHINFER_CUDA_ARCH_LIST=9.0a names an architecture"
    return found[0] if found else Missing(reason=why)


def by_table(wanted: Wanted, facts: Facts, sm: int | Missing) -> Choices:
    """What the table says for the installed release; Missing where it says nothing."""
    vllm = facts.packages.get("vllm", Missing(reason="vLLM was not looked for"))
    if isinstance(sm, Missing):
        return sm
    if not isinstance(vllm, Package):
        return Missing(reason=f"vLLM is not installed: {vllm.reason}")
    if isinstance(vllm.version, Missing):
        return vllm.version
    if lack := architectures.lacks(wanted.model.architecture, vllm.version):
        return Missing(reason=lack)
    options = deployment.options_of(wanted.deployment, facts.environment)
    found = choosing.choose(deployment.traits(wanted, sm, facts), options, vllm.version)
    read = ", ".join(table.read_in for table in choosing.tables())
    if not found:
        return Missing(reason=f"of vLLM {vllm.version} it was not read; it was of {read}")
    return operators.whole(found, wanted.model)


def ask_vllm(wanted: Wanted, facts: Facts, request: Request, environ: Mapping[str, str]) -> Future[Choices] | None:
    """What the installed vLLM's own selectors answer, asked while other things go on; None where nobody asks.

    It imports vLLM, and takes most of a minute.
    """
    gpu = _gpu(facts)
    if request.depth is not Depth.RUN or isinstance(facts.vllm, Missing) or gpu is None:
        return None
    return Workers().submit(_asked, wanted, facts, gpu, environ)


def by_start(
    wanted: Wanted, predicted: Choices, facts: Facts, environ: Mapping[str, str], *, fresh: bool
) -> tuple[Choices, tuple[str, ...]]:
    """The choices as vLLM made them when it was started on tiny models here, and sentences on what that leaves open.

    What was not measured is as predicted. fresh: FlashInfer's cache is neither read nor written.
    """
    gpu, small = _gpu(facts), tiny.models(wanted)
    lack = facts.vllm.reason if isinstance(facts.vllm, Missing) else "" if gpu else "CUDA sees no GPU"
    if lack or isinstance(small, Missing) or gpu is None or isinstance(gpu.sm, Missing):
        why = lack or (small.reason if isinstance(small, Missing) else "the GPU's compute capability is not known")
        return predicted, (f"which kernels vLLM really takes: it was not started, since {why}",)
    options = deployment.options_of(wanted.deployment, facts.environment)
    traits = deployment.traits(wanted, gpu.sm, facts)
    found: Choices = predicted
    notes = list(tiny.limits(wanted))
    for model in small:
        seen = starting.start(
            [facts.interpreter.executable],
            model.config,
            tiny.engine_of(options),
            environ=environ,
            fresh=fresh,
        )
        which = f"the tiny model for {', '.join(model.operators)} ({model.words})"
        if isinstance(seen, Missing):
            notes.append(f"{which}: {seen.reason}")
            continue
        if seen.fault:
            notes.append(f"{which} ended before it had generated tokens: {seen.fault}")
        measured = [
            replace(one, features=choosing.features_of(one, traits, seen.vllm)) if one.is_flashinfer else one
            for one in seen.choices
        ]
        found = tiny.with_measured(() if isinstance(found, Missing) else found, measured, model.operators)
    return found if isinstance(found, Missing) else operators.whole(found, wanted.model), tuple(notes)


def as_recorded(wanted: Wanted, predicted: Choices, recorded: Report) -> Choices:
    """The choices for a recording: what was measured then for the same model, so deployed, is still what was seen."""
    then = recorded.deployed
    if (
        then is None
        or isinstance(predicted, Missing)
        or then.model != wanted.model
        or then.deployment != wanted.deployment
    ):
        return predicted
    measured = [part.choice for part in then.parts if part.choice.evidence.rank >= Evidence.BUILT.rank]
    return tiny.with_measured(predicted, measured, {one.operator for one in measured})


def _asked(wanted: Wanted, facts: Facts, gpu: Gpu, environ: Mapping[str, str]) -> Choices:
    if isinstance(gpu.sm, Missing):
        return gpu.sm
    gpus = facts.gpus.gpus
    memory = 0 if isinstance(gpu.memory_total_mib, Missing) else gpu.memory_total_mib
    about = asking.AskedGpu(
        sm=(gpu.sm // 10, gpu.sm % 10),
        name=gpu.name,
        memory_gib=memory / 1024,
        multiprocessors=_MULTIPROCESSORS,
        count=1 if isinstance(gpus, Missing) else len(gpus),
    )
    options = deployment.options_of(wanted.deployment, facts.environment)
    answer = asking.ask([facts.interpreter.executable], wanted.config, options, about, environ=environ)
    if isinstance(answer, Missing):
        return answer
    traits = deployment.traits(wanted, gpu.sm, facts)
    found = tuple(
        replace(choice, features=choosing.features_of(choice, traits, answer.vllm)) if choice.is_flashinfer else choice
        for choice in answer.choices
    )
    return operators.whole(found, wanted.model)


def _gpu(facts: Facts) -> Gpu | None:
    gpus = facts.gpus.gpus
    visible = [] if isinstance(gpus, Missing) else [gpu for gpu in gpus if not isinstance(gpu.cuda_index, Missing)]
    return visible[0] if visible else None
