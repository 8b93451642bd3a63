"""Facts: how the installed vLLM calls the installed FlashInfer, as the sources of both say."""

from __future__ import annotations

from fi_doctor.model.base import Closed, Data


class MisfitKind(Closed):
    """What does not fit; each is the id of a finding."""

    MISSING_LAZILY = "vllm-looks-for-missing-flashinfer-name"  # it fails only where vLLM calls it
    MISSING_NAME = "vllm-uses-missing-flashinfer-name"
    UNKNOWN_KEYWORD = "vllm-passes-unknown-flashinfer-keyword"
    TOO_MANY = "vllm-passes-too-many-flashinfer-arguments"
    MISSING_ARGUMENT = "vllm-omits-required-flashinfer-argument"


class Misfit(Data, frozen=True):
    """One use that does not fit."""

    kind: MisfitKind
    name: str  # "flashinfer.norm.rmsnorm"; "()" in it is what a call gives: "flashinfer.BatchAttention().run"
    caller: str  # "v1/attention/backends/flashinfer.py:475", below the vllm package
    callee: str  # "norm/__init__.py:41", below the flashinfer package; "" where there is none
    text: str  # "unexpected keyword argument 'epsilon'"


class Unbound(Data, frozen=True):
    """One use of which it cannot be told whether it fits."""

    name: str
    caller: str
    why: str  # what many have in common, and after a colon what is particular to this one


class Calls(Data, frozen=True, tag_field="kind", tag="calls"):
    """Every use of FlashInfer that is found in vLLM's source, each fitted, a misfit, unbound or wanting."""

    files: int  # of vLLM that were read for it
    fitting: int  # uses that fit: calls, and names that are there
    calls: dict[str, tuple[str, ...]]  # what is called -> the places in vLLM, "v1/sample/ops/topk_topp_sampler.py:653"
    places: dict[str, str]  # what is called -> where FlashInfer defines it, "sampling.py:1432"; not what it has not
    names: dict[str, str]  # what is imported or looked for and not called -> the first place
    misfits: tuple[Misfit, ...]
    unbound: tuple[Unbound, ...]
    wanting: dict[str, str] = {}  # what FlashInfer has not and vLLM does without -> the first place that looks for it
    unread: dict[str, str] = {}  # a file of vLLM that could not be read -> why
