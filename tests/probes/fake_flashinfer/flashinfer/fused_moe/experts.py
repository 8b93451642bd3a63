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
    if has("tokens_past_the_largest_bucket_dropped"):
        rows = min(rows, options["largest_bucket"])
    output[:rows] = total.to(output.dtype)[:rows]
    spoil(output)
    if has("input_changed"):
        inputs[0].view(torch.uint8)[-1, -1] ^= 1
    if has("router_weights_changed"):
        inputs[2][-1, -1] *= 2


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
    if kind == "bf16":
        return tuple(one.float() for one in weights)
    scales = options["scales"]
    if kind == "fp8_per_tensor":
        scales = (scales[2], scales[0]) if has("scales_of_other_gemm") else (scales[0], scales[2])
    of = [(expert + 1) % len(scales[0]) if has(f"fc{gemm}_scales_of_next_expert") else expert for gemm in (1, 2)]
    if kind == "fp8_per_tensor":
        return tuple(one.float() * by[its] for one, by, its in zip(weights, scales, of, strict=True))
    dequantise = fp8_block if kind == "fp8_block" else mxfp4
    return tuple(dequantise(weights[n], scales[n][of[n]], n + 1) for n in range(2))


def misread(scales, gemm):
    """The scales [rows, blocks of K] of one expert, as a kernel reads them that mistakes their places."""
    if has(f"fc{gemm}_scales_of_next_block"):
        return scales.roll(1, 1)
    if has(f"fc{gemm}_scales_of_next_rows"):
        return scales.roll(1, 0)
    up, gate = scales.chunk(2)
    if has(f"fc{gemm}_scales_of_gate_for_up"):
        return torch.cat([gate, gate])
    if has(f"fc{gemm}_scales_of_up_for_gate"):
        return torch.cat([up, up])
    if has(f"fc{gemm}_scales_transposed"):
        return scales.reshape(scales.shape[1], len(scales)).T
    return scales


def fp8_block(weights, scales, gemm):
    """One scale for each block of 128 x 128."""
    return weights.float() * misread(scales, gemm).repeat_interleave(128, 0).repeat_interleave(128, 1)


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


def mxfp4(packed, scales, gemm):
    """The weights of one expert, from the layout that this version reads."""
    from flashinfer.fused_moe import layouts

    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    packed = layouts.straight_weights(packed) if SCALES == "folded" else packed
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    by = misread(layouts.straight_scales(scales, len(packed), SCALES), gemm)
    return values[codes] * torch.exp2(by.float() - 127).repeat_interleave(32, 1)


def bf16(x):
    return x.bfloat16().float()
