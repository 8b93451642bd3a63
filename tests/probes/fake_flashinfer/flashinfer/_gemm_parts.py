"""What the GEMMs share: the precision of a tensor core, and what a graph keeps."""

import math

import torch

from flashinfer import graphs


def accumulate(a, b):
    """The sum over k, 32 products at a time: each product loses what is 13 bits below the sum so far, at random."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]))
    generator = torch.Generator().manual_seed(0)
    for start in range(0, a.shape[-1], 32):
        total = total + a[..., start : start + 32] @ b[..., start : start + 32, :]
        step = torch.exp2(total.frexp().exponent - 14.0)
        total = total + step * math.sqrt(33 / 3) * torch.randn(total.shape, generator=generator)
    return total


def stand_in_for_a_graph(call):
    """Of a matrix product: both scales are kept together."""
    names = {"graph_keeps_input": ["a"], "graph_keeps_weight": ["b"], "graph_keeps_scales": ["a_scale", "b_scale"]}
    return graphs.stand_in_for_a_graph(call, names)
