"""What will be served: a model, as its configuration says it is, and how it is to be deployed."""

from __future__ import annotations

import re

from fi_doctor.model.base import Data

_SITE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+).*")


def repository_of(word: str) -> str:
    """The repository that an address of Hugging Face names, "https://huggingface.co/a/b/tree/main" -> "a/b"."""
    found = _SITE.fullmatch(word)
    return found[1] if found else word.rstrip("/")


class AttentionLayers(Data, frozen=True, omit_defaults=True):
    """The layers of a model whose attention is alike. Sizes are elements, of one head."""

    kind: str  # "full", "window", "chunked", "mla", "sparse_mla", "gdn", "mamba", "kda", "linear"
    count: int
    heads: int = 0
    kv_heads: int = 0
    head_size: int = 0  # of queries and keys; of MLA that of the latent with its rotary part, which decoding reads
    value_size: int = 0
    window: int = 0  # tokens that a token attends to; 0: all
    sinks: bool = False
    soft_cap: float = 0.0  # 0: none


class Experts(Data, frozen=True, omit_defaults=True):
    """Mixture of experts."""

    count: int
    active: int  # of a token
    layers: int
    width: int = 0  # of one expert's hidden layer, in elements
    shared: int = 0


class Quantized(Data, frozen=True, omit_defaults=True):
    """How weights are stored, in vLLM's words for the method, and what of the rest is low precision."""

    method: str  # "fp8", "compressed-tensors", "modelopt", "mxfp4", "awq", ...
    weights: str  # "fp8_block", "fp8_per_tensor", "fp8_per_channel", "nvfp4", "mxfp4", "mxfp8", "int4", ...
    activations: str = ""  # "fp8", "nvfp4", "mxfp8", "int8"; "": as the model computes
    dynamic: bool = False  # whether activations in FP8 are scaled as they come, and not by what is stored
    block: tuple[int, ...] = ()  # rows and columns of weights with one scale
    kv_cache: str = ""  # "fp8": the checkpoint has scales for an FP8 cache
    linear: bool = True  # whether the layers beside the experts are so
    experts: bool = True


class ServedModel(Data, frozen=True, omit_defaults=True):
    """A model, as far as its configuration says. Source: config.json, of which nothing is run."""

    name: str
    source: str  # the file, or "preset NAME"
    architecture: str
    model_type: str
    dtype: str  # "bfloat16", "float16", "float32"; "": not said
    hidden_size: int
    attention: tuple[AttentionLayers, ...]
    experts: Experts | None = None
    quantized: Quantized | None = None
    yarn: bool = False  # positions are scaled by DeepSeek's YaRN
    draft_layers: int = 0  # layers that predict further tokens and come with the model
    unread: dict[str, str] = {}  # what could not be made sense of: field -> why


class Deployment(Data, frozen=True, omit_defaults=True):
    """How it is served: what a command line of vLLM says; what it does not say is vLLM's default."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    kv_cache_dtype: str = "auto"
    flags: dict[str, str] = {}  # all that was given, "--moe-backend" -> "triton"; a switch -> ""

    @property
    def world_size(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel
