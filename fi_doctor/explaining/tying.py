"""Whether a message of a compiler, a linker, a loader or the system is about FlashInfer, and not about others."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import Match, are_of_two, is_near
from fi_doctor.explaining.patterns import search
from fi_doctor.model import Confidence

# A folder that is only called like it is none.
_OWN = (
    r"(?:^|[/\s'\"(:])flashinfer(?:_cubin|_jit_cache)?(?:/|\.[a-z]|['\"])|cached_ops|tvm_ffi|flashinfer_jit"
    r"|BatchPrefill|BatchDecode|SinglePrefill|SingleDecode|RMSNorm failed|SamplingFrom"
    r"|batch_prefill_with|batch_decode_with"
)
# Whose messages they are, as the sources of signs begin.
_ANYBODY = (
    r"^(?:Python|g\+\+|gcc|clang|ld|nvcc|ptxas|nvlink|libnvvm|cudafe\+\+|ninja|dash|bash|sh|the system|Linux|NFS"
    r"|glibc|filelock|CUDA driver|CUDA runtime(?:, error \d+(?: and \d+)?)?$|CUTLASS|cutlass|cuDNN|cudnn-frontend"
    r"|torch [\d.]+: torch/(?:lib|utils/cpp_extension))(?:$|\W)"
)

# Builds of others, by their folders.
_OTHERS = (
    *("/torch_extensions/", "deep_gemm/", "/.triton/", "flash_attn/", "flash-attention/", "deepspeed/", "exllama"),
    *("xformers/", "tilelang/", "sgl-kernel/", "bitsandbytes/", "/apex/", "vllm/csrc/"),
)
_BUILT = (
    r"\b(?:nvcc|c\+\+|g\+\+|cc|clang\+\+|cicc|ptxas|cudafe\+\+|ld|cmake|ninja)\b|^FAILED: "
    r"|\b(?:[Bb]uild|[Cc]ompil)|\): error"
)
# What stands in lines that are about it, or about builds of others, to be searched for.
LITERALS = frozenset(
    (b"/flashinfer/", b"cached_ops/", b"flashinfer.", b"tvm_ffi", *(folder.encode() for folder in _OTHERS))
)
_OWN_SOURCE = r"(?:^|of )(?:flashinfer|nvidia-cutlass-dsl|apache-tvm-ffi)"


def is_about(line: Line) -> bool:
    """Whether a line names FlashInfer's files, modules or kernels."""
    return _is_named(line.text)


def is_telling(line: Line) -> bool:
    """Whether a line tells whose a message near it may be."""
    return is_about(line) or _is_others(line)


def limit(deciding: Iterable[Match], ties: Iterable[Line]) -> Confidence:
    """How sure such messages make that it is FlashInfer's: those near a line about it as sure as they are.

    ties: lines about FlashInfer, and about builds of others; of both near a message the nearest one says whose it is.
    """
    matches, found = [match for match in deciding if not match.sign.named], list(ties)
    if not matches or any(not _is_anybodys(match) or is_about(match.line) for match in matches):
        return Confidence.HIGH
    nearest = [tie for match in matches if (tie := _nearest(match.line, found)) is not None]
    if any(is_about(tie) for tie in nearest):
        return Confidence.HIGH
    if nearest:
        return Confidence.LOW
    possible = (tie for match in matches for tie in found if is_about(tie) and not are_of_two(match.line, tie))
    return Confidence.LOW if next(possible, None) is None else Confidence.MEDIUM


def is_anothers(deciding: Iterable[Match]) -> bool:
    """Whether all that decides is FlashInfer's only where it is named, and names it nowhere."""
    return all(match.sign.named and not _is_naming(match.line) for match in deciding)


def _is_naming(line: Line) -> bool:
    return line.is_own or is_about(line) or "flashinfer" in line.text.lower()


@functools.lru_cache(maxsize=8192)
def _is_named(text: str) -> bool:
    """Asked of a line once for each fault that it may be of."""
    return search(_OWN, text) is not None


def _is_others(line: Line) -> bool:
    """Whether a line is of a build that is none of FlashInfer's."""
    if is_about(line) or not any(folder in line.text for folder in _OTHERS):
        return False
    return search(_BUILT, line.text) is not None


def _nearest(line: Line, ties: list[Line]) -> Line | None:
    """Of the lines near one the nearest, FlashInfer's own before another."""
    near = [tie for tie in ties if is_near(line, tie)]
    return min(near, key=lambda tie: (abs(tie.number - line.number), not is_about(tie)), default=None)


def is_named(matches: Iterable[Match], ties: Iterable[Line]) -> bool:
    """Whether a sign is of FlashInfer's own message, or a line names it or is near one that does."""
    found = [tie for tie in ties if is_about(tie)]
    return any(
        search(_OWN_SOURCE, match.sign.source) is not None
        or search(r"(?i)flashinfer|trtllm", match.line.text) is not None
        or any(is_near(match.line, tie) for tie in found)
        for match in matches
    )


def _is_anybodys(match: Match) -> bool:
    return search(_ANYBODY, match.sign.source) is not None
