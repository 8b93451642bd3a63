"""Which kernels vLLM would choose for what is to be served: by the table of its releases, or as it says itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

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


class Chosen(NamedTuple):
    """What vLLM chooses, and how far that is known."""

    choices: Choices
    notes: tuple[str, ...] = ()  # sentences on what is left open
    stopped: tuple[str, ...] = ()  # how vLLM ended where it was started on tiny models and served nothing

    def told(self, answer: Choices) -> Chosen:
        """With what vLLM's own selectors answered, where they did."""
        if isinstance(answer, Missing):
            return self._replace(notes=(*self.notes, f"what vLLM's own selectors say: {answer.reason}"))
        return self._replace(choices=answer)


def capability(planned: Sequence[PlannedProbe], facts: Facts) -> int | Missing:
    """The compute capability for which the deployment is judged: of several the lowest, which limits.

    Where nothing that is planned is of one, that of the GPU that vLLM would take.
    """
    found = sorted({probe.sm for probe in planned if not isinstance(probe.sm, Missing)})
    if not found and (gpu := _gpu(facts)):
        return gpu.sm
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


def by_start(wanted: Wanted, predicted: Choices, facts: Facts, environ: Mapping[str, str], *, fresh: bool) -> Chosen:
    """The choices as vLLM made them when it was started on tiny models here.

    fresh: FlashInfer's cache is neither read nor written.
    """
    gpu, small = _gpu(facts), tiny.models(wanted)
    lack = facts.vllm.reason if isinstance(facts.vllm, Missing) else "" if gpu else "CUDA sees no GPU"
    if lack or isinstance(small, Missing) or gpu is None or isinstance(gpu.sm, Missing):
        why = lack or (small.reason if isinstance(small, Missing) else "the GPU's compute capability is not known")
        return Chosen(predicted, (f"which kernels vLLM really takes: it was not started, since {why}",))
    options = deployment.options_of(wanted.deployment, facts.environment)
    found: Choices = predicted
    stopped = []
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
            stopped.append(f"{which}: {seen.reason}")
            continue
        if seen.fault:
            stopped.append(f"{which} ended before it had generated tokens: {seen.fault}")
        measured = _with_rows(seen.choices, wanted, facts, gpu.sm, seen.vllm)
        found = tiny.with_measured(() if isinstance(found, Missing) else found, measured, model.operators)
    whole = found if isinstance(found, Missing) else operators.whole(found, wanted.model)
    return Chosen(whole, tiny.limits(wanted), tuple(stopped))


def as_recorded(wanted: Wanted, predicted: Choices, recorded: Report, sm: int | Missing) -> Chosen:
    """The choices for a recording: what was measured then for the same model, so deployed, is still what was seen."""
    then = recorded.deployed
    if then is None or then.model != wanted.model or then.deployment != wanted.deployment:
        return Chosen(predicted)
    measured = tuple(part.choice for part in then.parts if part.choice.evidence.rank >= Evidence.BUILT.rank)
    if not isinstance(sm, Missing) and not isinstance(then.vllm, Missing):
        measured = _with_rows(measured, wanted, recorded.facts, sm, then.vllm)
    notes = tiny.limits(wanted) if measured or then.stopped else ()
    if isinstance(predicted, Missing):
        return Chosen(measured or predicted, notes, then.stopped)
    found = tiny.with_measured(predicted, measured, {one.operator for one in measured})
    return Chosen(found, notes, then.stopped)


def _with_rows(choices: Iterable[Choice], wanted: Wanted, facts: Facts, sm: int, vllm: str) -> tuple[Choice, ...]:
    """The choices, those of FlashInfer with the rows that they run through."""
    traits = deployment.traits(wanted, sm, facts)
    return tuple(
        replace(one, features=choosing.features_of(one, traits, vllm)) if one.is_flashinfer else one for one in choices
    )


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
    return operators.whole(_with_rows(answer.choices, wanted, facts, gpu.sm, answer.vllm), wanted.model)


def _gpu(facts: Facts) -> Gpu | None:
    gpus = facts.gpus.gpus
    visible = [] if isinstance(gpus, Missing) else [gpu for gpu in gpus if not isinstance(gpu.cuda_index, Missing)]
    return visible[0] if visible else None
