"""A model to be served, read from its config.json; nothing of it is run, and no network is asked.

Names of fields are those of transformers' configurations, and of vLLM where it reads others (vllm/config/model.py,
vllm/transformers_utils/model_arch_config_convertor.py of 0.33.0).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fi_doctor.errors import DataError
from fi_doctor.facts.config_fields import Fields
from fi_doctor.facts.encoded import text_of
from fi_doctor.facts.files import is_folder, read_head, read_whole
from fi_doctor.facts.model_layers import read_attention, read_experts
from fi_doctor.facts.model_quantization import read_quantized
from fi_doctor.model import ServedModel

CONFIG = "config.json"
QUANTIZED_APART = "hf_quant_config.json"  # ModelOpt's own file, which vLLM reads too
_LARGEST_BYTES = 8 << 20
# Where configurations of several parts (vision, audio) keep the one of the language model.
_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config")


def read_model(path: Path, name: str = "") -> ServedModel:
    """The model whose config.json a path is, or holds. Errors: DataError, with what to do."""
    return model_of(read_config(path), name or str(path), str(config_path(path)))


def read_config(path: Path) -> dict[str, Any]:
    """What config.json holds, with what ModelOpt has written beside it. Errors: DataError."""
    place = config_path(path)
    config = _object(place)
    apart = place.with_name(QUANTIZED_APART)
    if "quantization_config" not in config and apart.is_file():
        return {**config, "quantization_config": _object(apart).get("quantization", {})}
    return config


def config_path(path: Path) -> Path:
    """The file itself, where a folder is named."""
    return path / CONFIG if is_folder(path) else path


def model_of(config: Mapping[str, Any], name: str, source: str) -> ServedModel:
    """The model that an object of config.json describes. Errors: DataError where it describes none.

    source: where it stands; of a file it is looked at whether transformers could read it.
    """
    whole = Fields(config)
    text = whole
    for _ in range(3):  # Qwen's thinker_config holds a text_config
        part = text.below(*_PARTS)
        if part is None:
            break
        text = part
    hidden = text.number("hidden_size", "d_model", "n_embd", "dim", most=1 << 20) or 0
    attention = read_attention(text)
    if not attention:
        said = "; ".join(f"{field}: {why}" for field, why in text.unread.items())
        raise DataError(
            f"{source!r} describes no language model",
            why=said or "it says neither num_hidden_layers nor num_attention_heads, nor one of their other names",
            todo="fi-doctor check --model FOLDER, with the config.json that vLLM is given",
        )
    architectures = whole.words("architectures") or text.words("architectures")
    return ServedModel(
        name=name,
        source=source,
        architecture=architectures[0] if architectures else "",
        model_type=text.word("model_type") or whole.word("model_type"),
        dtype=(text.word("dtype", "torch_dtype") or whole.word("dtype", "torch_dtype")).removeprefix("torch."),
        hidden_size=hidden,
        attention=attention,
        experts=read_experts(text),
        quantized=read_quantized(whole, text),
        yarn=_yarn(text),
        draft_layers=text.number("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", most=64) or 0,
        unread=dict(sorted({**text.unread, **_encoded(source)}.items())),
    )


def _yarn(text: Fields) -> bool:
    """DeepSeek's, whose layer vLLM lets FlashInfer rotate: it comes with MLA."""
    scaling = text.below("rope_scaling", "rope_parameters")
    return (
        scaling is not None
        and scaling.word("rope_type", "type") in ("yarn", "deepseek_yarn")
        and "kv_lora_rank" in text
    )


def _encoded(source: str) -> dict[str, str]:
    """Why transformers refuses the file, which opens it as UTF-8 without a mark (configuration_utils.py)."""
    try:
        encoding = json.detect_encoding(read_head(source, 4))
    except (OSError, ValueError):
        return {}
    what = {"utf-8": "", "utf-8-sig": "it begins with a byte order mark"}.get(encoding, f"it is {encoding.upper()}")
    return {CONFIG: f"{what}, which transformers does not read"} if what else {}


def _object(path: Path) -> dict[str, Any]:
    try:
        # Python's own decoder, as transformers takes: Mamba's configurations have an Infinity, which is no JSON.
        found = json.loads(text_of(read_whole(path, _LARGEST_BYTES)))
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno == errno.ENOENT:
            why = f"there is no {path.absolute()}"
        raise _unread(path, why) from error
    except ValueError as error:  # also of digits without end, and of bytes that are no text
        raise _unread(path, f"{path.name} is no JSON: {error}") from error
    except RecursionError as error:
        raise _unread(path, f"{path.name} is nested too deeply") from error
    if not isinstance(found, dict):
        raise _unread(path, f"{path.name} holds no object, but {type(found).__name__}")
    return found


def _unread(path: Path, why: str) -> DataError:
    return DataError(
        f"the model's configuration {str(path.absolute())!r} cannot be read",
        why=why,
        todo="fi-doctor check --model FOLDER, with the config.json that vLLM is given",
    )
