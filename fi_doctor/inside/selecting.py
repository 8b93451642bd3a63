"""What the installed vLLM chooses for a model on a GPU: its own selectors are asked, no weights and no kernel run.

    python selecting.py REQUEST.json ANSWER.json

The request: gpu (sm, name, memory_gib, multiprocessors, count, cuda), cells (id, config: what config.json has, engine:
keyword arguments of vLLM's EngineArgs), variables (set before vLLM is imported), reachable (whether NVIDIA's kernel
server is to be taken as reachable). Each cell, where there are several, is built in a fork of its own: vLLM's config
from a folder that holds config.json, then the model on torch's meta device, whose layers run the selectors. Runs in the
examined interpreter and imports nothing of ours but the files beside it. Writes the answer and, in the temporary
folder, what vLLM itself caches; asks nothing of the network.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import time
import traceback
import types
from typing import Any

# Paths go to and come from vLLM and torch as text.
# ruff: noqa: PTH100, PTH103, PTH105, PTH118, PTH120, PTH123

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
# What every model needs, imported once and then forked with.
IMPORTED = (
    "vllm.engine.arg_utils",
    "vllm.model_executor.layers.fused_moe.layer",
    "vllm.model_executor.layers.quantization.fp8",
    "vllm.model_executor.layers.quantization.modelopt",
    "vllm.model_executor.layers.quantization.mxfp4",
    "vllm.model_executor.models.registry",
    "vllm.v1.attention.backends.flash_attn",
    "vllm.v1.attention.backends.flashinfer",
    "vllm.v1.attention.backends.triton_attn",
    "vllm.v1.sample.ops.topk_topp_sampler",
)
NEEDED = ("machine", "compiled", "watch", "layers", "between")


def main(request_path: str, answer_path: str) -> None:
    """Answer the request; a fault of the whole is an answer too."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    begun = time.monotonic()
    answer: dict[str, Any] = {"replaced": [], "cells": []}
    try:
        _answer(request, answer, begun)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        answer["traceback"] = traceback.format_exc()[-3000:]
    answer["seconds"] = round(time.monotonic() - begun, 1)
    with open(answer_path + ".part", "w", encoding="utf-8") as file:
        json.dump(answer, file, indent=1)
    os.replace(answer_path + ".part", answer_path)


def _answer(request: dict[str, Any], answer: dict[str, Any], begun: float) -> None:
    os.environ.update(QUIET)
    os.environ.update(request.get("variables", {}))
    with tempfile.TemporaryDirectory(prefix="fi-doctor-selecting-") as scratch:
        # vLLM and FlashInfer write caches and logs; they do it here.
        for name in ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "FLASHINFER_WORKSPACE_BASE", "HF_HOME", "TRITON_CACHE_DIR"):
            os.environ[name] = os.path.join(scratch, name.lower())
        parts = types.SimpleNamespace(**{name: _beside(f"selecting_{name}") for name in NEEDED})
        parts.heard = parts.watch.Watch()
        said = answer["replaced"]
        parts.machine.cut_network(bool(request.get("reachable", True)), said)
        asked = {name for cell in request["cells"] for name in cell["config"].get("architectures", ())}
        _import(parts, request["gpu"], sorted(asked), said)
        answer.update(_versions())
        answer["import_seconds"] = round(time.monotonic() - begun, 1)
        # Alone it is asked here: a GPU that is really there cannot be used on the other side of a fork.
        ask = _forked if len(request["cells"]) > 1 else _answered
        for cell in request["cells"]:
            answer["cells"].append(ask(lambda cell=cell: _cell(cell, parts, scratch), cell, parts.heard))


def _import(parts: Any, gpu: dict[str, Any], architectures: list[str], said: list[str]) -> None:
    """Import vLLM with the asked platform in place before anything of it can ask for the real one."""
    parts.compiled.stub_compiled(said)
    parts.kept = parts.compiled.stand_in_operators(said)
    parts.machine.install_platform(gpu, parts.heard, said)
    for name in IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: PERF203
            said.append(f"{name} could not be imported: {type(error).__name__}: {error}")
    parts.machine.inspect_in_place(said)
    _import_models(architectures, said)
    parts.heard.listen_to_experts()
    parts.heard.listen_to_linear()
    parts.heard.listen_to_log()


def _import_models(architectures: list[str], said: list[str]) -> None:
    """The files of the models that are asked about, once for all cells."""
    known = importlib.import_module("vllm.model_executor.models").ModelRegistry.models
    for name in architectures:
        try:
            known[name].load_model_cls()
        except Exception as error:  # noqa: PERF203
            said.append(f"{name} could not be imported: {type(error).__name__}: {error}"[:500])


