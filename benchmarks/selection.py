"""The table of choices beside vLLM's own selectors: what was recorded and what the table says.

    python benchmarks/selection.py                      compare the table with the recorded cells
    python benchmarks/selection.py summary              only how many cells agree, as docs/figures.md has it
    python benchmarks/selection.py record OUT.json...   put answers of inside/selecting.py into the recording
    python benchmarks/selection.py request SM90 > R     a request for inside/selecting.py, with all cells but those that
                                                        set variables: `request SM90 batch-invariant` has such a one

The files are named anything-SM90.json. Their cells replace those that are recorded, a later file's those of earlier
ones.

A cell is one model with one set of options on one GPU in one release; an operator of it agrees, disagrees, or could not
be executed, which is counted and named and never passes. The recordings are under tests/knowledge/data/.
"""

import json
import pathlib
import sys

from fi_doctor.facts.served_model import model_of
from fi_doctor.knowledge.choosing import choose, has_table
from fi_doctor.model.traits import traits_of

DATA = pathlib.Path(__file__).parents[1] / "tests" / "knowledge" / "data"
RECORDED = DATA / "selectors.json"
OPERATORS = ("attention", "moe", "linear", "mixer", "sampling", "allreduce_fusion", "allreduce", "all2all")
GPUS = {
    "SM90": {"sm": [9, 0], "name": "NVIDIA H200", "memory_gib": 141, "multiprocessors": 132, "count": 8},
    "SM100": {"sm": [10, 0], "name": "NVIDIA B200", "memory_gib": 180, "multiprocessors": 148, "count": 8},
    "SM120": {"sm": [12, 0], "name": "NVIDIA RTX PRO 6000", "memory_gib": 96, "multiprocessors": 188, "count": 8},
}
TENSOR_PARALLEL = {"deepseek-v3": 8, "deepseek-v3.2": 8, "deepseek-r1-nvfp4": 8, "qwen3-235b-a22b-fp8": 4}
VARIED = {
    "batch-invariant": ("gpt-oss-20b", {"variables": {"VLLM_BATCH_INVARIANT": "1"}}),
    "attention-flashinfer": ("gpt-oss-20b", {"attention_backend": "FLASHINFER"}),
    "tp2": ("gpt-oss-20b", {"tensor_parallel_size": 2}),
    "lora": ("gpt-oss-20b", {"enable_lora": True}),
    "kv-fp8-e5m2": ("llama-3.1-8b", {"kv_cache_dtype": "fp8_e5m2"}),
    "kv-int8-heads": ("llama-3.1-8b", {"kv_cache_dtype": "int8_per_token_head"}),
    "kv-nvfp4": ("llama-3.1-8b", {"kv_cache_dtype": "nvfp4"}),
    "kv-bfloat16": ("llama-3.1-8b", {"kv_cache_dtype": "bfloat16"}),
    "images-kv-fp8": ("gemma-3-12b", {"kv_cache_dtype": "fp8"}),
    "images-flashinfer": ("gemma-3-27b", {"attention_backend": "FLASHINFER"}),
    "sparse-tp1": ("deepseek-v3.2", {"tensor_parallel_size": 1}),
    "sparse-tp4": ("deepseek-v3.2", {"tensor_parallel_size": 4}),
    "dp2-ep-naive": (
        "qwen3-30b-a3b",
        {"data_parallel_size": 2, "enable_expert_parallel": True, "all2all_backend": "naive"},
    ),
    "kv-fp8": ("llama-3.1-8b", {"kv_cache_dtype": "fp8"}),
    "mla-kv-fp8": ("deepseek-v3", {"kv_cache_dtype": "fp8"}),
    "sparse-kv-fp8": ("deepseek-v3.2", {"kv_cache_dtype": "fp8"}),
    "tp2-eager": ("llama-3.1-8b", {"tensor_parallel_size": 2, "enforce_eager": True}),
    "tp4-pp2": ("llama-3.1-8b", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}),
    "dp2-tp4-ep": (
        "qwen3-30b-a3b-fp8",
        {"tensor_parallel_size": 4, "data_parallel_size": 2, "enable_expert_parallel": True},
    ),
    "tp2-ep": ("qwen3-30b-a3b-fp8", {"tensor_parallel_size": 2, "enable_expert_parallel": True}),
    "moe-flashinfer-cutlass": ("qwen3-30b-a3b", {"moe_backend": "flashinfer_cutlass"}),
}


