"""The operators that a model has, beside those for which it is known what vLLM chooses. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fi_doctor.model import Evidence, ServedModel
from fi_doctor.model.choices import Choice, Served
from fi_doctor.model.traits import pools

_OPERATORS: tuple[Served, ...] = ("attention", "mixer", "moe", "linear", "sampling")  # that a model may have
_MIXERS = {"gdn", "kda", "mamba", "linear", "unknown"}  # kinds of layers that are no attention
_LARGE = (512, 576)  # heads of more than 256 elements that the table knows, the latter of MLA


def whole(choices: tuple[Choice, ...], model: ServedModel) -> tuple[Choice, ...]:
    """The choices for what the model has, and for each operator of it that they do not cover one that is not known."""
    kinds = {layers.kind for layers in model.attention}
    odd = [
        size for size in {one.head_size for one in model.attention} if size % 8 or (size > 256 and size not in _LARGE)
    ]
    uncovered = {
        "attention": "chunked attention" if "chunked" in kinds else f"heads of {odd[0]}" if odd else "",
        "mixer": ", ".join(sorted(kinds & _MIXERS - {"gdn"})),
    }
    has = {
        "attention": bool(kinds - _MIXERS),
        "moe": model.experts is not None,
        "mixer": bool(kinds & _MIXERS),
        "linear": True,
        "sampling": not pools(model.architecture),
    }
    kept = tuple(one for one in choices if has.get(one.operator, True) and not _is_guess(one, uncovered))
    covered = {one.operator for one in kept}
    return kept + tuple(
        Choice(operator=name, layers="all", chosen="", is_flashinfer=None, how=_no_row(name, uncovered, model))
        for name in _OPERATORS
        if has[name] and name not in covered
    )


def _is_guess(choice: Choice, uncovered: Mapping[str, str]) -> bool:
    """Whether the table took these layers for others, which it knows."""
    return choice.evidence is Evidence.DECLARED and bool(uncovered.get(choice.operator))


def _no_row(name: str, uncovered: Mapping[str, str], model: ServedModel) -> str:
    quantized = model.quantized.weights if model.quantized and name in ("linear", "moe") else ""
    what = uncovered.get(name) or quantized or name
    return f"the table has no row for {what}"
