# ruff: noqa: A002 - these are the signatures of FlashInfer
import torch

from flashinfer.faults import has, seen_first, spoil, spoil_lightly


def layernorm(input, gemma, beta, eps=1e-6):
    out = torch.full(input.shape, float("nan"), dtype=input.dtype)
    module_layernorm(out, input, gemma, beta, eps)
    return input.copy_(out) if has("in_place") else out


def module_layernorm(out, input, gamma, beta, eps):
    x = seen_first("graph_keeps_input", input)
    if has("strides_ignored"):
        x = input.as_strided(input.shape, (input.shape[-1], 1), input.storage_offset())
    result = _normalise(x.float(), gamma, beta, eps).to(out.dtype)
    if has("not_written") or seen_first.often("graph_does_nothing"):
        return
    rows = out.shape[0] - 1 if has("last_row_dropped") else out.shape[0]
    columns = out.shape[-1] - out.shape[-1] % 8 if has("tail_dropped") else out.shape[-1]
    out[:rows, :columns] = result[:rows, :columns]
    spoil(out)
    spoil_lightly(out)
    for name, tensor in (("input_changed", input), ("gamma_changed", gamma), ("beta_changed", beta)):
        if has(name):
            tensor[0] += 1


def _normalise(x, gamma, beta, eps):
    size = x.shape[-1]
    mean = 0 if has("mean_not_taken_away") else x.mean(-1, keepdim=True)
    variance = (x - mean).square().sum(-1, keepdim=True) / (size - has("unbiased_variance"))
    if has("variance_as_difference"):  # of rounded squares: it cancels where the mean is far from zero
        variance = (x * x).bfloat16().float().mean(-1, keepdim=True) - mean * mean
    result = (x - mean) * (variance + (0 if has("eps_ignored") else eps)).rsqrt()
    if has("rounded_twice"):
        result = result.bfloat16().float()
    if has("scale_ignored"):
        return result + beta
    if has("scale_in_bf16"):
        gamma = gamma.bfloat16().float()
    return result * gamma + (0 if has("shift_ignored") else beta)
