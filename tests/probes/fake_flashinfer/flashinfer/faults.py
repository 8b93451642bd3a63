"""Which fault the kernels have; "" for none."""

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
