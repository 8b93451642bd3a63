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

NEGATIVE_ZERO = -(2**15)  # as int16
MAPS = []  # kept alive
LAST = {}  # Lamport buffer -> what it held


class AllReduceFusionPattern:
    kARResidualRMSNorm = 1  # noqa: N815 - the name of FlashInfer


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
    assert pattern_code == AllReduceFusionPattern.kARResidualRMSNorm
    assert allreduce_in.shape == (token_num, hidden_dim)
    set_fault(world_rank)
    misbehave()
    exchange = _oneshot if use_oneshot else _twoshot
    parts = exchange(allreduce_in.flatten(), world_rank, world_size, workspace_ptrs.tolist())
    if faults.has("contribution_missing"):
        parts[1 - world_rank].zero_()
    total = _rounded(parts.float().sum(0), allreduce_in.dtype).view_as(residual_in)
    if not faults.has("residual_not_added"):
        total = (total.float() + residual_in.float()).to(total.dtype)
    if faults.has("rounded_once"):
        total = (parts.float().sum(0).view_as(residual_in) + residual_in.float()).to(total.dtype)
    count = token_num - faults.has("last_token_unwritten")
    normed = _norm(total, rms_gamma, rms_eps)
    if not faults.has("residual_unwritten"):
        residual_out[:count] = total[:count]
    norm_out[:count] = normed[:count]
    _spoil(norm_out, residual_out, residual_in, rms_gamma)
    return norm_out if faults.has("returns_tensor") else None


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
        parts[1 - rank] = there[1 - rank]
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
    if faults.has("residual_changed") and residual_out is not residual_in:
        residual_in[0, 0] += 1
    if faults.has("gamma_changed"):
        gamma[-1] += 1
    faults.spoil(norm_out)


def set_fault(rank):
    path = os.environ.get("FI_DOCTOR_FAKE_FAULT")
    name, _, only = Path(path).read_text().partition("@") if path else ("", "", "")
    faults.ACTIVE = name if only in {"", str(rank)} else ""


def misbehave():
    if faults.has("segfault"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if faults.has("raises"):
        raise ValueError("allreduce_fusion_op failed with error code\ninvalid argument")
    assert not faults.has("asserts"), "sequence length should be larger than tp_size"
    while faults.has("hangs"):
        time.sleep(1)