def main():
    if sys.argv[1:2] == ["record"]:
        paths = [pathlib.Path(name) for name in sys.argv[2:]]
        RECORDED.write_text(written(record(paths, json.loads(RECORDED.read_text()))))
        return
    if sys.argv[1:2] == ["request"]:
        print(json.dumps(request(*sys.argv[2:4])))
        return
    compared = compare(json.loads(RECORDED.read_text()))
    print("\n".join(summary(compared) if sys.argv[1:2] == ["summary"] else lines(compared)))


def models():
    """config.json of each model by name; `like` names another one, whose fields hold where it has none of its own."""
    written = json.loads((DATA / "models.json").read_text())
    return {name: {**written.get(own.pop("like", ""), {}), **own} for name, own in written.items()}


def options_of(cell):
    """The options of a cell by its name, model+options."""
    model, _, varied = cell.partition("+")
    found = {"tensor_parallel_size": TENSOR_PARALLEL.get(model, 1)}
    return model, dict(found, **(VARIED[varied][1] if varied else {}))


def request(sm, only=""):
    """Variables hold for a whole request: releases read some of them when they are imported, and never again."""
    known = models()
    names = [*known, *(f"{model}+{name}" for name, (model, _) in VARIED.items())]
    # What a machine with flashinfer-cubin has; without it, vLLM's answers depend on nvcc and on the network.
    variables = {"VLLM_HAS_FLASHINFER_CUBIN": "1", "FLASHINFER_DISABLE_VERSION_CHECK": "1"}
    cells = []
    for name in names:
        model, options = options_of(name)
        own = options.pop("variables", {})
        if own and only == name.partition("+")[2]:
            variables |= own
        if bool(own) == bool(only) and name.endswith(only):
            # Six layers hold each kind of layer that these models have; those with a text_config have no more.
            layers = 6 if "num_hidden_layers" in known[model] else 0
            cells.append({"id": name, "config": known[model], "engine": options, "layers": layers})
    return {"gpu": GPUS[sm], "reachable": True, "variables": variables, "cells": cells}


def record(paths, before):
    """What was recorded before, and answers of inside/selecting.py, without logs, times and local paths."""
    found = list(before["cells"])
    for path in paths:
        answer = json.loads(path.read_text())
        sm = path.stem.rpartition("-")[2]
        found.extend(
            {
                "vllm": answer["vllm"],
                "sm": sm,
                "cell": cell["id"],
                "choices": [kept(choice) for choice in cell.get("choices", [])],
                "unknown": [{**part, "why": clean(part["why"])} for part in cell.get("unknown", [])],
                "error": clean(cell.get("error", "")),
            }
            for cell in answer["cells"]
        )
    order = {"versions": dict(before["versions"]), "cells": []}
    for path in paths:
        answer = json.loads(path.read_text())
        keys = ("vllm", "torch", "flashinfer-python", "transformers", "python")
        replaced = order["versions"].get(answer["vllm"], {}).get("replaced", [])
        order["versions"][answer["vllm"]] = {
            **{key: answer[key] for key in keys},
            "replaced": list(dict.fromkeys((*replaced, *(clean(said) for said in answer["replaced"])))),
        }
    last = {(cell["cell"], cell["vllm"], cell["sm"]): cell for cell in found}
    order["cells"] = [last[key] for key in sorted(last)]
    return order


def written(recorded):
    """JSON with a line for each cell, so that a difference between recordings can be read."""
    cells = ",\n".join(json.dumps(cell) for cell in recorded["cells"])
    return f'{{"versions": {json.dumps(recorded["versions"], indent=1)},\n"cells": [\n{cells}\n]}}\n'


