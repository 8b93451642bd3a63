"""What FlashInfer's JIT would run for some modules: the commands of its own ninja files, asked for and not run.

    python benchmarks/atlas_units.py MODULE...

Started by atlas.py with one FlashInfer on PYTHONPATH, CUDA_HOME, FLASHINFER_CUDA_ARCH_LIST and a workspace of its own.
Prints JSON: {"versions": {name: version}, "modules": {asked: {"name", "folder", "commands", "refused"}}}; the commands
are to be run in the folder, the last of them links. "refused" is what FlashInfer raised instead.
"""

import functools
import importlib
import json
import pathlib
import platform
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1]))
from fi_doctor.inside.modules import prepare


def generated(module, generator, *arguments):
    return getattr(importlib.import_module(f"flashinfer.jit.{module}"), generator)(*arguments)


def architecture():
    """Of "9.0a" (9, "0a")."""
    from flashinfer.compilation_context import CompilationContext

    [found] = CompilationContext().TARGET_CUDA_ARCHS
    return found


def decode():
    """One common dtype and head size."""
    import torch

    kinds = (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32)
    sizes = (128, 128, 0, False, False)  # heads of queries and values; no positions, no window, no soft cap
    return generated("attention.modules", "gen_batch_decode_module", *kinds, *sizes)


def mla():
    """With the backend that FlashInfer takes by itself."""
    import torch

    kinds = (torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32)
    backend = "fa3" if architecture() == (9, "0a") else "fa2"
    sizes = (512, 64, False)  # of the compressed part and of the rotary one; no profiler
    return generated("attention.modules", "gen_batch_mla_module", backend, *kinds, *sizes)


def xqa():
    """Pages of 64 tokens, head size 128, eight query heads for each of keys; no window."""
    import torch

    return generated("xqa", "gen_xqa_module", *(torch.bfloat16, torch.bfloat16, 64, 128, 8, False, torch.bfloat16))


def fp4():
    """FlashInfer has a generator for each GPU generation, and takes the one of the GPU."""
    major, minor = architecture()
    generators = vars(importlib.import_module("flashinfer.jit.fp4_quantization"))
    exact, general = f"gen_fp4_quantization_sm{major}{minor[0]}_module", f"gen_fp4_quantization_sm{major}0_module"
    return generators[exact if exact in generators else general]()


# By the name that is asked for, the one with the slowest units first.
MODULES = {
    "trtllm_comm": functools.partial(generated, "comm", "gen_trtllm_comm_module"),
    "batch_mla": mla,
    "xqa": xqa,
    "fp4_quantization": fp4,
    "sampling": functools.partial(generated, "sampling", "gen_sampling_module"),
    "batch_decode": decode,
    "vllm_comm": functools.partial(generated, "comm", "gen_vllm_comm_module"),
    "mxfp8_quantization": functools.partial(generated, "fp8_quantization", "gen_mxfp8_quantization_sm100_module"),
    "rope": functools.partial(generated, "rope", "gen_rope_module"),
    "norm": functools.partial(generated, "norm", "gen_norm_module"),
    "page": functools.partial(generated, "page", "gen_page_module"),
    "silu_and_mul": functools.partial(generated, "activation", "gen_act_and_mul_module", "silu"),
    "gelu_and_mul": functools.partial(generated, "activation", "gen_act_and_mul_module", "gelu"),
    "gelu_tanh_and_mul": functools.partial(generated, "activation", "gen_act_and_mul_module", "gelu_tanh"),
    "quantization": functools.partial(generated, "quantization", "gen_quantization_module"),
}
BROAD = ("norm", "silu_and_mul", "page")
SLOW = ("trtllm_comm",)  # a unit of it takes minutes


def planned(core, asked):
    """What a module takes."""
    try:
        spec = MODULES[asked]()
    except KeyError:  # of the generators above, and nothing that FlashInfer says
        raise
    except Exception as exc:  # noqa: BLE001 - whatever FlashInfer says
        return {"name": asked, "folder": "", "commands": [], "refused": f"{type(exc).__name__}: {exc}"}
    module = prepare(core, {spec.name: spec}, {spec.name: []})[spec.name]
    if module.state:
        return {"name": spec.name, "folder": "", "commands": [], "refused": module.detail or module.state}
    pathlib.Path(module.workdir).mkdir(parents=True, exist_ok=True)
    told = subprocess.run(
        ["ninja", "-f", module.ninja_file, "-t", "commands"],
        cwd=module.workdir, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {"name": spec.name, "folder": module.workdir, "commands": told.stdout.splitlines(), "refused": ""}


def main():
    core = importlib.import_module("flashinfer.jit.core")
    names = ("flashinfer", "torch", "tvm_ffi")
    versions = {name: str(importlib.import_module(name).__version__) for name in names}
    modules = {asked: planned(core, asked) for asked in sys.argv[1:]}
    print(json.dumps({"versions": {**versions, "python": platform.python_version()}, "modules": modules}))


if __name__ == "__main__":
    main()
