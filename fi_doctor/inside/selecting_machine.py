"""A GPU that is asked about and not there, as vLLM's platform: nothing but what identifies the device is replaced.

Loaded by selecting.py, beside which it lies; standard library, torch and vLLM only. Each replacement is written into
`said`, in words, and handed back with the answer.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from typing import Any

# What is replaced keeps the parameters of what it replaces.
# ruff: noqa: ARG001, ARG005
GIB = 1 << 30


def install_platform(gpu: dict[str, Any], watch: Any, said: list[str]) -> Any:
    """Make vLLM's own CUDA platform the current one, with the device that is asked about; returns its class.

    gpu: sm [9, 0], name, memory_gib, multiprocessors, count. With a real device of that capability nothing is
    replaced, and only what the selectors answer is listened to.
    """
    torch: Any = importlib.import_module("torch")
    platforms: Any = importlib.import_module("vllm.platforms")
    real = _real_capability(platforms)
    asked = (int(gpu["sm"][0]), int(gpu["sm"][1]))
    cuda = importlib.import_module("vllm.platforms.cuda")
    if real == asked:
        base = type(platforms.current_platform)
        said.append("nothing of the device: the GPU here has the capability that was asked about")
        platforms.current_platform.__class__ = watch.listening(base)
        return base
    base = getattr(cuda, "NvmlCudaPlatform", None) or cuda.CudaPlatform
    said.append(f"vllm.platforms.cuda.{base.__name__} with capability {asked[0]}.{asked[1]}, {gpu['name']}")
    fixed = watch.listening(type("Asked" + base.__name__, (base,), _device(gpu, asked)))
    platforms._current_platform = fixed()  # noqa: SLF001 - where vLLM keeps it, in every release since 0.6
    _replace_torch(torch, gpu, asked, said)
    return fixed


def _real_capability(platforms: Any) -> tuple[int, int] | None:
    """The device that vLLM itself sees, asked of the driver without a CUDA context."""
    with contextlib.suppress(Exception):
        found = platforms.current_platform.get_device_capability()
        return (int(found.major), int(found.minor))
    return None


def _device(gpu: dict[str, Any], asked: tuple[int, int]) -> dict[str, Any]:
    """What the platform says of its device."""
    interface = importlib.import_module("vllm.platforms.interface")
    capability = interface.DeviceCapability(*asked)
    memory, name, count = int(float(gpu["memory_gib"]) * GIB), str(gpu["name"]), int(gpu["count"])
    processors = int(gpu["multiprocessors"])

    def has(cls: Any, wanted: Any, device_id: int = 0) -> bool:
        pair = wanted if isinstance(wanted, tuple) else divmod(wanted, 10)
        return bool(capability >= interface.DeviceCapability(*pair))

    answers: dict[str, Any] = {
        "get_device_capability": lambda cls, device_id=0: capability,
        "has_device_capability": has,
        "get_device_name": lambda cls, device_id=0: name,
        "get_device_uuid": lambda cls, device_id=0: "GPU-asked",
        "get_device_total_memory": lambda cls, device_id=0: memory,
        "device_count": lambda cls: count,
        "num_compute_units": lambda cls, device_id=0: processors,
        "is_fully_connected": lambda cls, ids=(): True,
        "is_integrated_gpu": lambda cls, device_id=0: False,
        "log_warnings": lambda cls: None,
        "get_all_device_numa_nodes": lambda cls: None,
        "set_device": lambda cls, device: None,
    }
    return {key: classmethod(value) for key, value in answers.items()}


def _replace_torch(torch: Any, gpu: dict[str, Any], asked: tuple[int, int], said: list[str]) -> None:
    """The same device where code asks torch instead of the platform."""
    memory = int(float(gpu["memory_gib"]) * GIB)
    properties = types.SimpleNamespace(
        name=gpu["name"],
        major=asked[0],
        minor=asked[1],
        total_memory=memory,
        multi_processor_count=int(gpu["multiprocessors"]),
        shared_memory_per_block_optin=232448 if asked[0] in (9, 10) else 101376,
        L2_cache_size=50 << 20,
        warp_size=32,
        gcnArchName="",
    )
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "device_count": lambda: int(gpu["count"]),
        "_device_count_nvml": lambda: int(gpu["count"]),
        "_is_compiled": lambda: True,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_capability": lambda device=None: asked,
        "get_device_name": lambda device=None: gpu["name"],
        "get_device_properties": lambda device=None: properties,
        "mem_get_info": lambda device=None: (memory, memory),
        "current_stream": lambda device=None: Stream(),
        "Stream": Stream,
        "Event": Stream,
        "get_arch_list": lambda: [f"sm_{asked[0]}{asked[1]}"],
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, value)
    said.append("torch.cuda: what it says of the device, with no device behind it")
    _replace_triton(asked, said)
    with contextlib.suppress(AttributeError):
        torch.accelerator.current_device_index = lambda: 0
        torch.accelerator.device_count = lambda: int(gpu["count"])
        torch.accelerator.is_available = lambda: True
    if gpu.get("cuda"):
        torch.version.cuda = str(gpu["cuda"])
        said.append(f"torch.version.cuda = {gpu['cuda']}")


def _replace_triton(asked: tuple[int, int], said: list[str]) -> None:
    """Triton asks the driver for its target when some modules of vLLM are imported."""
    with contextlib.suppress(Exception):
        driver = importlib.import_module("triton.runtime").driver
        target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", asked[0] * 10 + asked[1], 32)
        answers = {"get_current_target": lambda: target, "get_current_device": lambda: 0}
        driver.set_active(types.SimpleNamespace(**answers, get_active_torch_device=lambda: "cuda:0"))
        said.append("Triton's driver: the target only")


def inspect_in_place(said: list[str]) -> None:
    """Import models' files here: vLLM does it in a process of its own, which would not see the asked device."""
    registry: Any = importlib.import_module("vllm.model_executor.models.registry")
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda function: function()  # noqa: SLF001
        said.append("vllm.model_executor.models.registry._run_in_subprocess: in this process")


