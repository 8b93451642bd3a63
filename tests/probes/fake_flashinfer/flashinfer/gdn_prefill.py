# ruff: noqa: FBT002, PLR0917 - these are the signatures of FlashInfer
"""The gated delta rule over prompts, chunk by chunk and rounded where the kernel rounds, with its faults."""

import itertools

import torch

from flashinfer.faults import has, spoil_lightly, write_behind

CHUNK = 64


def get_gdn_prefill_module():
    return object()


def chunk_gated_delta_rule(
    q,
    k,
    v,
    g=None,
    beta=None,
    scale=None,
    initial_state=None,
    output_final_state=False,
    cu_seqlens=None,
    use_qk_l2norm_in_kernel=False,
    output=None,
    output_state=None,
):
    assert output_final_state
    assert not use_qk_l2norm_in_kernel
    assert scale is None
    given = output
    if output is None or has("ignores_output"):
        output = torch.empty_like(v)
    if output_state is None:
        output_state = torch.empty_like(initial_state)
    starts = cu_seqlens.tolist()
    for row, (begin, end) in enumerate(itertools.pairwise(starts)):
        for head in range(v.shape[1]):
            _one(row, head, slice(begin, end), q, k, v, g, beta, initial_state, output, output_state)
    _spoil(output, output_state)
    if has("input_changed"):
        g[-1, -1] *= 0.5
    if has("state_in_place"):
        initial_state.copy_(output_state)
    if has("written_behind") and given is not None:
        write_behind(output)
    if has("written_behind_state") and given is not None:
        write_behind(output_state)
    return output, output_state


def _spoil(output, state):
    spoil_lightly(output)
    if has("last_token_unwritten"):
        output[-1] = float("nan")
    if has("state_unwritten"):
        state[-1, -1] = float("nan")
    if has("head_permuted"):
        output[-1] = output[-1].roll(1, 0)
    if has("state_head_permuted"):
        state[-1] = state[-1].roll(1, 0)
    if has("state_transposed"):
        state[-1, -1] = state[-1, -1].T.clone()
    if has("state_in_bf16"):
        state[-1, -1] = state[-1, -1].bfloat16().float()
    if has("state_element_off"):
        state[-1, -1, -1, -1] += 0.02


def _one(row, head, tokens, q, k, v, g, beta, initial_state, output, output_state):
    """One sequence of one head."""
    last = row == len(initial_state) - 1
    ratio = v.shape[1] // q.shape[1]
    group = head % q.shape[1] if has("heads_interleaved") else head // ratio
    if has("neighbours_key") and last:
        group = (group + 1) % q.shape[1]
    query, key, value = (tensor[tokens, at].float() for tensor, at in ((q, group), (k, group), (v, head)))
    log, update = _gates(g[tokens, head], beta[tokens, head], last)
    state = _first_state(initial_state, row, head)
    for start in range(0, len(key), CHUNK):
        chunk = slice(start, start + CHUNK)
        state, result = _chunk(state, query[chunk], key[chunk], value[chunk], log[chunk], update[chunk], last)
        output[tokens, head][chunk] = result.to(output.dtype)
    output_state[row, head] = state


def _gates(gate, update, last):
    log = gate.log2()
    if has("gate_not_applied") and last:
        log = torch.zeros_like(log)
    if has("gate_taken_as_logarithm") and last:
        log = gate / torch.log(torch.tensor(2.0))
    if has("gate_of_token_before") and last:
        log = log.roll(1)
    if has("beta_not_applied") and last:
        update = torch.ones_like(update)
    return log, update


def _first_state(initial_state, row, head):
    last = len(initial_state) - 1
    at = row - 1 if has("sequences_mixed") and row == last else row
    state = initial_state[at, head].clone()
    if has("stale_state") and row == 1:  # begins with zeros
        state = initial_state[0, head].clone()
    if has("first_state_dropped") and row == last:
        state.zero_()
    if has("first_state_transposed") and row == last:
        state = state.T
    return state


def _chunk(state, q, k, v, log, beta, last):
    """State after the chunk, and its outputs."""
    total = log.cumsum(0)
    decay = (total[:, None] - total[None, :]).tril().exp2().tril()
    from_begin = total.exp2()[:, None]
    scale = q.shape[-1] ** -0.5 * (1.02 if has("scale_off") and last else 1)
    rounded = _bf16(state)
    old = _bf16(from_begin * (k @ rounded.T))
    if has("keys_not_taken_back") and last:
        old *= 0
    lower = (beta[:, None] * decay * (k @ k.T)).half().float().tril(-1)
    if has("delta_rule_left_out") and last:
        lower *= 0
    unit = torch.eye(len(k))
    inverse = torch.linalg.solve_triangular(lower + unit, unit, upper=False).half().float()
    new = _bf16(_bf16(inverse * beta) @ _bf16(v - old))
    reads = _bf16(scale * decay * (q @ k.T))
    if has("own_token_not_read") and last:
        reads = reads.tril(-1)
    out = scale * from_begin * (q @ rounded.T) + reads @ new
    weight = (total[-1] - total).exp2()[:, None]
    if has("last_token_dropped") and last:
        weight[-1] = 0
    if has("decay_within_chunk_left_out") and last:
        weight[:] = 1
    after = total[-1].exp2() * state + _bf16(new * weight).T @ k
    return after, out


def _bf16(values):
    return values.bfloat16().float()