def _cut(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """A config with fewer layers: enough of them that each kind stays, which is for who asks to know."""
    if not 0 < layers < int(config["num_hidden_layers"]):
        return config
    cut = dict(config, num_hidden_layers=layers)
    if "layer_types" in cut:
        cut["layer_types"] = cut["layer_types"][:layers]
    return cut


def _forked(work: Any, cell: dict[str, Any], heard: Any) -> dict[str, Any]:
    """What `work` answers in a process of its own: what a model leaves behind in caches is gone for the next one."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            json.dump(_answered(work, cell, heard), file)
            file.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return {"id": cell["id"], "error": f"ended with status {status} and said nothing"}
    return dict(json.loads(text))


def _answered(work: Any, cell: dict[str, Any], heard: Any) -> dict[str, Any]:
    """What `work` answers, or its fault and what vLLM logged before it."""
    try:
        return {"id": cell["id"], **work()}
    except BaseException as error:
        text = f"{type(error).__name__}: {error}"[:2000]
        return {"id": cell["id"], "error": text, "traceback": traceback.format_exc()[-2500:], "log": heard.log}


def _cell(cell: dict[str, Any], parts: Any, scratch: str) -> dict[str, Any]:
    """One model with one set of options."""
    begun = time.monotonic()
    parts.heard.clear()
    folder = os.path.join(scratch, str(cell["id"]).replace("/", "_"))
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(_cut(cell["config"], int(cell.get("layers", 0))), file)
    result: dict[str, Any] = {"replaced": [], "choices": [], "unknown": []}
    config = _engine_config(folder, cell.get("engine", {}))
    configured = time.monotonic()
    parts.machine.install_groups(_sizes(config.parallel_config), result["replaced"])
    parts.machine.keep_expert_map(importlib.import_module("torch"), result["replaced"])
    model, why = _model(config)
    if why:
        result["unknown"].append({"operator": "layers", "why": why})
    parts.layers.read(model, parts.heard, result)
    parts.layers.ask_all(parts.between.questions(config, parts.heard), result)
    result["config_seconds"] = round(configured - begun, 1)
    result["seconds"] = round(time.monotonic() - begun, 1)
    result["log"] = parts.heard.log
    return result


def _engine_config(folder: str, options: dict[str, Any]) -> Any:
    """The config that vLLM makes of a folder that has no tokenizer and no weights."""
    arguments = importlib.import_module("vllm.engine.arg_utils").EngineArgs
    given = {"skip_tokenizer_init": True, "load_format": "dummy", **options}
    if "swap_space" in arguments.__dataclass_fields__:
        given.setdefault("swap_space", 0)  # it is held against this machine's memory, and no kernel depends on it
    return arguments(model=folder, **given).create_engine_config()


def _sizes(parallel: Any) -> dict[str, int]:
    """The sizes of vLLM's groups by their names in parallel_state."""
    tp, dp = parallel.tensor_parallel_size, parallel.data_parallel_size
    pcp = getattr(parallel, "prefill_context_parallel_size", 1)
    expert = tp * dp * pcp
    return {
        "_WORLD": parallel.world_size,
        "_INNER_DP_WORLD": parallel.world_size,
        "_TP": tp,
        "_ETP": tp,
        "_PP": parallel.pipeline_parallel_size,
        "_DP": dp,
        "_EP": expert,
        "_EPLB": expert,
        "_DCP": getattr(parallel, "decode_context_parallel_size", 1),
        "_PCP": pcp,
    }


def _model(config: Any) -> tuple[Any, str]:
    """The model without storage, or why it could not be constructed: what ran before that has been heard."""
    torch: Any = importlib.import_module("torch")
    loader = importlib.import_module("vllm.model_executor.model_loader.utils")
    before = torch.get_default_dtype()
    torch.set_default_dtype(config.model_config.dtype)
    try:
        with _nowhere(torch):
            return loader.initialize_model(vllm_config=config), ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{last.filename.rpartition('/vllm/')[2]}:{last.lineno}"
        return None, f"the model could not be constructed: {type(error).__name__}: {error} (at {place})"[:1500]
    finally:
        torch.set_default_dtype(before)


def _nowhere(torch: Any) -> Any:
    """A mode in which every tensor is made on the meta device, also where a layer names the GPU."""
    makers = importlib.import_module("torch.utils._device")._device_constructors()  # noqa: SLF001 - as torch.device does
    mode: Any = importlib.import_module("torch.overrides").TorchFunctionMode

    class Nowhere(mode):  # type: ignore[misc] # a class of the examined torch
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            given = dict(kwargs or {})
            if func in makers:
                given["device"] = torch.device("meta")
            return func(*args, **given)

    return Nowhere()


def _versions() -> dict[str, str]:
    """What was asked: the versions of the packages whose code ran."""
    torch: Any = importlib.import_module("torch")
    vllm = importlib.import_module("vllm")
    found = {"vllm": str(getattr(vllm, "__version__", "")), "torch": str(torch.__version__)}
    for name in ("flashinfer-python", "transformers"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return dict(found, python=sys.version.split()[0], vllm_folder=os.path.dirname(str(vllm.__file__)))


def _beside(name: str) -> Any:
    """A file that lies beside this one, without putting its folder on sys.path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("fi_doctor_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
