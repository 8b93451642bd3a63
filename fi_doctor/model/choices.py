"""Which kernel serves an operator of a model, and why not the others: what a selector of vLLM answers."""

from __future__ import annotations

from typing import Literal

from fi_doctor.model.base import Data
from fi_doctor.model.words import Evidence

Served = Literal["attention", "moe", "linear", "mixer", "sampling", "allreduce", "allreduce_fusion", "all2all"]


class Rejected(Data, frozen=True):
    """A candidate that does not serve, and why in one line."""

    name: str  # vLLM's own name of it
    why: str


class Choice(Data, frozen=True):
    """What serves one operator in some layers."""

    operator: Served
    layers: str  # which layers: "all", "window layers", "MLA", "experts", "qkv_proj, o_proj"
    chosen: str  # vLLM's own name: FLASH_ATTN, FLASHINFER_CUTLASS; "none": nothing does; "": not known, `how` says why
    is_flashinfer: bool | None  # None: not known from the name alone
    features: tuple[str, ...] = ()  # rows of features.yaml that this choice runs through
    rejected: tuple[Rejected, ...] = ()
    how: str = (
        ""  # how it is known: "asked vLLM's selector: vllm/platforms/cuda.py:420", "read from the layer", the table
    )
    evidence: Evidence = Evidence.NONE
    predicted: str = ""  # of what was measured: what had been predicted, where that is something else
