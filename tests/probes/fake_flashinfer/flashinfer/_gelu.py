# ruff: noqa: A002 - these are the signatures of FlashInfer
import math

import torch

from flashinfer.faults import has, seen_first, spoil, spoil_lightly


def gelu_and_mul(input, out=None, enable_pdl=None):
    return _act_and_mul(_tanh if has("tanh") else _erf, input, out)


def gelu_tanh_and_mul(input, out=None, enable_pdl=None):
    return _act_and_mul(_erf if has("erf") else _tanh, input, out)


def _act_and_mul(function, input, out):
    given = out
    shape = (*input.shape[:-1], input.shape[-1] // 2)
    if out is None or has("out_ignored"):
        out = torch.full(shape, float("nan"), dtype=input.dtype)
    gate, up = seen_first("graph_keeps_input", input).float().chunk(2, dim=-1)
    if has("gate_and_up_swapped"):
        gate, up = up, gate
    if not (has("not_written") or seen_first.often("graph_does_nothing")):
        result = (function(gate) * (1 if has("up_ignored") else up)).to(out.dtype)
        rows = out.shape[0] - 1 if has("last_row_dropped") else out.shape[0]
        columns = out.shape[-1] - 8 if has("tail_dropped") else out.shape[-1]
        out[:rows, ..., :columns] = result[:rows, ..., :columns]
        spoil(out)
        spoil_lightly(out)
    if has("input_changed"):
        input[0] += 1
    return out.clone() if has("returns_copy") and given is not None else out


def _erf(x):
    if has("silu"):
        return x * x.sigmoid()
    if has("quick"):
        return x * (1.702 * x).sigmoid()
    result = x * 0.5 * (1 + (x * math.sqrt(0.5)).erf())
    return result.bfloat16().float() if has("rounded_twice") else result


def _tanh(x):
    if has("silu"):
        return x * x.sigmoid()
    if has("quick"):
        return x * (1.702 * x).sigmoid()
    cubic = 0.04 if has("cubic_term_off") else 0.044715
    tanh = (math.sqrt(2 / math.pi) * (x + cubic * x * x * x)).tanh()
    if has("tanh_of_11_bits"):  # allowed: it is what the instruction gives
        tanh = tanh.half().float()
    return x * 0.5 * (1 + tanh)
