"""What a CUDA graph may wrongly keep: the tensors that a kernel was captured with, in place of what they hold later."""

from flashinfer.faults import has

LAST, KEPT = {}, {}


def live(**tensors):
    """What a kernel reads: the tensors that it is given, or what a faulty graph has kept of one of them."""
    LAST.update({name: tensor.clone() for name, tensor in tensors.items() if tensor is not None})
    return tuple(KEPT.get(name, tensor) for name, tensor in tensors.items())


def stand_in_for_a_graph(call, keeps=None):
    """A function that calls again, with what a graph may wrongly have kept from its capture.

    keeps: fault -> the tensors that it keeps; without it "graph_keeps_x" keeps x.
    """
    call()
    captured = dict(LAST)
    keeps = keeps or {f"graph_keeps_{name}": [name] for name in captured}

    def replay():
        active = [name for fault, names in keeps.items() if has(fault) for name in names]
        KEPT.update({name: captured[name] for name in active if name in captured})
        if not has("graph_does_nothing"):
            call()
        KEPT.clear()

    return replay
