"""Whether a message of a compiler, a linker, a loader or the system is about FlashInfer, and not about others."""

from __future__ import annotations

from collections.abc import Iterable

from fi_doctor.explaining.lines import Line
from fi_doctor.explaining.matching import Match, is_near
from fi_doctor.explaining.patterns import search
from fi_doctor.model import Confidence

# What stands in lines that are about it, to be searched for: a folder that is only called like it is none.
LITERALS = frozenset((b"/flashinfer/", b"cached_ops/", b"flashinfer.", b"tvm_ffi"))
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

_OWN_SOURCE = r"(?:^|of )(?:flashinfer|nvidia-cutlass-dsl|apache-tvm-ffi)"


def is_about(line: Line) -> bool:
    """Whether a line names FlashInfer's files, modules or kernels."""
    return search(_OWN, line.text) is not None


def limit(deciding: Iterable[Match], ties: Iterable[Line]) -> Confidence:
    """How sure such messages make that it is FlashInfer's: those near a line about it as sure as they are."""
    matches, found = list(deciding), list(ties)
    if any(not _is_anybodys(match) or is_about(match.line) for match in matches):
        return Confidence.HIGH
    if any(is_near(match.line, tie) for match in matches for tie in found):
        return Confidence.HIGH
    return Confidence.MEDIUM if found else Confidence.LOW


def is_named(matches: Iterable[Match], ties: Iterable[Line]) -> bool:
    """Whether a sign is of FlashInfer's own message, or a line names it or is near one that does."""
    found = list(ties)
    return any(
        search(_OWN_SOURCE, match.sign.source) is not None
        or search(r"(?i)flashinfer|trtllm", match.line.text) is not None
        or any(is_near(match.line, tie) for tie in found)
        for match in matches
    )


def _is_anybodys(match: Match) -> bool:
    return search(_ANYBODY, match.sign.source) is not None
