"""What a server says that it uses: attention, experts, linear layers, sampler, all-reduce, the KV cache's type.

Sources: the logger calls of vLLM 0.14.1, 0.17.1, 0.20.2, 0.25.1, 0.28.0 and 0.33.0 and of SGLang 0.5.10 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.patterns import search
from fi_doctor.model import Part, Used


class _Form(NamedTuple):
    part: Part
    literal: str
    pattern: str  # RE2 with a group `choice`, and `among` where the other candidates are named


# The rows of the matrix that could serve a part.
ROWS = {
    Part.ATTENTION: "attention.",
    Part.MOE: "moe.",
    Part.LINEAR: "gemm.",
    Part.SAMPLER: "sampling.",
    Part.ALL_REDUCE: "comm.",
}
# What SGLang was started with, as it says itself: "server_args=ServerArgs(...)", newer releases "server_args={...}".
_GIVEN = r"['\s(,{]KEY(?:=|': )'(?P<choice>[\w.-]{2,40})'"
_WORD = r"(?P<choice>[\w .+:/-]{2,60}?)"
_AMONG = r"(?: out of potential backends: (?P<among>[^.]{1,300}))?"
_FORMS = (
    _Form(Part.ATTENTION, "attention backend out of", rf"Using {_WORD} attention backend{_AMONG}"),
    _Form(Part.ATTENTION, "backend out of potential", rf"Using (?P<choice>[A-Z][A-Z0-9_]{{3,40}}) backend{_AMONG}"),
    _Form(Part.ATTENTION, "(selected via --attention-backend)", rf"Using {_WORD} backend \(selected via"),
    _Form(Part.ATTENTION, " backend on V1 engine", rf"Using {_WORD} backend on V1 engine"),
    _Form(Part.ATTENTION, "Using Triton backend.", r"Using (?P<choice>Triton) backend\."),
    _Form(Part.ATTENTION, "Using Flash Attention backend.", r"Using (?P<choice>Flash Attention) backend\."),
    _Form(Part.ATTENTION, "Using FlashInfer backend.", r"Using (?P<choice>FlashInfer) backend\."),
    _Form(Part.ATTENTION, "MLA prefill backend", r"Using (?P<choice>[\w ]{2,60} MLA prefill) backend"),
    _Form(Part.ATTENTION, "Using TRTLLM ", r"Using (?P<choice>TRTLLM (?:\w+ )?attention)"),
    _Form(Part.ATTENTION, "Attention backend not specified. Use ", rf"not specified\. Use {_WORD} backend by default"),
    _Form(Part.ATTENTION, "as attention backend ", rf"Us(?:e|ing) {_WORD} as attention backend"),
    _Form(Part.ATTENTION, "Attention backend is set to ", r"Attention backend is set to (?P<choice>[\w-]{2,40})"),
    _Form(Part.ATTENTION, "hybrid attention backend", rf"for decode and prefill: {_WORD}(?:\.|$)"),
    _Form(
        Part.MOE,
        "Fp8 MoE backend",
        rf"Using '?{_WORD}'? Fp8 MoE backend(?: out of potential backends: (?P<among>.{{1,300}}))?",
    ),
    _Form(
        Part.MOE,
        "NvFp4 MoE",
        rf"Using '?{_WORD}'? (?:backend for )?NvFp4 MoE(?: backend out of potential backends: (?P<among>.{{1,300}}))?",
    ),
    _Form(Part.MOE, "Mxfp4 MoE backend", rf"Using '?{_WORD}'? Mxfp4 MoE backend"),
    _Form(Part.MOE, "MxFp8 MoE backend", rf"Using '?{_WORD}'? MxFp8 MoE backend"),
    _Form(Part.MOE, "Unquantized MoE", rf"Using {_WORD} (?:backend for )?Unquantized MoE"),
    _Form(Part.MOE, "WNA16 MoE", rf"Using '?{_WORD}'? (?:backend for )?WNA16 MoE"),
    _Form(Part.MOE, "backend for FP8 MoE", rf"Using {_WORD} backend for FP8 MoE"),
    _Form(Part.MOE, "Using FlashInfer MXFP4", r"Using (?P<choice>FlashInfer MXFP4 \w+(?: \w+)?) backend"),
    _Form(Part.MOE, "Enabling FlashInfer CUTLASS MoE", r"Enabling (?P<choice>FlashInfer CUTLASS MoE)"),
    _Form(Part.MOE, "Using Marlin backend", r"Using (?P<choice>Marlin) backend"),
    _Form(Part.MOE, "MarlinExperts", r"Using (?P<choice>MarlinExperts)"),
    _Form(Part.MOE, " for MXFP4 MoE", rf"Using {_WORD} for MXFP4 MoE"),
    _Form(Part.LINEAR, "NVFP4 GEMM", rf"Using {_WORD} for NVFP4 GEMM"),
    _Form(Part.LINEAR, "MXFP8 GEMM", rf"Using {_WORD} (?:backend )?for MXFP8 GEMM"),
    _Form(Part.LINEAR, "MXFP4 GEMM", rf"Using {_WORD} for MXFP4 GEMM"),
    _Form(Part.LINEAR, "eligible unquantized BF16 GEMMs", rf"Using {_WORD} for eligible unquantized BF16 GEMMs"),
    _Form(Part.LINEAR, "mixed-precision linear", rf"Using {_WORD} for mixed-precision linear"),
    _Form(Part.LINEAR, "LinearMethod", rf"Using {_WORD} for \w*LinearMethod"),
    _Form(
        Part.SAMPLER,
        "top-p & top-k sampling",
        r"Using (?P<choice>FlashInfer|the fused [\w ]+) for top-p & top-k sampling",
    ),
    _Form(
        Part.SAMPLER,
        "the PyTorch-native implementation of top-p",
        r"to the (?P<choice>PyTorch-native) implementation of top-p",
    ),
    _Form(Part.SAMPLER, "Sampling backend is set to ", r"Sampling backend is set to (?P<choice>\w+)"),
    _Form(
        Part.ALL_REDUCE, "all-reduce backends (in dispatch order)", r"Using (?P<choice>.{2,200}?) all-reduce backends"
    ),
    _Form(Part.ALL_REDUCE, "flashinfer allreduce backend", r"Using (?P<choice>flashinfer allreduce backend: \w+)"),
    _Form(Part.ALL_REDUCE, "FlashInfer AllReduce Fusion", r"Enable (?P<choice>FlashInfer AllReduce Fusion)"),
    _Form(Part.KV_CACHE, "data type to store kv cache", r"Using (?P<choice>\S{2,30}) data type to store kv cache"),
    _Form(Part.KV_CACHE, "Using KV cache dtype: ", r"Using KV cache dtype: (?:torch\.)?(?P<choice>\w{2,30})"),
    _Form(Part.KV_CACHE, "KV cache format", rf"Using {_WORD} KV cache format"),
    _Form(
        Part.PRECISION,
        "does not have native support for FP",
        r"(?P<choice>does not have native support for FP\d computation)",
    ),
    _Form(Part.PRECISION, "KV cache scaling factor 1.0", r"Using (?P<choice>KV cache scaling factor 1\.0)"),
    _Form(Part.PRECISION, "Using default MoE config", r"Using (?P<choice>default MoE config)"),
    _Form(Part.PRECISION, "Using default W8A8 Block", r"Using (?P<choice>default W8A8 Block \w+ kernel config)"),
    _Form(Part.AUTOTUNE, "Skipping FlashInfer autotune", r"(?P<choice>Skipping FlashInfer autotune\w*)"),
    _Form(Part.AUTOTUNE, "autotune cache", r"Using (?P<choice>(?:legacy )?FlashInfer (?:managed )?autotune cache)"),
    _Form(Part.AUTOTUNE, "Running FlashInfer autotune", r"(?P<choice>Running FlashInfer autotune)"),
    _Form(Part.AUTOTUNE, "FlashInfer autotune completed", r"(?P<choice>FlashInfer autotune completed)"),
    _Form(Part.AUTOTUNE, "Autotuning process ", r"(?P<choice>Autotuning process \w+)"),
    *(
        _Form(part, "server_args=", _GIVEN.replace("KEY", key))
        for part, key in (
            (Part.ATTENTION, "attention_backend"),
            (Part.MOE, "moe_runner_backend"),
            (Part.LINEAR, "fp8_gemm_runner_backend"),
            (Part.LINEAR, "fp4_gemm_runner_backend"),
            (Part.SAMPLER, "sampling_backend"),
            (Part.KV_CACHE, "kv_cache_dtype"),
        )
    ),
)


def literals() -> frozenset[bytes]:
    """What stands in the lines that tell what is used."""
    return frozenset(form.literal.encode() for form in _FORMS)


def used(line: Line, found: Iterable[bytes]) -> Iterator[Used]:
    """What a line says is used, in which these literals stand; the first form of each part counts."""
    standing = {literal.decode() for literal in found}
    parts: set[Part] = set()
    for form in _FORMS:
        if form.literal not in standing or form.part in parts:
            continue
        groups = search(form.pattern, line.text)
        if groups is None or groups["choice"] == "auto":
            continue
        parts.add(form.part)
        choice = groups["choice"].strip().removeprefix("AttentionBackendEnum.")
        yield Used(part=form.part, choice=choice, among=groups.get("among", ""), line=line.number, file=line.file)


def is_other(one: Used) -> bool:
    """Whether something else than FlashInfer serves a part that FlashInfer has kernels for."""
    return one.part in ROWS and not any(word in one.choice.lower() for word in ("flashinfer", "trtllm"))


def once(several: Iterable[Used]) -> tuple[Used, ...]:
    """Each choice once, where it was said first; the order is that of the parts."""
    first: dict[tuple[Part, str], Used] = {}
    for one in several:
        first.setdefault((one.part, one.choice), one)
    return tuple(sorted(first.values(), key=lambda one: (one.part.rank, one.file, one.line)))
