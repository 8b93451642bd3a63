# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
"""The one-sided all-to-all: all payloads of a token in one go, and rows kept free for each rank."""

from types import SimpleNamespace

import torch

from flashinfer import faults
from flashinfer.comm import _all2all as ranks
from flashinfer.comm.mnnvl import opened
from flashinfer.graphs import live

TOP_K = (1, 2, 4, 8)


def get_moe_alltoall_module():
    return SimpleNamespace()


def moe_a2a_get_workspace_size_per_rank(
    ep_size, max_num_tokens, total_dispatch_payload_size_per_token, combine_payload_size_per_token
):
    return ep_size * max_num_tokens * (total_dispatch_payload_size_per_token + combine_payload_size_per_token)


class MoeAlltoAll:
    def __init__(
        self,
        mapping,
        max_num_tokens,
        top_k,
        num_experts,
        workspace_size_per_rank=None,
        hidden_size=None,
        mnnvl_config=None,
    ):
        opened(mapping, mnnvl_config)
        self.rank, self.world, self.experts = mapping.moe_ep_rank, mapping.moe_ep_size, num_experts
        self.most, self.top_k, self.size = max_num_tokens, top_k, workspace_size_per_rank
        self.tokens = None

    def dispatch(
        self,
        token_selected_experts,
        input_payloads,
        runtime_max_tokens_per_rank,
        invalid_token_expert_id=None,
        expert_id_payload_index=None,
    ):
        assert self.tokens is None, "dispatch called twice without combine"
        assert self.top_k in TOP_K
        assert token_selected_experts.shape[1] == self.top_k
        assert runtime_max_tokens_per_rank <= self.most
        row = sum(one.shape[1] * one.element_size() for one in input_payloads)
        assert self.world * runtime_max_tokens_per_rank * row <= self.size
        *others, ids, weights = input_payloads
        states, ids, weights = live(states=others[0], ids=ids, weights=weights)
        self.tokens, given = ranks.route(ids, weights, self.rank, self.world, self.experts)
        self.local = len(ids)
        self.begins = [source * runtime_max_tokens_per_rank for source in range(self.world)]
        count = self.world * runtime_max_tokens_per_rank
        moved = []
        for kind, one in zip(("states", "scales"), [states, *others[1:]], strict=False):
            rows = ranks.rows_of(kind, ranks.everywhere(one.clone()), self.tokens)
            moved.append(ranks.placed(rows, self.begins, count, None))
            if faults.has(f"{kind}_changed"):
                one.view(torch.uint8)[0, 0] ^= 1
        filler = None if faults.has("padding_not_marked") else invalid_token_expert_id
        rows = ranks.rows_of("ids", [one for one, _ in given], self.tokens)
        assert expert_id_payload_index == len(moved)
        moved.append(ranks.placed(rows, self.begins, count, filler))
        rows = ranks.rows_of("weights", [one for _, one in given], self.tokens)
        moved.append(ranks.placed(rows, self.begins, count, None))
        return [one.view(self.world, runtime_max_tokens_per_rank, -1) for one in moved]

    def combine(self, payload, runtime_max_tokens_per_rank, *, output=None):
        assert payload.shape[:2] == (self.world, runtime_max_tokens_per_rank)
        got = ranks.sums(payload.flatten(0, 1), self.tokens, self.begins, self.local, self.rank)
        self.tokens = None
        if output is not None and not faults.has("output_unwritten"):
            output.copy_(got)
        return got
