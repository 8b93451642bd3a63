"""What a CUDA graph may wrongly keep: the tensors that a kernel was captured with, in place of what they hold later."""

from flashinfer.faults import has

LAST, KEPT = {}, {}


def live(**tensors):
    """What a kernel reads: the tensors that it is given, or what a faulty graph has kept of one of them."""
    LAST.update({name: tensor.clone() for name, tensor in tensors.items()})
    return tuple(KEPT.get(name, tensor) for name, tensor in tensors.items())


def stand_in_for_a_graph(call):
    """A function that calls again, with what a graph may wrongly have kept from its capture."""
    call()
    captured = dict(LAST)

    def replay():
        KEPT.update({name: tensor for name, tensor in captured.items() if has(f"graph_keeps_{name}")})
        if not has("graph_does_nothing"):
            call()
        KEPT.clear()

    return replay
