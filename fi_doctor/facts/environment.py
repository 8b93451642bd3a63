"""Variables by allow-list: what decides how kernels are built and chosen is kept, secrets never are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

HIDDEN = "<hidden>"

_LONGEST = 4096  # characters kept of a value
_PREFIXES = (
    "CCACHE_",
    "CONDA_",
    "CUBLAS_",
    "CUBLASLT_",
    "CUDA_",
    "CUDNN_",
    "CUTE_DSL_",
    "CUTLASS_",
    "DG_",
    "FLASHINFER_",
    "FLASH_ATTN",
    "GLOO_",
    "HF_",
    "LD_",
    "NCCL_",
    "NINJA",
    "NVCC_",
    "NVIDIA_",
    "NVSHMEM_",
    "NVTE_",
    "OMP_",
    "PYTHON",
    "PYTORCH_",
    "SGLANG_",
    "SGL_",
    "TENSORRT_",
    "TILELANG_",
    "TLLM_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "TRTLLM_",
    "TRT_LLM_",
    "TVM_",
    "UCX_",
    "VLLM_",
    "XDG_",
)
_NAMES = frozenset(
    {
        "CC",
        "CFLAGS",
        "CMAKE_PREFIX_PATH",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "CPPFLAGS",
        "CUDACXX",
        "CUDAFLAGS",
        "CUDAHOSTCXX",
        "CXX",
        "CXXFLAGS",
        "C_INCLUDE_PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LDFLAGS",
        "LIBRARY_PATH",
        "LOCAL_RANK",
        "MAKEFLAGS",
        "MAX_JOBS",
        "NO_COLOR",
        "PATH",
        "RANK",
        "TMPDIR",
        "VIRTUAL_ENV",
        "WORLD_SIZE",
    }
)
_IMAGE_PREFIXES = ("NV_CUDA_", "VLLM_BUILD_", "VLLM_IMAGE_")
_IMAGE_NAMES = frozenset(
    {
        "CUDA_DRIVER_VERSION",
        "CUDA_VERSION",
        "NVIDIA_BUILD_ID",
        "NVIDIA_DRIVER_CAPABILITIES",
        "NVIDIA_PRODUCT_NAME",
        "NVIDIA_PYTORCH_VERSION",
        "NVIDIA_SGLANG_VERSION",
        "NVIDIA_TENSORRT_LLM_VERSION",
        "NVIDIA_TRITON_SERVER_VERSION",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_VLLM_VERSION",
        "NV_CUDNN_VERSION",
        "NV_LIBNCCL_PACKAGE_VERSION",
        "PYTORCH_BUILD_VERSION",
        "PYTORCH_VERSION",
        "TENSORRT_VERSION",
        "TRT_LLM_VER",
    }
)

# Whole words of a name. TOKENS is missing on purpose: it counts tokens (VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE).
_SECRET_WORDS = frozenset(
    {"APIKEYS", "AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "CREDENTIAL", "CREDENTIALS", "CREDS", "KEY", "KEYS"}
    | {"PASS", "PASSPHRASE", "PASSWORDS", "PWD", "SECRETS"}
)
_SECRET_ENDINGS = ("APIKEY", "ACCESSKEY", "PRIVATEKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD")
_WORD = re.compile(r"[A-Z]+")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?|true|false", re.IGNORECASE)
_SECRET_VALUES = re.compile(
    r"""
      \b(?:hf|gh[oprsu]|glpat|github_pat|nvapi|npm|pypi|xox[abeprs]|dckr_pat|dop_v1|gsk|r8|wandb_v\d)[-_][\w-]{16,}
    | \bsk-[\w-]{16,}                                  # OpenAI and those who imitate it
    | \bA(?:KIA|SIA)[0-9A-Z]{16}\b | \bAIza[\w-]{30,}  # AWS, Google
    | \beyJ[\w-]{8,}\.[\w-]{4,}                        # JSON web token
    | -----BEGIN\s
    | \bbearer\s+\S{8,}
    | ://[^/\s@]*:[^/\s@]+@ | ://[^/\s:@]{16,}@        # credentials in a URL
    | (?:\b|_|-)(?:api[-_]?key|access[-_]?key|token|secret|password|passwd|passphrase)\b["']?
      (?:\s*[:=]\s*|\s+)["']?[^\s"',}]{4,}           # --api-key X, {"token": "X"}
    | [?&](?:sig|signature|x-amz-signature|key|auth)=[^&\s]{8,}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_RUN = re.compile(r"[A-Za-z0-9_-]{32,}")
_BASE64 = re.compile(r"[A-Za-z0-9+][A-Za-z0-9+/]{38,}={0,2}")


def read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that we know to matter, sorted by name, with secrets replaced and control characters made visible."""
    kept = (name for name in environ if name in _NAMES or name.startswith(_PREFIXES))
    return {neutralise(name): shown(name, environ[name]) for name in sorted(kept)}


def read_image(environ: Mapping[str, str]) -> dict[str, str]:
    """What the image says of itself, such as NVIDIA_PYTORCH_VERSION; empty when it says nothing."""
    kept = (name for name in environ if name in _IMAGE_NAMES or name.startswith(_IMAGE_PREFIXES))
    return {name: shown(name, environ[name]) for name in sorted(kept) if environ[name]}


def shown(name: str, value: str) -> str:
    """The value as it may be shown."""
    if value and (names_secret(name, value) or looks_secret(value)):
        return HIDDEN
    return neutralise(value)


def names_secret(name: str, value: str) -> bool:
    """Whether the name says that the value is a secret.

    TOKEN before other words may count tokens instead (..._TOKEN_THRESHOLD): then a number is innocent.
    """
    words = _WORD.findall(name.upper())
    telling = [word for word in words if word in _SECRET_WORDS or word.endswith(_SECRET_ENDINGS)]
    if telling == ["TOKEN"] and words[-1] != "TOKEN":
        return not _NUMBER.fullmatch(value)
    return bool(telling)


def looks_secret(value: str) -> bool:
    """Whether the value looks like a token, a password in a URL or a long random string, whatever its name."""
    if _SECRET_VALUES.search(value):
        return True
    rest = _UUID.sub("", value)
    return any(_is_random(run) for run in _RUN.findall(rest)) or bool(_BASE64.fullmatch(rest) and _is_random(rest))


def neutralise(text: str) -> str:
    """The text with everything that a terminal or an encoder could stumble over made visible, and not too long."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}... ({len(text) - _LONGEST} more characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _is_random(text: str) -> bool:
    """Whether capitals, small letters and digits alternate as by chance.

    In random base64 two of three neighbours are of different kinds; in names of models and folders one of four.
    Digests in hex have one case only and are innocent: commits and checksums are written so.
    """
    kinds = ["A" if c.isupper() else "a" if c.islower() else "0" if c.isdigit() else "" for c in text]
    if not {"A", "a", "0"} <= set(kinds):
        return False
    pairs = [(one, two) for one, two in itertools.pairwise(kinds) if one and two]
    return sum(one != two for one, two in pairs) >= 0.4 * len(pairs)
