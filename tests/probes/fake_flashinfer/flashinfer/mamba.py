# ruff: noqa: FBT002, N803, PLR0917 - these are the signatures of FlashInfer
"""One step of the selective state update in float32, with the approximations of the kernel, and its faults."""

import torch

from flashinfer.faults import has, spoil_lightly, write_behind
from flashinfer.graphs import live, stand_in_for_a_graph

__all__ = ["selective_state_update", "stand_in_for_a_graph"]


def selective_state_update(
    state,
    x,
    dt,
    A,
    B,
    C,
    D,
    z=None,
    dt_bias=None,
    dt_softplus=False,
    state_batch_indices=None,
    pad_slot_id=-1,
    state_scale=None,
    out=None,
    disable_state_update=False,
    intermediate_states_buffer=None,
    intermediate_state_indices=None,
    intermediate_state_scales=None,
    rand_seed=None,
    philox_rounds=10,
    cache_steps=0,
    algorithm="auto",
    dst_state_batch_indices=None,
    cu_seqlens=None,
    num_accepted_tokens=None,
):
    _assert_as_the_binding(state, x, dt, A, B, C, D, dt_bias, out)
    for absent in (z, state_scale, rand_seed, cu_seqlens, num_accepted_tokens, intermediate_states_buffer):
        assert absent is None
    x, dt, b, c = live(x=x, step=dt, b=B, c=C)
    read, write = live(read=state_batch_indices, write=dst_state_batch_indices)
    given = out
    if has("ignores_output"):
        out = torch.empty_like(out)
    old = state.clone()
    for row in range(len(x)):
        at, to = int(read[row, 0]), int(write[row, 0])
        inputs = (x[row].float(), dt[row, :, 0].float(), b[row].float(), c[row].float())
        _one(row, inputs, old, state, at, to, A[:, 0, 0], D[:, 0].float(), dt_bias[:, 0].float(), out, pad_slot_id)
    _spoil(out, state, write, pad_slot_id)
    if has("written_behind"):
        write_behind(given)
    if has("input_changed"):
        dt[0, 0, 0] *= 2
    return out


def _assert_as_the_binding(state, x, dt, a, b, c, d, bias, out):
    """What csrc/selective_state_update.cu asserts of types and strides."""
    heads, dim, size = state.shape[1:]
    assert state.stride()[1:] == (dim * size, size, 1)
    assert x.stride()[1:] == (dim, 1)
    assert dt.stride()[1:] == (1, 0)
    assert a.stride() == (1, 0, 0)
    assert d.stride() == bias.stride() == (1, 0)
    assert b.stride()[1:] == c.stride()[1:] == (size, 1)
    assert out.is_contiguous()
    assert x.dtype == b.dtype == c.dtype == out.dtype
    assert dt.dtype == d.dtype == bias.dtype
    assert len(state) >= len(x)
    assert heads % b.shape[1] == 0
    assert all(tensor.data_ptr() % 16 == 0 and 2 * tensor.stride(0) % 16 == 0 for tensor in (x, b, c))
    assert state.stride(0) * state.element_size() % 16 == 0


def _one(row, inputs, old, state, at, to, a, skip, bias, out, null):
    x, step, b, c = inputs
    groups = torch.arange(len(x)) // (len(x) // len(b))
    if has("groups_interleaved"):
        groups = torch.arange(len(x)) % len(b)
    size = _step(step, bias)
    decay = torch.ones_like(size) if has("decay_not_applied") else (a * size).exp()
    added = size[:, None, None] * b[groups][:, None, :] * x[..., None]
    if has("last_input_dropped"):
        added[..., -1] = 0
    new = decay[:, None, None] * _before(old, row, at, to, null) + added
    if has("heads_permuted"):
        new = new.roll(1, 0)
    result = (new * c[groups][:, None, :]).sum(-1)
    out[row] = (result if has("skip_ignored") else result + skip[:, None] * x).to(out.dtype)
    if (at == null and not has("null_slot_written")) or has("state_not_updated"):
        return
    place = at if has("write_slot_ignored") else to
    state[place] = new.bfloat16().to(state.dtype) if has("state_in_bf16") else new.to(state.dtype)


def _step(step, bias):
    size = step if has("bias_ignored") else step + bias
    if not has("softplus_ignored"):
        size = torch.where(size <= 20, _log(1 + size.exp()), size)
    return size.clamp(max=20) if has("step_cut_at_20") else size


def _before(old, row, at, to, null):
    """The state that a row begins with."""
    if at == null:
        return torch.zeros_like(old[0], dtype=torch.float32)
    if has("slot_as_row"):
        at = row + 1
    return old[to if has("reads_where_it_writes") else at].float()


def _log(values):
    """As __logf: log2 errs by up to 2^-22."""
    return torch.log(torch.tensor(2.0)) * (values.log2() * 2.0**21).round() / 2.0**21


def _spoil(out, state, write, null):
    real = (write[:, 0] != null).nonzero()[-1, 0]
    spoil_lightly(out[: real + 1])
    slot = int(write[real, 0])
    if has("row_unwritten"):
        out[real] = float("nan")
    if has("rows_swapped"):
        out[:2] = out[:2].flip(0)
    if has("state_element_off"):
        state[slot, -1, -1, -1] *= 1 + 2.0**-6
    if has("state_transposed"):
        state[slot, 0] = state[slot, 0].reshape(state.shape[3], state.shape[2]).T.clone()
    if has("next_page_written"):
        free = sorted({*range(1, len(state))} - {*write[:, 0].tolist()})
        state[free[-1], 0, 0, 0] = 1
    if has("page_overrun"):
        state.as_strided((1,), (1,), state[slot].storage_offset() + state[slot].numel()).fill_(1)
