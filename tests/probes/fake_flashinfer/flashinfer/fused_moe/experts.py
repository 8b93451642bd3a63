"""The arithmetic of cutlass_fused_moe in plain torch, rounded where the kernels round; its faults."""

import torch

from flashinfer.faults import has, spoil

LAST = []  # input, experts and router weights of the last call
KEPT = []  # those that a graph was captured with
SCALES = "interleaved"  # the layout of MXFP4 that this version reads; others are "folded" and "raw"


def compute(output, inputs, options, tactics):
    LAST[:] = inputs
    x, ids, router = wrong_inputs(*inputs, tactics)
    x = dequantised_input(x, options)
    total = torch.zeros(output.shape)
    experts = list(range(len(options["fc1"])))
    used = [expert for expert in experts if (ids == expert).any()]
    for expert in experts:
        rows, places = (ids == expert).nonzero(as_tuple=True)
        if not len(rows) or (has("expert_dropped") and expert == used[-1]):
            continue
        its = used.index(expert) if has("empty_expert_not_counted") else expert
        addend = one_expert(x[rows], its, options, places) * router[rows, places, None]
        total.index_add_(0, rows, addend)
    if has("not_written"):
        return
    rows = len(output) - 1 if has("last_token_dropped") and len(output) > 1 else len(output)
    output[:rows] = total.to(output.dtype)[:rows]
    spoil(output)


def wrong_inputs(x, ids, router, tactics):
    if KEPT and has("graph_keeps_input"):
        x = KEPT[0]
    if KEPT and has("graph_keeps_routing"):
        ids = KEPT[1]
    if KEPT and has("graph_keeps_router_weights"):
        router = KEPT[2]
    if has("router_ignored"):
        router = torch.ones_like(router)
    if has("router_of_next_token"):
        router = router.roll(1, 0)
    if has("router_weights_normalised"):
        router = router / router.sum(-1, keepdim=True)
    if has("last_choice_lost") and ids.shape[1] > 1:
        router = torch.cat([router[:, :-1], torch.zeros_like(router[:, -1:])], 1)
    if has("first_choice_for_all"):
        ids = ids[:, :1].expand_as(ids)
    if (has("gemm1_tactic_wrong") and tactics[0] == 1) or (has("gemm2_tactic_wrong") and tactics[1] == 3):
        x = x.roll(1, 0) if len(x) > 1 else -x.float().to(x.dtype)
    return x, ids, router


def one_expert(x, expert, options, places):
    fc1, fc2 = dequantised_weights(options, expert)
    if has("k_tail_dropped"):
        x = torch.cat([x[:, :-16], torch.zeros_like(x[:, -16:])], 1)
    hidden = bf16(x @ fc1.T)
    biases = options["biases"]
    if biases[0] is not None and not has("bias1_ignored"):
        hidden = hidden + biases[0][expert].float()
    up, gate = hidden.chunk(2, 1)
    if has("gate_up_swapped"):
        up, gate = gate, up
    product = quantised(bf16(activation(up, gate, expert, options["swiglu"])), options, expert)
    out = bf16(product @ fc2.T)
    if biases[1] is not None and not has("bias2_ignored"):
        weight = 1.0 if not has("bias2_only_once") else (places == 0).float()[:, None]
        out = out + biases[1][expert].float() * weight
    return out


def activation(up, gate, expert, swiglu):
    if swiglu[0] is None:
        return gate * torch.sigmoid(gate) * up
    alpha, beta, limit = (one[expert] for one in swiglu)
    if has("limit_ignored"):
        limit = torch.tensor(float("inf"))
    gate = gate.clamp(max=limit)
    up = up if has("limit_only_of_gate") else up.clamp(-limit, limit)
    alpha = torch.ones(()) if has("alpha_ignored") else alpha
    beta = torch.zeros(()) if has("beta_ignored") else beta
    return gate * torch.sigmoid(alpha * gate) * (up + beta)


def dequantised_input(x, options):
    if options["kind"] == "fp8_per_tensor":
        return x.float()  # its scale is part of the one of GEMM 1
    return round_in_blocks(x.float()) if options["kind"] == "fp8_block" else x.float()


def dequantised_weights(options, expert):
    weights, kind = (options["fc1"][expert], options["fc2"][expert]), options["kind"]
    scales = options["scales"]
    if kind == "bf16":
        return tuple(one.float() for one in weights)
    of = expert + 1 if has("scales_of_next_expert") and expert + 1 < len(options["fc1"]) else expert
    if kind == "fp8_per_tensor":
        return weights[0].float() * scales[0][of], weights[1].float() * scales[2][of]
    if kind == "fp8_block":
        return tuple(one.float() * block_scales(by[of]) for one, by in zip(weights, scales, strict=True))
    return tuple(mxfp4(one, by, of) for one, by in zip(weights, scales, strict=True))


def block_scales(scales):
    """One scale for each block of 128 x 128, as one for each weight."""
    if has("scales_of_next_block"):
        scales = scales.roll(1, 1)
    if has("scales_of_next_rows"):
        scales = scales.roll(1, 0)
    return scales.repeat_interleave(128, 0).repeat_interleave(128, 1)


def quantised(product, options, expert):
    if options["kind"] == "fp8_per_tensor":
        factor = 1.0 if has("activation_not_scaled") else options["scales"][1]
        return (product * factor).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return round_in_blocks(product) if options["kind"] == "fp8_block" else product


def round_in_blocks(x):
    """e4m3 with one scale for 128 columns of a row."""
    blocks = x.unflatten(1, (-1, 128))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    return ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).flatten(1)


def mxfp4(packed, scales, expert):
    """The weights of one expert, from the layout that this version reads."""
    from flashinfer.fused_moe import layouts

    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = layouts.straight_weights(packed) if SCALES == "folded" else packed
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    by = layouts.straight_scales(scales[expert], len(packed), SCALES)
    if has("scales_of_next_block"):
        by = by.roll(1, 1)
    if has("scales_of_next_rows"):
        by = by.roll(1, 0)
    return values[codes] * torch.exp2(by.float() - 127).repeat_interleave(32, 1)


def bf16(x):
    return x.bfloat16().float()