def kept(choice):
    found = {name: choice[name] for name in ("operator", "layers", "chosen")}
    found.update({name: choice[name] for name in ("class", "error", "how") if choice.get(name)})
    rejected = [{"name": part["name"], "why": clean(part["why"])} for part in choice.get("rejected", [])]
    return dict(found, rejected=rejected) if rejected else found


def clean(text):
    """Without the folder in which a release lay."""
    words = [
        word if "/vllm/" not in word else word[: len(word) - len(word.lstrip("'\"("))] + tail(word)
        for word in text.split(" ")
    ]
    return " ".join(words)[:400]


def tail(word):
    return "vllm/" + word.rpartition("/vllm/")[2]


def compare(recorded):
    """[(cell, vllm, sm, operator, kind as `verdict` has it, what was recorded, what the table says)]."""
    known = models()
    found = []
    for cell in recorded["cells"]:
        model, options = options_of(cell["cell"])
        sm = int(cell["sm"].removeprefix("SM"))
        told = choose(traits_of(model_of(known[model], model, model), options, sm), options, cell["vllm"])
        for operator in OPERATORS:
            real = names(cell, operator)
            said = sorted({choice.chosen for choice in told if choice.operator == operator and choice.chosen})
            kind = verdict(real, said)
            # Between releases that were read, what these do not choose alike is told to be unknown.
            kind = "said to be unknown" if kind == "not in the table" and not has_table(cell["vllm"]) else kind
            found.append((cell["cell"], cell["vllm"], cell["sm"], operator, kind, real, said))
    return found


def names(cell, operator):
    """What vLLM's selectors answered; None where they could not be executed. Modules outside quantisation aside."""
    chosen = [choice for choice in cell["choices"] if choice["operator"] == operator]
    failed = [part for part in cell["unknown"] if part["operator"] in (operator, "layers")]
    if operator in ("attention", "moe", "linear") and failed and not chosen:
        # No candidate serves: that is an answer of the selector. What would have come after it was not asked.
        refused = operator == "moe" and any(" MoE backend supports the deployment" in part["why"] for part in failed)
        return ["none"] if refused else None
    if any(part["operator"] == operator for part in cell["unknown"]) or cell["error"]:
        return None
    if operator == "linear":
        real = {choice["chosen"] for choice in chosen}
        # The router and lm_head stay as they are in a quantised checkpoint.
        return sorted(real - {"UnquantizedLinearMethod"} or real)
    return sorted({choice["chosen"] for choice in chosen})


def verdict(real, said):
    if real is None:
        return "not executed"
    if not real and not said:
        return "absent"
    if real and not said:
        return "not in the table"
    return "agrees" if real == said else "differs"


def lines(compared):
    for kind in ("differs", "not executed", "not in the table"):
        rows = [row for row in compared if row[4] == kind]
        for cell, vllm, sm, operator, _, real, said in rows:
            yield f"{kind:16} {vllm:7} {sm:6} {cell:42} {operator:17} vLLM: {real}  table: {said}"
    yield from summary(compared)


def summary(compared):
    """The counts of each release, in a table for docs/figures.md."""
    kinds = ("agrees", "differs", "not in the table", "not executed", "said to be unknown")
    models = {row[0].partition("+")[0] for row in compared}
    varied = len({row[0] for row in compared}) - len(models)
    yield f"{len(models)} models, and {varied} times one with other options, on SM90, SM100 and SM120"
    yield f"{'vLLM':8}{'cells':>6}  " + "  ".join(kinds)
    for vllm in sorted({row[1] for row in compared}, key=lambda one: [int(part) for part in one.split(".")]):
        rows = [row for row in compared if row[1] == vllm]
        counts = "  ".join(f"{sum(row[4] == kind for row in rows):{len(kind)}}" for kind in kinds)
        yield f"{vllm:8}{len({row[:3] for row in rows}):6}  {counts}" + ("" if has_table(vllm) else "  (between)")


if __name__ == "__main__":
    main()
