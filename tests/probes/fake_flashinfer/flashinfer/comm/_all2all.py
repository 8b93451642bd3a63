"""What the fakes of the all-to-all have in common: ranks hand each other everything through gloo, and choose."""

import io

import torch
import torch.distributed as dist

from flashinfer import faults
from flashinfer.comm.trtllm_ar import misbehave, set_fault

LAST = {}  # what was moved before, by kind and source


def everywhere(data):
    """What each rank gives."""
    given, packed = [None] * dist.get_world_size(), io.BytesIO()
    torch.save(data, packed)  # pickle alone does not know FP8
    dist.all_gather_object(given, packed.getvalue())
    return [torch.load(io.BytesIO(one), weights_only=False) for one in given]


def route(ids, weights, rank, world, experts):
    """By source rank: which of its tokens come to this rank, in any order; and the ids and weights of all."""
    set_fault(rank)
    misbehave()
    given = everywhere((ids.clone(), weights.clone()))
    for_us = [(one // (experts // world) == rank).any(-1) for one, _ in given]
    tokens = [mask.nonzero().flatten() for mask in for_us]
    tokens = [one[torch.randperm(len(one))] for one in tokens]
    foreign = (~for_us[0]).nonzero().flatten()
    if faults.has("token_lost"):
        tokens[0] = tokens[0][1:]
    if faults.has("token_twice") and len(tokens[0]) > 1:
        tokens[0][0] = tokens[0][1]
    if faults.has("token_of_other_rank") and len(tokens[0]) and len(foreign):
        tokens[0][0] = foreign[0]
    if faults.has("ids_changed"):
        ids[-1, 0] ^= 1
    if faults.has("weights_changed"):
        weights[0, -1] += 1
    return tokens, given


def rows_of(kind, tensors, tokens):
    """The rows of these tokens, one tensor for each source rank, wrong in the way of the fault that is active."""
    rows = [tensor[chosen].clone() for tensor, chosen in zip(tensors, tokens, strict=True)]
    for source, one in enumerate(rows):
        before, LAST[kind, source] = LAST.get((kind, source)), one.clone()
        if len(one):
            _spoil(kind, one, before)
    return rows


def _spoil(kind, rows, before):
    data = rows.view(torch.uint8)
    if faults.has(f"{kind}_of_neighbour"):
        rows[0] = rows[-1]
    if faults.has(f"{kind}_one_bit"):
        data[-1, -1] ^= 1
    if faults.has(f"{kind}_tail_unwritten"):
        data[-1, -16:] = 0x5A
    if faults.has(f"{kind}_stale") and before is not None and len(before) and before.shape[1] == rows.shape[1]:
        rows[0] = before[0]


def placed(rows, begins, count, filler):
    """All rows in one tensor of so many, each source's from its place on."""
    out = torch.full((count, *rows[0].shape[1:]), 0, dtype=rows[0].dtype)
    out.view(torch.uint8).fill_(0x7F)  # memory is not cleared
    if filler is not None:
        out.fill_(filler)
    for begin, one in zip(begins, rows, strict=True):
        out[begin : begin + len(one)] = one
    return out


def sums(given, tokens, begins, count, rank):
    """What the experts of all ranks give for this rank's tokens, added up. given: by row; tokens: of each source."""
    total = torch.zeros((count, given.shape[-1]))
    for owner, (rows, theirs, places) in enumerate(everywhere((given, tokens, begins))):
        own, begin = theirs[rank], places[rank]
        if faults.has("rank_left_out") and owner != rank:
            continue
        for _ in range(1 + (faults.has("rank_counted_twice") and owner != rank)):
            total[own] += rows[begin : begin + len(own)].float()
    out = total.to(given.dtype)
    if faults.has("sums_swapped"):
        out = out.flip(0)
    if faults.has("one_sum_off"):
        out[-1, 0] += 1
    if faults.has("last_sums_unwritten"):
        out[-1] = 0.5
    faults.spoil(out)
    return out


def memory(kind="CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"):
    """What stands for FlashInfer's memory, or what a container says that forbids it."""
    set_fault(dist.get_rank())
    if faults.has("not_permitted"):
        raise RuntimeError(
            "pidfd_getfd(pidfd=9, fd=9) failed with errno 1: Operation not permitted. Permission denied. If running in "
            "a container, try adding --cap-add=SYS_PTRACE to your docker run command."
        )
    return kind
