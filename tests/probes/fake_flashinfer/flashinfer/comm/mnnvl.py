"""The memory that ranks share, of which the fakes need none: only the names and how they are made."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import SimpleNamespace

from flashinfer.comm._all2all import memory


class CommBackend(ABC):
    @abstractmethod
    def Get_rank(self): ...  # noqa: N802 - the name of FlashInfer

    @abstractmethod
    def Get_size(self): ...  # noqa: N802 - the name of FlashInfer

    @abstractmethod
    def allgather(self, data): ...

    @abstractmethod
    def bcast(self, data, root): ...

    @abstractmethod
    def barrier(self): ...

    @abstractmethod
    def Split(self, color, key): ...  # noqa: N802 - the name of FlashInfer


@dataclass
class MnnvlConfig:
    comm_backend: CommBackend | None = None
    allocation_granularity: int = 0
    fabric_page_size: int = 1 << 29


class MnnvlMemory:
    @staticmethod
    def get_allocation_prop(dev_id):
        return SimpleNamespace(requestedHandleTypes=SimpleNamespace(name=memory()))


def opened(mapping, config):
    """What every user of the memory does first."""
    comm = config.comm_backend.Split(0, mapping.tp_rank)
    assert (comm.Get_rank(), comm.Get_size()) == (mapping.rank, mapping.world_size)
    assert comm.allgather(mapping.rank) == list(range(mapping.world_size))
    assert comm.bcast(mapping.rank, 0) == 0
    memory()
    comm.barrier()
