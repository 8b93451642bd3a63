"""Whether a message of a compiler, a linker, a loader or the system is about FlashInfer, and not about others."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from fi_doctor.explaining.lines import Level, Line
from fi_doctor.explaining.matching import Match, are_of_two, is_near
from fi_doctor.explaining.patterns import every, search
from fi_doctor.model import Confidence

# A folder that is only called like it is none.
_OWN = (
    r"(?:^|[/\s'\"(:])flashinfer(?:_cubin|_jit_cache)?(?:/|\.[a-z]|['\"])|cached_ops|flashinfer_jit"
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
_OTHERS = {
    "/torch_extensions/": "torch's extensions",
    "deep_gemm/": "DeepGEMM",
    "/.triton/": "Triton",
    "flash_attn/": "flash-attn",
    "flash-attention/": "flash-attn",
    "deepspeed/": "DeepSpeed",
    "exllama": "ExLlama",
    "xformers/": "xFormers",
    "tilelang/": "TileLang",
    "sgl-kernel/": "sgl-kernel",
    "bitsandbytes/": "bitsandbytes",
    "/apex/": "Apex",
    "vllm/csrc/": "vLLM",
    "ggml-cuda": "llama.cpp",
}
# What compiles for others, or runs their commands, whatever else stands in the line.
_BUILDERS = {
    "sglang/jit_kernel/": "SGLang's own kernels",
    "tvm_ffi/cpp/": "a build by tvm-ffi",
    "torch/utils/cpp_extension": "torch's extensions",
    "Error building extension": "torch's extensions",
}
# What FlashInfer called its modules while torch built them: up to 0.2.
_ONCE = r"extension '(?:sampling|norm|page|rope|cascade|quantization|activation|gemm|group_gemm|silu_and_mul)"
_CALLED = ("a build by tvm-ffi", "torch's extensions")  # who calls them is told by another line, if any
_BUILT = (
    r"\b(?:nvcc|c\+\+|g\+\+|cc|clang\+\+|cicc|ptxas|cudafe\+\+|ld|cmake|ninja|make)\b|^FAILED: "
    r"|\b(?:[Bb]uild|[Cc]ompil)|\): error"
)
# The package whose file or cache a line names, and those that say nothing: what calls FlashInfer, or is within it.
_PACKAGE = r"-packages/(?P<package>[A-Za-z]\w*)[/.]|\.cache/(?P<cache>[a-z][\w-]*)/"
_NEUTRAL = frozenset(
    ("flashinfer", "flashinfer_cubin", "flashinfer_jit_cache", "torch", "nvidia", "tvm_ffi", "cutlass", "cuda")
) | frozenset(("numpy", "nvidia_cutlass_dsl", "filelock", "ray", "pip", "uv", "ccache"))
_CALLING = frozenset(("vllm", "sglang", "tensorrt_llm"))  # of their own caches, and of nothing else, they are the owner
# What FlashInfer's logger says of a build that is under way; all else that is called information is of healthy starts.
_BUILDING = r"(?i)(?:^|[^d] )loading\b|\b(?:building|compiling|generating)\b|JIT backend"
_LOADING, _LOADED = r"(?:^|[^d] )[Ll]oading JIT ops: (?P<ops>.*)$", r"Finished loading JIT ops: (?P<ops>.*)$"
_FRAME = ", line "
_BELOW = 40  # lines between FlashInfer's frame and that of a builder that it calls
# What stands in lines that are about it, or about builds of others, to be searched for.
LITERALS = frozenset(
    (b"/flashinfer/", b"cached_ops/", b"flashinfer.", *(folder.encode() for folder in (*_OTHERS, *_BUILDERS)))
)
# What the sources of signs begin with, and the folders whose files raise their messages.
_FOLDERS = {
    "flashinfer-python ": "flashinfer/",
    "flashinfer ": "flashinfer/",
    "vllm": "vllm",
    "sglang": "sglang",
    "nvidia-cutlass-dsl": "cutlass/",
    "apache-tvm-ffi": "tvm_ffi/",
}
_IN_TENSORRT_LLM = r"[(\s/]tensorrt_llm/[\w./-]+\.(?:cpp|cu|cuh|h|py):\d+"
_WORDS = r"(?i)flashinfer|trtllm"  # that its messages have, and others' about it
_OWN_SOURCE = r"(?:^|of )(?:flashinfer|nvidia-cutlass-dsl)"


def is_about(line: Line) -> bool:
    """Whether a line names FlashInfer's files, modules or kernels."""
    return _is_named(line.text)


def is_telling(line: Line) -> bool:
    """Whether a line tells whose a message near it may be."""
    return is_about(line) or bool(_other(line.text))


def owner(deciding: Iterable[Match], ties: Iterable[Line]) -> str:
    """Whose such messages are where that is another one's: by their lines, their tracebacks, or a build near them."""
    matches, found = _open(deciding), list(ties)
    owners = [_owner(match.line, found) for match in matches]
    return owners[0] if owners and all(owners) else ""


