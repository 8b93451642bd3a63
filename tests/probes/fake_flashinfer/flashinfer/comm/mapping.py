"""Who is where."""


class Mapping:
    def __init__(self, world_size, rank, gpus_per_node, *, tp_size, moe_ep_size=-1):
        assert tp_size == world_size == moe_ep_size
        self.world_size, self.rank, self.gpus_per_node = world_size, rank, gpus_per_node
        self.tp_rank = self.moe_ep_rank = rank
        self.moe_ep_size = moe_ep_size
