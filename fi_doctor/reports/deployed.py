"""What the console says of a deployment: the answer, then each operator with what was passed over, and why."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fi_doctor.model import Missing, Report
from fi_doctor.model.choices import Choice
from fi_doctor.model.deployed import Deployed, Effect, Part
from fi_doctor.reports.text import clean, wrap

_STYLES = {
    Effect.FAILS: "red",
    Effect.WRONG_RESULT: "red",
    Effect.UNKNOWN: "yellow",
    Effect.FLASHINFER: "green",
    Effect.OTHER: "green",
}
_ELSEWHERE = ("current device", "not supported on this platform", "ROCm", "CPU only")  # candidates for other machines
_MOST_REJECTED = 4


def answer(report: Report, width: int) -> Iterator[Text]:
    """The first line of a report for a deployment."""
    if report.deployed is not None:
        for line in wrap(f"{clean(report.deployed.model.name, 100)}: {clean(report.deployed.why)}", width, "", "  "):
            yield Text(line, style=f"bold {_STYLES[report.deployed.effect]}")


def details(report: Report, width: int) -> Iterator[Text]:
    """The model as it was understood, and what serves each of its operators."""
    deployed = report.deployed
    if deployed is None:
        return
    yield Text()
    yield Text(f"What vLLM would choose ({where(deployed)}):", style="bold")
    yield from (Text(line) for line in wrap(served_as(deployed), width, "  ", "    "))
    for part in deployed.parts:
        yield from _part(part, width)
    for note in deployed.notes:
        yield from (Text(line) for line in wrap(f"not known: {clean(note)}", width, "  ", "    "))


def where(deployed: Deployed) -> str:
    """For which vLLM and GPU it is told, and how that is known."""
    vllm = "vLLM not installed" if isinstance(deployed.vllm, Missing) else f"vLLM {clean(deployed.vllm, 60)}"
    sm = "no GPU" if isinstance(deployed.sm, Missing) else f"SM{deployed.sm}"
    return ", ".join(filter(None, (vllm, sm, clean(deployed.known_by, 100))))


def served_as(deployed: Deployed) -> str:
    """One sentence of the model and how it is served."""
    model, served = deployed.model, deployed.deployment
    kinds = []
    for layers in model.attention:
        words = [f"{layers.count} {layers.kind.replace('_', ' ')}"]
        if layers.head_size:
            words.append(f"with {layers.heads} heads of {layers.head_size} over {layers.kv_heads}")
        if layers.window:
            words.append(f"in a window of {layers.window}")
        words += ["with sinks"] if layers.sinks else []
        words += [f"with a soft cap of {layers.soft_cap:g}"] if layers.soft_cap else []
        kinds.append(" ".join(words))
    experts, quantized = model.experts, model.quantized
    said = [clean(model.source, 200), f"attention layers: {'; '.join(kinds)}"]
    said += [f"{experts.active} of {experts.count} experts"] if experts else []
    if quantized:
        parts = (quantized.linear, quantized.experts)
        where = {(True, False): "linear layers in ", (False, True): "experts in "}.get(parts, "")
        said.append(f"{where}{clean(quantized.weights, 40)} ({clean(quantized.method, 40)})")
    sizes = {
        "tensor parallel": served.tensor_parallel,
        "pipeline parallel": served.pipeline_parallel,
        "data parallel": served.data_parallel,
    }
    said += [f"{name} {size}" for name, size in sizes.items() if size > 1]
    said += ["expert parallel"] if served.expert_parallel else []
    said += [f"KV cache {clean(served.kv_cache_dtype, 40)}"] if served.kv_cache_dtype != "auto" else []
    return "; ".join(said)


def _part(part: Part, width: int) -> Iterator[Text]:
    choice = part.choice
    layers = f" ({clean(choice.layers, 100)})" if choice.layers not in ("all", "") else ""
    chosen = clean(choice.chosen, 100) or "not known"
    predicted = f"; {clean(choice.predicted, 100)} was predicted" if choice.predicted else ""
    why = "" if part.effect is Effect.OTHER else f": {clean(part.why)}"
    head = f"{choice.operator.replace('_', ' ')}{layers}: {chosen} ({choice.evidence}{predicted}){why}"
    for line in wrap(head, width, "  ", "    "):
        yield Text(line, style=_STYLES[part.effect] if part.effect not in (Effect.OTHER, Effect.FLASHINFER) else "")
    for line in _rejected(choice):
        yield from (Text(text, style="dim") for text in wrap(line, width, "    ", "      "))


def _rejected(choice: Choice) -> Iterator[str]:
    here = [one for one in choice.rejected if not any(word in one.why for word in _ELSEWHERE)]
    for one in here[:_MOST_REJECTED]:
        yield f"not {clean(one.name, 100)}: {clean(one.why)}"
    if len(here) > _MOST_REJECTED:
        yield f"{len(here) - _MOST_REJECTED} more candidates: --format json and yaml have them all"
