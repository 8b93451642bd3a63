"""Does the vendored kernel give attention's output and the weight of each position, for requests of any length?

Shapes: 7 requests of 0 to 300 positions in a cache of 300, 8 query heads over 2 KV heads and over 1, head size 128,
bf16. Keys and values behind a request's length are NaN and must not be read; output and weights are filled with NaN
before the call, and weights behind the length must be zero. An empty request gives an output of zeros or NaN: nothing
is promised for it, but its weights are zero.

Tolerance: weights, relative: a score is a sum of 128 float32 products in 9 steps, in base 2 of magnitude 16 at most, so
that it errs by 9 * 16 * 2^-24; exp2 is approximate to 2^-22, and the sum of up to 300 of them is a tree: together below
2^-16. Output: 2^-8 |reference| for the rounding to bf16, plus 2^-16 of sum p|v|. The reference is float64.

Upstream: csrc/attention_weights.cu in this package; include/flashinfer/vec_dtypes.cuh, math.cuh
"""

import functools
import math
import os
import pathlib
import sys
import unittest

PROBE = {
    "id": "weights.decode",
    "feature": "weights.decode",
    "module": "",  # no module of FlashInfer's JIT
    "requires": {"sm": ">=80", "flashinfer": ">=0.5", "packages": {"ninja": ""}},
    "variants": {"gqa4": {}, "gqa8": {}},
    "gpus": 1,
    "timeout_s": 60,
    "build_timeout_s": 600,
    "compiles": ["nvcc"],
    "checks": "numbers",
}

LENGTHS = (1, 300, 17, 0, 128, 129, 255)
POSITIONS, HEADS, HEAD_SIZE = 300, 8, 128
SCALE = 1.25 / math.sqrt(HEAD_SIZE)  # not the usual one, so that a default in place of what was passed shows
GUARD = 64
TAKEN_AWAY = (  # by torch's builder, and FlashInfer's headers want them: how half and bf16 become other types
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
)


def build(variant):
    _extension()


def run(variant):
    kv_heads = {"gqa4": 2, "gqa8": 1}[variant]
    query, key, value, lengths = _inputs(kv_heads)
    (output_memory, output), (weights_memory, weights) = (
        _poisoned(query.shape, query),
        _poisoned((len(LENGTHS), HEADS, POSITIONS), query.float()),
    )
    kept = [one.clone() for one in (query, key, value)]
    stream = _stream()
    _extension().decode_with_weights(query, key, value, lengths, output, weights, SCALE, stream)
    worst_weight, worst_output = _compare(query, key, value, output, weights)
    for one, before in zip((query, key, value), kept, strict=True):
        assert one.view(dtype=_bits(one)).equal(before.view(dtype=_bits(one))), "an input was changed"
    for memory in (output_memory, weights_memory):
        outside = memory[:GUARD].isnan().all() and memory[-GUARD:].isnan().all()
        assert outside, "something was written outside of the output or the weights"
    return {
        "elements": output.numel() + weights.numel(),
        "weight_share_of_tolerance": worst_weight,
        "output_share_of_tolerance": worst_output,
    }


@functools.cache
def _extension():
    """The kernel, compiled with torch's own builder against the headers of the installed FlashInfer."""
    from flashinfer.jit import env
    from torch.utils import cpp_extension

    if cpp_extension.CUDA_HOME is None:
        raise unittest.SkipTest("torch's builder knows no CUDA toolkit: a torch without CUDA, or none is found")
    # Without a GPU torch does not know what to compile for; FlashInfer's variable says it.
    if "FLASHINFER_CUDA_ARCH_LIST" in os.environ:
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", os.environ["FLASHINFER_CUDA_ARCH_LIST"])
    folder = pathlib.Path(__file__).absolute().parent / "csrc"
    return cpp_extension.load(
        name="attention_weights",
        sources=[str(folder / "binding.cpp"), str(folder / "attention_weights.cu")],
        extra_include_paths=[str(env.FLASHINFER_INCLUDE_DIR)],
        extra_cuda_cflags=["-O3", "-std=c++17", *(f"-U{name}" for name in TAKEN_AWAY)],
    )


def _compare(query, key, value, output, weights):
    """The largest errors as shares of what is allowed."""
    import torch

    worst_weight = worst_output = 0.0
    for request, length in enumerate(LENGTHS):
        assert (weights[request, :, length:] == 0).all(), f"request {request}: weights behind its end are not zero"
        if not length:
            continue
        wide_key = key[request, :length].double().repeat_interleave(HEADS // key.shape[2], dim=1)
        wide_value = value[request, :length].double().repeat_interleave(HEADS // key.shape[2], dim=1)
        scores = torch.einsum("hd,nhd->hn", query[request].double(), wide_key) * SCALE
        expected = scores.softmax(-1)
        bound = 2**-16 * expected
        worst_weight = max(worst_weight, _share(weights[request, :, :length], expected, bound, f"weights of {request}"))
        result = torch.einsum("hn,nhd->hd", expected, wide_value)
        bound = 2**-8 * result.abs() + 2**-16 * torch.einsum("hn,nhd->hd", expected, wide_value.abs())
        worst_output = max(worst_output, _share(output[request], result, bound, f"output of {request}"))
    return worst_weight, worst_output


def _share(got, expected, bound, where):
    share = (got.double() - expected).abs() / bound
    wrong = ~(share <= 1)  # NaN is wrong
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{where}: {int(wrong.sum())} of {wrong.numel()} elements are wrong, the first at {at}: "
            f"got {got[at].item():.6g}, expected {expected[at].item():.6g} within {bound[at].item():.2g}"
        )
    return share.max().item()


def _inputs(kv_heads):
    import torch

    device = _device()
    generator = torch.Generator(device).manual_seed(11)

    def random(*shape):
        return torch.randn(shape, generator=generator, device=device).bfloat16()

    query = random(len(LENGTHS), HEADS, HEAD_SIZE)
    key, value = (random(len(LENGTHS), POSITIONS, kv_heads, HEAD_SIZE) for _ in range(2))
    for request, length in enumerate(LENGTHS):
        key[request, length:] = math.nan
        value[request, length:] = math.nan
    return query, key, value, torch.tensor(LENGTHS, dtype=torch.int32, device=device)


def _poisoned(shape, like):
    """Memory of NaN, and the tensor of this shape inside it."""
    import torch

    count = math.prod(shape)
    memory = torch.full((GUARD + count + GUARD,), math.nan, dtype=like.dtype, device=like.device)
    return memory, memory[GUARD : GUARD + count].view(shape)


def _bits(tensor):
    import torch

    return torch.int16 if tensor.element_size() == 2 else torch.int32


def _stream():
    import torch

    return torch.cuda.current_stream().cuda_stream if _device().type == "cuda" else 0


def _device():
    """The GPU; the CPU only where the checks themselves are tested against a stand-in."""
    import torch

    name = os.environ.get("FI_DOCTOR_PROBE_DEVICE", "cuda")
    return torch.device(name, 0) if name == "cuda" else torch.device(name)


if __name__ == "__main__":
    import torch

    if torch.cuda.device_count() < PROBE["gpus"]:
        sys.exit(f"{PROBE['id']} needs {PROBE['gpus']} GPU, torch sees {torch.cuda.device_count()}")
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        print(name, run(name))
