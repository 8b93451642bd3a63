# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
"""The all-reduce fusion with the protocols of the kernels, between processes that share files instead of GPU memory.

A fault is named in the file FI_DOCTOR_FAKE_FAULT, as "name" or "name@rank", because each rank is a process.
"""

import ctypes
import mmap
import os
import signal
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from flashinfer import faults

ALL_REDUCE = getattr(dist.all_reduce, "right", dist.all_reduce)
NEGATIVE_ZERO = -(2**15)  # as int16
MAPS = []  # kept alive
LAST = {}  # Lamport buffer -> what it held


class AllReduceFusionPattern:  # the names are FlashInfer's
    kAllReduce = 0  # noqa: N815
    kARResidualRMSNorm = 1  # noqa: N815
    kARResidualRMSNormFP8Quant = 2  # noqa: N815
    kARResidualRMSNormFP4Quant = 3  # noqa: N815
    kARResidualRMSNormOutFP8Quant = 4  # noqa: N815
    kARResidualRMSNormOutFP4Quant = 5  # noqa: N815


class QuantizationSFLayout:
    SWIZZLED_128x4 = 0


class CudaRTLibrary:
    def cudaMemset(self, pointer, value, count):  # noqa: N802 - the name of CUDA
        ctypes.memset(pointer.value, value, count)


def get_trtllm_comm_module():
    return None


def create_shared_buffer(size_in_bytes, group=None):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"\x5a" * size_in_bytes)  # cudaMalloc does not clear either
    names = [None] * dist.get_world_size(group)
    dist.all_gather_object(names, file.name, group=group)
    pointers = [_mapped(name, size_in_bytes) for name in names]
    dist.barrier(group)
    Path(file.name).unlink()
    return pointers


def _mapped(name, size):
    with Path(name).open("r+b") as file:
        MAPS.append(mmap.mmap(file.fileno(), size))
    return ctypes.addressof(ctypes.c_char.from_buffer(MAPS[-1]))


def trtllm_lamport_initialize(buffer_ptr, size, dtype):
    assert dtype is torch.float16
    _view(buffer_ptr, size, torch.int16).fill_(NEGATIVE_ZERO)


def _view(pointer, count, dtype):
    if not count:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_byte * (count * dtype.itemsize)).from_address(pointer), dtype=dtype)


def trtllm_allreduce_fusion(
    allreduce_in,
    world_size,
    world_rank,
    token_num,
    hidden_dim,
    workspace_ptrs,
    launch_with_pdl,
    trigger_completion_at_end,
    fp32_acc,
    pattern_code,
    use_oneshot,
    allreduce_out,
    residual_in,
    residual_out,
    norm_out,
    quant_out,
    scale_out,
    rms_gamma,
    rms_eps,
    scale_factor,
    layout_code,
    metadata=None,
):
    assert allreduce_in.shape == (token_num, hidden_dim)
    set_fault(world_rank)
    misbehave()
    given = faults.seen_first("graph_keeps_input", allreduce_in)
    exchange = _oneshot if use_oneshot else _twoshot
    parts = exchange(given.flatten(), world_rank, world_size, workspace_ptrs.tolist())
    if faults.has("contribution_missing"):
        parts[(world_rank + 1) % world_size].zero_()
    total = _rounded(parts.float().sum(0), allreduce_in.dtype).view_as(allreduce_in)
    count = token_num - faults.has("last_token_unwritten")
    if pattern_code == AllReduceFusionPattern.kAllReduce:
        allreduce_out[:count] = total[:count]
        _spoil(allreduce_out, allreduce_out, allreduce_in, None)
        return allreduce_out if faults.has("returns_tensor") else None
    residual, gamma = (
        faults.seen_first("graph_keeps_residual", residual_in),
        faults.seen_first("graph_keeps_gamma", rms_gamma),
    )
    if faults.has("rounded_once"):
        total = parts.float().sum(0).view_as(residual)
    if not faults.has("residual_not_added"):
        total = (total.float() + residual.float()).to(allreduce_in.dtype)
    normed = _norm(total, gamma, rms_eps)
    if not faults.has("residual_unwritten"):
        residual_out[:count] = total[:count]
    is_quantised = pattern_code != AllReduceFusionPattern.kARResidualRMSNorm
    if not is_quantised or pattern_code >= AllReduceFusionPattern.kARResidualRMSNormOutFP8Quant:
        norm_out[:count] = normed[:count]
    if is_quantised:
        _quantise(normed[:count], scale_factor, quant_out[:count], scale_out)
    _spoil(quant_out if is_quantised else norm_out, residual_out, residual_in, rms_gamma)
    return norm_out if faults.has("returns_tensor") else None