def keep_expert_map(torch: Any, said: list[str]) -> None:
    """Let the map of experts to ranks have values: layers read it while they are constructed, without storage."""
    names = ("vllm.model_executor.layers.fused_moe.layer", "vllm.model_executor.layers.fused_moe.expert_map_manager")
    found: list[Any] = [sys.modules.get(name) for name in names]
    for module in found:
        ours = getattr(module, "determine_expert_map", None)
        if ours is not None:
            module.determine_expert_map = _with_values(torch, ours)
            said.append(f"{ours.__module__}.determine_expert_map: on the CPU")


def _with_values(torch: Any, ours: Any) -> Any:
    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - the mode that makes tensors without storage is one
            return ours(*args, **kwargs)

    return on_cpu


class Stream:
    """A stream or event with nothing in it: layers make some when they are constructed."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class Members:
    """What torch's process group says of its size and of our place in it."""

    def __init__(self, count: int) -> None:
        self._count = count

    def size(self) -> int:
        """How many ranks."""
        return self._count

    def rank(self) -> int:
        """The first one."""
        return 0


class Group:
    """A process group that no process is in: its sizes and our place, for code that only asks those."""

    def __init__(self, name: str, size: int) -> None:
        self.unique_name = name
        self.world_size = size
        self.rank = self.local_rank = self.rank_in_group = 0
        self.ranks = list(range(size))
        self.is_first_rank = True
        self.is_last_rank = size == 1
        self.first_rank, self.last_rank = 0, size - 1
        self.next_rank, self.prev_rank = min(1, size - 1), size - 1
        self.device_communicator = None
        self.mq_broadcaster = None
        self.use_custom_op_call = False
        self.cpu_group = self.device_group = Members(size)


def install_groups(sizes: dict[str, int], said: list[str]) -> None:
    """Give parallel_state its groups, by their names there (_TP, _PP, ...): no process group is made."""
    state: Any = importlib.import_module("vllm.distributed.parallel_state")
    for name, size in sizes.items():
        if hasattr(state, name):
            setattr(state, name, Group(name, size))
    if hasattr(state, "_NODE_COUNT"):
        state._NODE_COUNT = 1  # noqa: SLF001
    said.append("vllm.distributed.parallel_state: groups of the asked sizes, in which no process is")


def cut_network(reachable: bool, said: list[str]) -> None:  # noqa: FBT001
    """Nobody is asked here: vLLM asks NVIDIA's server whether kernels can be downloaded, and gets the given answer."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        if reachable:
            return types.SimpleNamespace(status_code=200)
        raise ConnectionError("no network is used here")

    with contextlib.suppress(ImportError):
        requests: Any = importlib.import_module("requests")
        requests.get = requests.head = refused
    word = "reachable" if reachable else "not reachable"
    said.append(f"NVIDIA's kernel server is taken to be {word}; it was not asked")
