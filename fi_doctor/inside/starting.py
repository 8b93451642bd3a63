"""Starts the installed vLLM on a tiny model with dummy weights, and says which kernels its layers hold.

    python starting.py REQUEST.json ANSWER.json

The request: config (what config.json has), engine (keyword arguments of vLLM's LLM), fresh (whether FlashInfer's cache
is to lie beside the answer too). The answer is written anew after each phase, since a kernel may end the process:
importing, starting, started, generated. Runs in the examined interpreter, on its GPU, and imports nothing of ours but
the files beside it; asks nothing of the network. What vLLM logs goes to stdout and stderr, for who started this.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import traceback
from typing import Any

# Paths go to and come from vLLM and torch as text.
# ruff: noqa: PTH100, PTH103, PTH105, PTH118, PTH120, PTH123

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "1",
    "VLLM_LOGGING_LEVEL": "DEBUG",  # releases before 0.21 say so only there that FlashInfer does not sample
    # The engine stays in this process: one child to end, and its layers can be read.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}
# A part of the GPU's memory, beside which a server may run, and of the longest prompt.
SMALL = {"load_format": "dummy", "skip_tokenizer_init": True, "gpu_memory_utilization": 0.3, "max_num_seqs": 4}
LONGEST = 8192
PROMPT = list(range(1, 17))  # ids of tokens, which every vocabulary has


def main(request_path: str, answer_path: str) -> None:
    """Answer the request; a fault of the whole is an answer too."""
    with open(request_path, encoding="utf-8") as file:
        request = json.load(file)
    answer: dict[str, Any] = {"phase": "importing", "choices": [], "unknown": []}
    try:
        _answer(request, answer, answer_path)
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"[:2000]
        answer["traceback"] = traceback.format_exc()[-3000:]
    _write(answer, answer_path)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of the engine are not waited for


def _answer(request: dict[str, Any], answer: dict[str, Any], path: str) -> None:
    scratch = path + ".files"  # beside the answer, whose folder is removed even where this process is killed
    os.makedirs(scratch)
    os.environ.update(QUIET)
    folders = ("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "HF_HOME")
    for name in (*folders, *(("FLASHINFER_WORKSPACE_BASE", "TRITON_CACHE_DIR") if request.get("fresh") else ())):
        os.environ[name] = os.path.join(scratch, name.lower())
    _write(answer, path)
    vllm = importlib.import_module("vllm")
    answer["vllm"] = str(getattr(vllm, "__version__", ""))
    _next(answer, "starting", path)
    platform = importlib.import_module("vllm.platforms").current_platform
    if not platform.device_type:
        raise RuntimeError(f"vLLM finds no GPU: its platform is {type(platform).__name__}")
    with open(os.path.join(scratch, "config.json"), "w", encoding="utf-8") as file:
        json.dump(request["config"], file)
    engine = {**SMALL, **request.get("engine", {})}
    if longest := request["config"].get("max_position_embeddings"):  # else the model's own default, which may be less
        engine["max_model_len"] = min(int(longest), LONGEST)
    llm = vllm.LLM(model=scratch, **engine)
    for found in llm.collective_rpc(read_worker):
        for key in ("choices", "unknown"):
            answer[key] += found[key]
    _next(answer, "started", path)
    few = vllm.SamplingParams(max_tokens=4, top_k=20, top_p=0.9, detokenize=False, ignore_eos=True)
    llm.generate([{"prompt_token_ids": PROMPT}], few, use_tqdm=False)
    _next(answer, "generated", path)


def read_worker(worker: Any) -> dict[str, Any]:
    """What the layers of a worker's model hold."""
    result: dict[str, Any] = {"choices": [], "unknown": []}
    heard = _beside("selecting_watch").Watch()  # nothing was heard: only what the layers hold is known
    _beside("selecting_layers").read(worker.get_model(), heard, result)
    return result


def _next(answer: dict[str, Any], phase: str, path: str) -> None:
    answer["phase"] = phase
    _write(answer, path)


def _write(answer: dict[str, Any], path: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(answer, file, indent=1, default=str)
    os.replace(path + ".part", path)


def _beside(name: str) -> Any:
    """A file that lies beside this one, without putting its folder on sys.path."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("fi_doctor_" + name, place)
    if spec is None or spec.loader is None:
        raise ImportError(place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
