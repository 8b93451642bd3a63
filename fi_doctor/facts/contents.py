"""Whether the files of the installed vLLM that decide are those of its wheel, to the letter and not by size alone."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from msgspec.structs import replace

from fi_doctor.facts import sources
from fi_doctor.facts.files import read_whole
from fi_doctor.facts.packages import Survey
from fi_doctor.facts.recorded import LARGEST_BYTES, record_of
from fi_doctor.model import Missing, Vllm

# What settings are read from, and where the table of choices was read (knowledge/choices/): globs below the package.
# All files would take half a second.
DECIDING = (
    "compilation/passes/fusion/allreduce_rms_fusion.py",
    "config/*.py",
    "distributed/device_communicators/cuda_communicator.py",
    "engine/arg_utils.py",
    "envs.py",
    "model_executor/kernels/linear/__init__.py",
    "model_executor/layers/fused_moe/oracle/*.py",
    "model_executor/layers/fused_moe/unquantized_fused_moe_method.py",
    "model_executor/layers/linear.py",
    "model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
    "model_executor/layers/mamba/gdn_linear_attn.py",
    "model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe.py",
    "model_executor/layers/quantization/m*.py",
    "model_executor/layers/quantization/utils/fp8_utils.py",
    "model_executor/layers/quantization/utils/w8a8_utils.py",
    "model_executor/models/qwen3_next.py",
    "platforms/cuda.py",
    "utils/flashinfer.py",
    "v1/attention/backend.py",
    "v1/attention/backends/fa_utils.py",
    "v1/attention/backends/flash_attn.py",
    "v1/attention/backends/flashinfer.py",
    "v1/attention/backends/triton_attn.py",
    "v1/attention/backends/triton_flashinfer.py",
    "v1/sample/ops/topk_topp_sampler.py",
)
OTHER = "other contents of the same size"
# Another where other files decide: what is remembered of the former then says less.
WORD = hashlib.sha256("\n".join(DECIDING).encode()).hexdigest()


def read_vllm(survey: Survey) -> Vllm | Missing:
    """As sources.read_vllm, with what `with_contents` adds."""
    return with_contents(sources.read_vllm(survey))


def with_contents(vllm: Vllm | Missing) -> Vllm | Missing:
    """The same, with the deciding files that kept their size and were changed among those that are altered."""
    if isinstance(vllm, Missing):
        return vllm
    found = {name: OTHER for name in changed(Path(vllm.root), DECIDING) if name not in vllm.altered}
    return replace(vllm, altered={**vllm.altered, **found}) if found else vllm


def changed(root: Path, globs: tuple[str, ...]) -> list[str]:
    """The files whose SHA-256 is not the recorded one, sorted; of what is not recorded or not there nothing is said.

    Source: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
    """
    record = record_of(root)
    names = "|".join(re.escape(glob).replace(r"\*", "[^/,]*") for glob in globs)
    line = re.compile(rf"^{re.escape(root.name)}/({names}),sha256=([\w-]+)".encode(), re.MULTILINE)
    try:
        told = line.findall(read_whole(record, LARGEST_BYTES)) if record else []
    except OSError:
        return []
    return sorted(name.decode() for name, digest in told if _digest(root / name.decode()) not in ("", digest.decode()))


def _digest(path: Path) -> str:
    """As a RECORD has it; "" where the file cannot be read."""
    try:
        return base64.urlsafe_b64encode(hashlib.sha256(read_whole(path)).digest()).rstrip(b"=").decode()
    except OSError:
        return ""