def _quantise(normed, scale, out, scale_out):
    """To e4m3 by one scale; where there is room for scales of blocks, to e2m1 by one for 16 elements."""
    if scale_out is None:
        factor = 1.0 if faults.has("scale_ignored") else 1 / scale
        values = normed.float() * factor
        if faults.has("truncated_to_fp8"):
            values = (values.view(torch.int32) >> 20 << 20).view(torch.float32)
        if faults.has("not_saturated"):
            values[values.abs() > 448] = float("nan")
        largest = 240 if faults.has("saturated_early") else 448
        out.copy_(values.clamp(-largest, largest))
        return
    blocks = normed.float().unflatten(1, (-1, 16))
    largest = blocks[..., :8].abs().amax(2) if faults.has("half_a_block_looked_at") else blocks.abs().amax(2)
    scales = (largest / 6 * (1.0 if faults.has("scale_ignored") else scale)).to(torch.float8_e4m3fn)
    row, column = torch.arange(scales.shape[0])[:, None], torch.arange(scales.shape[1])
    place = (row // 128 * -(-scales.shape[1] // 4) + column // 4) * 512
    place += (
        row * scales.shape[1] + column
        if faults.has("scales_not_swizzled")
        else (row % 32 * 16 + row % 128 // 32 * 4 + column % 4)
    )
    place %= scale_out.numel()
    scale_out.view(torch.uint8).flatten()[place] = scales.view(torch.uint8)
    values = torch.where(scales.float() > 0, scale / scales.float(), 0.0)[..., None] * blocks
    size = values.abs().clamp(max=6)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    size = ((size / step).floor() if faults.has("truncated_to_fp4") else (size / step).round()) * step
    numbers = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
    halves = (torch.searchsorted(numbers, size.contiguous()) + 8 * values.signbit()).flatten(1).to(torch.uint8)
    high, low = (halves[:, ::2], halves[:, 1::2]) if faults.has("halves_swapped") else (halves[:, 1::2], halves[:, ::2])
    out.copy_(high * 16 + low)


def _oneshot(x, rank, world, table):
    counters = _view(table[3 * world], 5, torch.int32)
    _, _, which, size, clear = counters.tolist()
    buffers = [table[2 * world + r] + which % 3 * size for r in range(world)]
    own = torch.where(x.view(torch.int16) == NEGATIVE_ZERO, torch.zeros_like(x), x)
    for buffer in buffers:
        _view(buffer + rank * x.numel() * 2, x.numel(), x.dtype).copy_(own)
    _view(table[2 * world + rank] + (which + 2) % 3 * size, clear, torch.int16).fill_(NEGATIVE_ZERO)
    held = _view(buffers[rank], world * x.numel(), x.dtype)
    while (held.view(torch.int16) == NEGATIVE_ZERO).any():
        time.sleep(0.0005)
    parts = held.clone().view(world, -1)
    counters[2], counters[4] = (which + 1) % 3, world * x.numel()
    stale, LAST[which] = LAST.get(which), held.clone()
    if faults.has("stale_buffer") and stale is not None:
        common = min(len(stale), held.numel())
        there = torch.cat((stale[:common], held[common:])).view(world, -1)
        parts[(rank + 1) % world] = there[(rank + 1) % world]
    return parts


def _twoshot(x, rank, world, table):
    counters = _view(table[3 * world], 5, torch.int32)
    _view(table[rank], x.numel(), x.dtype).copy_(x)
    _barrier(rank, world, table, counters)
    parts = torch.stack([_view(table[r], x.numel(), x.dtype).clone() for r in range(world)])
    _barrier(rank, world, table, counters)
    return parts


def _barrier(rank, world, table, counters):
    counters[1] += 1
    for r in range(world):
        _view(table[world + r], world, torch.int32)[rank] = counters[1]
    while (_view(table[world + rank], world, torch.int32) < counters[1]).any():
        time.sleep(0.0005)


def _rounded(total, dtype):
    if faults.has("truncated"):
        bits = 16 if dtype is torch.bfloat16 else 13
        total = (total.view(torch.int32) >> bits << bits).view(torch.float32)
    if faults.has("rounded_to_7_bits"):
        total = (total.view(torch.int32) + 2**16 >> 17 << 17).view(torch.float32)
    return total.to(dtype)


def _norm(total, gamma, eps):
    values = total.float()
    mean = values.square().mean(-1, keepdim=True)
    if faults.has("lanes_counted_twice"):  # as a reduction over an incomplete warp might
        mean += values[:, ::15].square().sum(-1, keepdim=True) / values.shape[1]  # 12 lanes of 180
    normed = values * (mean + (0.0 if faults.has("eps_ignored") else eps)).rsqrt()
    return (normed if faults.has("weight_ignored") else normed * gamma.float()).to(total.dtype)


def _spoil(norm_out, residual_out, residual_in, gamma):
    if faults.has("nan_residual"):
        residual_out[-1, 3] = float("nan")
    if faults.has("input_changed"):
        residual_in[0, 0] += 1
    if faults.has("residual_changed") and residual_out is not residual_in:
        residual_in[0, 0] += 1
    if faults.has("gamma_changed") and gamma is not None:
        gamma[-1] += 1
    faults.spoil(norm_out)


def set_fault(rank):
    path = os.environ.get("FI_DOCTOR_FAKE_FAULT")
    name, _, only = Path(path).read_text().partition("@") if path else ("", "", "")
    active = name if only in {"", str(rank)} else ""
    if active != faults.ACTIVE:
        faults.seen_first.kept.clear()  # of other calls, at addresses that are in use again
    faults.ACTIVE = active


def misbehave():
    if faults.has("segfault"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if faults.has("out_of_memory"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB.")
    if faults.has("raises"):
        raise ValueError("allreduce_fusion_op failed with error code\ninvalid argument")
    assert not faults.has("asserts"), "sequence length should be larger than tp_size"
    if faults.has("stops"):
        os.kill(os.getpid(), signal.SIGSTOP)
    while faults.has("hangs"):
        time.sleep(1)


def _all_reduce(tensor, *args, group=None, **kwargs):
    """Torch's own, with a fault of the library below it."""
    own = tensor.clone()
    done = ALL_REDUCE(tensor, *args, group=group, **kwargs)
    set_fault(dist.get_rank(group))
    if faults.has("reduction_left_out"):
        tensor.copy_(own)
    return done


_all_reduce.right = ALL_REDUCE
dist.all_reduce = _all_reduce
