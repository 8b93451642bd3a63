# ruff: noqa: A002 - these are the signatures of FlashInfer
import torch

from flashinfer._gelu import gelu_and_mul, gelu_tanh_and_mul  # noqa: F401 - they are here in FlashInfer
from flashinfer.faults import has, spoil
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["get_act_and_mul_module", "silu_and_mul", "stand_in_for_a_graph"]


def get_act_and_mul_module(act_func_name):
    return act_func_name


def silu_and_mul(input, out=None, enable_pdl=None):
    given = out
    shape = (*input.shape[:-1], input.shape[-1] // 2)
    if out is None or has("out_ignored"):
        out = torch.full(shape, float("nan"), dtype=input.dtype)
    (x,) = live(input=input)
    gate, up = x.float().chunk(2, dim=-1)
    if has("gate_and_up_swapped"):
        gate, up = up, gate
    result = gate.sigmoid() * up if has("sigmoid") else torch.nn.functional.silu(gate) * up
    if has("gelu"):
        result = torch.nn.functional.gelu(gate) * up
    if has("up_ignored"):
        result = torch.nn.functional.silu(gate)
    if has("rounded_twice"):
        result = torch.nn.functional.silu(gate).to(input.dtype).float() * up
    if not has("not_written"):
        rows = out.shape[0] - 1 if has("last_row_dropped") else out.shape[0]
        columns = out.shape[-1] - 8 if has("tail_dropped") else out.shape[-1]
        out[:rows, ..., :columns] = result.to(out.dtype)[:rows, ..., :columns]
        spoil(out)
    if has("input_changed"):
        input[0] += 1
    return out.clone() if has("returns_copy") and given is not None else out
