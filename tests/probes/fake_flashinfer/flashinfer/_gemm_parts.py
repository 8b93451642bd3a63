"""What the GEMMs share: the precision of a tensor core, and what a graph keeps."""

import math

import torch

from flashinfer.faults import has

KEPT = {}  # what a graph wrongly kept from its capture: argument -> tensor
LAST = {}  # the inputs of the last call


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
    """A function that calls again, with what a graph may wrongly have kept from its capture."""
    call()
    kept = dict(LAST)

    names = {"graph_keeps_input": ["a"], "graph_keeps_weight": ["b"], "graph_keeps_scales": ["a_scale", "b_scale"]}

    def replay():
        KEPT.update({name: kept[name] for fault, of in names.items() if has(fault) for name in of if name in kept})
        if not has("graph_does_nothing"):
            call()
        KEPT.clear()

    return replay
