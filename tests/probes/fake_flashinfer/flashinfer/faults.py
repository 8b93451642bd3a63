"""Which fault the kernels have; "" for none."""

import torch

ACTIVE = ""


def has(name):
    return name == ACTIVE


def write_behind(tensor):
    """Writes one element behind the end of a tensor that lies inside a larger buffer."""
    end = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    if (end + 2) * tensor.element_size() <= tensor.untyped_storage().nbytes():
        tensor.as_strided((1,), (1,), end + 1).fill_(1.0)


def spoil(out):
    """The faults that every kernel with an output can have."""
    if has("nan_element"):
        out.select(0, -1)[..., 3] = float("nan")
    if has("written_behind"):
        write_behind(out)


def spoil_lightly(out):
    """Faults of few elements: one in its last bits, one of another row, one that is zero."""
    last = out.select(0, -1)
    if has("one_element_off"):  # by four times half a unit in the last place
        last[..., -1] *= 1 + 2 * torch.finfo(out.dtype).eps
    if has("neighbour_element"):
        last[..., 0] = last[..., 1]
    if has("zero_element"):
        last[..., 2] = 0
    if has("inf_element"):
        last[..., 2] = float("inf")


class _Seen:
    """What a CUDA graph that was captured wrongly does: it goes on with what it saw first."""

    def __init__(self):
        self.kept, self.calls = {}, 0

    def __call__(self, fault, tensor):
        """The tensor; with this fault what was in the first tensor at this address."""
        if not has(fault):
            return tensor
        return self.kept.setdefault(tensor.data_ptr(), tensor.clone())

    def often(self, fault):
        """Whether this fault is active and the first call is over."""
        self.calls += has(fault)
        return has(fault) and self.calls > 1


seen_first = _Seen()
