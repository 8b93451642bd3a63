# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
"""The two-sided all-to-all: who sends what is exchanged first, then one payload after the other."""

from dataclasses import dataclass
from itertools import accumulate

import torch

from flashinfer import faults
from flashinfer.comm import _all2all as ranks
from flashinfer.comm.mnnvl import opened
from flashinfer.graphs import live


def get_comm_alltoall_module():
    return None


@dataclass
class MoEAlltoallInfo:
    recv_rank_count_cumsum: torch.Tensor
    tokens: list
    begins: list
    count: int


class MnnvlMoe:
    @staticmethod
    def get_moe_workspaces(mapping, config=None):
        opened(mapping, config)
        return "a workspace"

    @staticmethod
    def get_moe_prepare_workspace(mapping, config=None):
        opened(mapping, config)
        return "another workspace"

    @staticmethod
    def mnnvl_moe_alltoallv_prepare_without_allgather(
        expert_ids,
        scales,
        expert_statics,
        workspace,
        max_token_count_per_rank,
        ep_rank,
        ep_size,
        expert_count,
        slot_count,
        top_k,
    ):
        assert (expert_statics, workspace) == (None, "another workspace")
        assert expert_ids.shape[1] == top_k
        ids, weights = live(ids=expert_ids, weights=scales)
        tokens, given = ranks.route(ids, weights, ep_rank, ep_size, expert_count)
        ends = list(accumulate(len(one) for one in tokens))
        begins, count = [0, *ends[:-1]], max_token_count_per_rank * ep_size
        rows = ranks.rows_of("ids", [one for one, _ in given], tokens)
        if not faults.has("foreign_expert_kept"):
            own = slot_count // ep_size
            rows = [torch.where(one // own == ep_rank, one, slot_count) for one in rows]
        filler = None if faults.has("padding_not_marked") else slot_count
        prepared = ranks.placed(rows, begins, count, filler)
        moved = ranks.placed(ranks.rows_of("weights", [one for _, one in given], tokens), begins, count, None)
        told = torch.tensor(ends[::-1] if faults.has("counts_swapped") else ends, dtype=torch.int32)
        return MoEAlltoallInfo(told, tokens, begins, count), prepared, moved, None

    @staticmethod
    def mnnvl_moe_alltoallv(x, alltoall_info, workspace, ep_rank, ep_size):
        assert workspace == "a workspace"
        assert x.shape[1] * x.element_size() % 16 == 0
        kind = "scales" if x.dtype is torch.float32 else "states"
        (now,) = live(states=x)
        rows = ranks.rows_of(kind, ranks.everywhere(now.clone()), alltoall_info.tokens)
        if faults.has(f"{kind}_changed"):
            x.view(torch.uint8)[0, 0] ^= 1
        return ranks.placed(rows, alltoall_info.begins, alltoall_info.count, None)

    @staticmethod
    def mnnvl_moe_alltoallv_combine(x, alltoall_info, workspace, ep_rank, ep_size, top_k, token_count):
        assert workspace == "a workspace"
        return ranks.sums(x, alltoall_info.tokens, alltoall_info.begins, token_count, ep_rank)