def limit(deciding: Iterable[Match], ties: Iterable[Line]) -> Confidence:
    """How sure such messages make that it is FlashInfer's: those near a line about it as sure as they are.

    ties: as `standing` gives them, about FlashInfer and about builds of others; of both near a message the nearest one
    says whose it is.
    """
    matches, found = _open(deciding), list(ties)
    if not matches or any(match.line.is_own for match in matches):
        return Confidence.HIGH
    nearest = [tie for match in matches if (tie := _nearest(match.line, found)) is not None]
    if any(is_about(tie) for tie in nearest):
        return Confidence.HIGH
    if nearest:
        return Confidence.LOW
    possible = (tie for match in matches for tie in found if is_about(tie) and not are_of_two(match.line, tie))
    return Confidence.LOW if next(possible, None) is None else Confidence.MEDIUM


def is_of_its_source(match: Match) -> bool:
    """Whether an error was raised in the file that its message stands in: "torch 2.6.0: torch/utils/x.py:88"."""
    said = search(r": (?P<path>[\w/]+\.py)(?::\d+)?$", match.sign.source)
    return said is not None and f'/{said["path"]}"' in match.line.frame


def package(text: str) -> str:
    """The package whose file or cache a line names, where that says whose an error is; "" where it does not."""
    for found in every(_PACKAGE, text):
        cache, name = found.get("cache", ""), found.get("package", "")
        if (cache and cache not in _NEUTRAL) or (name and name not in _NEUTRAL | _CALLING):
            return cache or name
    return ""


def _open(deciding: Iterable[Match]) -> list[Match]:
    """The messages, where none of them is FlashInfer's own or names it."""
    matches = [match for match in deciding if not match.sign.named]
    own = (not (_is_anybodys(match) or _is_raised_elsewhere(match)) or is_about(match.line) for match in matches)
    return [] if any(own) else matches


def _owner(line: Line, ties: list[Line]) -> str:
    if line.is_own:
        return ""
    if named := package(line.text) or line.owner:
        return named
    tie = _nearest(line, ties)
    if tie is None or is_about(tie):
        return ""
    callers = (_other(other.text) for other in ties if is_near(tie, other, _BELOW) and not is_about(other))
    named = _other(tie.text)
    return next((caller for caller in callers if caller not in _CALLED), named) if named in _CALLED else named


def is_anothers(deciding: Iterable[Match]) -> bool:
    """Whether all that decides is FlashInfer's only where it is named, and names it nowhere."""
    return all(match.sign.named and not _is_naming(match.line) for match in deciding)


def _is_naming(line: Line) -> bool:
    return line.is_own or is_about(line) or "flashinfer" in line.text.lower()


@functools.lru_cache(maxsize=8192)
def _is_named(text: str) -> bool:
    """Asked of a line once for each fault that it may be of."""
    return search(_OWN, text) is not None


def _other(text: str) -> str:
    """Whose a line is that is of a build of another's."""
    if _is_named(text) or search(_ONCE, text) is not None:
        return ""
    built = next((name for mark, name in _BUILDERS.items() if mark in text), "")
    if built or search(_BUILT, text) is None:
        return built
    return next((name for mark, name in _OTHERS.items() if mark in text), "")


def standing(ties: Iterable[Line]) -> list[Line]:
    """The lines less those of healthy starts, of loads that finished, and of builders that FlashInfer called."""
    found = list(ties)
    finished = [(tie, said["ops"]) for tie in found if (said := search(_LOADED, tie.text)) is not None]
    loaded = {(tie.file, tie.rank, ops): tie.number for tie, ops in finished}
    standing: list[Line] = []
    own: Line | None = None
    for tie in found:
        if _is_healthy(tie, loaded):
            continue
        if is_about(tie):
            own = tie if _FRAME in tie.text else own
        elif own is not None and any(mark in tie.text for mark in _BUILDERS) and is_near(tie, own, _BELOW):
            continue
        standing.append(tie)
    return standing


def _is_healthy(tie: Line, loaded: Mapping[tuple[str, str, str], int]) -> bool:
    if search(_LOADED, tie.text) is not None:
        return True
    if (said := search(_LOADING, tie.text)) is not None:
        return loaded.get((tie.file, tie.rank, said["ops"]), 0) > tie.number
    return tie.level is Level.INFO and is_about(tie) and search(_BUILDING, tie.text) is None


def _nearest(line: Line, ties: list[Line]) -> Line | None:
    """Of the lines near one the nearest, FlashInfer's own before another."""
    near = [tie for tie in ties if is_near(line, tie)]
    return min(near, key=lambda tie: (abs(tie.number - line.number), not is_about(tie)), default=None)


def is_named(matches: Iterable[Match], ties: Iterable[Line]) -> bool:
    """Whether a sign is of FlashInfer's own message, or a line names it or is near one that does."""
    found = [tie for tie in ties if is_about(tie)]
    return any(
        search(_OWN_SOURCE, match.sign.source) is not None
        or search(_WORDS, match.line.text) is not None
        or any(is_near(match.line, tie) for tie in found)
        for match in matches
    )


def _is_raised_elsewhere(match: Match) -> bool:
    """Whether a traceback, or the message itself, names a raiser that is not the one whose message it is said to be."""
    line, sign = match.line, match.sign
    if sign.frame or line.is_own or search(_WORDS, f"{line.text} {line.frame}") is not None:
        return False
    if search(_IN_TENSORRT_LLM, line.text) is not None:
        return "tensorrt" not in sign.source
    source = sign.source.removeprefix("put together in ")
    folder = next((folder for name, folder in _FOLDERS.items() if source.startswith(name)), "")
    return bool(line.frame and folder) and f"/{folder}" not in line.frame


def _is_anybodys(match: Match) -> bool:
    return search(_ANYBODY, match.sign.source) is not None
