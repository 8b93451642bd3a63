"""The one-sided all-to-all under its newer name."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from flashinfer import faults
from flashinfer.comm.mapping import Mapping
from flashinfer.comm.mnnvl import MnnvlConfig
from flashinfer.comm.trtllm_ar import set_fault
from flashinfer.comm.trtllm_moe_alltoall import MoeAlltoAll, moe_a2a_get_workspace_size_per_rank
from flashinfer.fused_moe import QuantFormat


@dataclass
class BootstrapConfig:
    world_size: int
    rank: int
    device: int | None = None


@dataclass
class MoEEpCommParams:
    num_experts: int
    top_k: int
    max_tokens_per_rank: int
    hidden_size: int
    dtype: Any = None
    dispatch_format: Any = None
    invalid_expert_id: int = -1


@dataclass
class NVLinkOneSidedConfig:
    comm_backend: Any = None


class NVLinkOneSidedAlltoAll:
    def __init__(self, bootstrap, params, config):
        set_fault(bootstrap.rank)
        if any(config.comm_backend.allgather(faults.has("link_down"))):
            raise RuntimeError("NVLink backends are not supported on EP ranks [1]; see their logs for the reason")
        world, hidden = bootstrap.world_size, params.hidden_size
        sizes = {QuantFormat.BF16: 2 * hidden, QuantFormat.DeepSeekFp8: hidden + hidden // 32}
        row = sizes[params.dispatch_format] + 8 * params.top_k
        self.params = params
        self.exchange = MoeAlltoAll(
            Mapping(world, bootstrap.rank, world, tp_size=world, moe_ep_size=world),
            params.max_tokens_per_rank,
            params.top_k,
            params.num_experts,
            workspace_size_per_rank=moe_a2a_get_workspace_size_per_rank(
                world, params.max_tokens_per_rank, row, 2 * hidden
            ),
            mnnvl_config=MnnvlConfig(config.comm_backend),
        )

    def dispatch(
        self, hidden_states, topk_ids, topk_weights=None, *, hidden_states_scale=None, max_tokens_per_rank=None
    ):
        payloads = [hidden_states, *([] if hidden_states_scale is None else [hidden_states_scale])]
        self.most, words = max_tokens_per_rank, (self.params.invalid_expert_id, len(payloads))
        got = self.exchange.dispatch(topk_ids, [*payloads, topk_ids, topk_weights], max_tokens_per_rank, *words)
        states, *scales, ids, weights = (one.flatten(0, 1) for one in got)
        scale = scales[0] if scales else None
        return SimpleNamespace(hidden_states=states, hidden_states_scale=scale, topk_ids=ids, topk_weights=weights)

    def combine(self, expert_output, *, output=None):
        return self.exchange.combine(expert_output.view(self.exchange.world, self.most, -1), self.most, output=output)


def create_communication(bootstrap, params, backend):
    return NVLinkOneSidedAlltoAll(bootstrap, params, backend)
