"""Facts: what was read off the machine and the interpreter under examination, never judged."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing
from fi_doctor.model.binaries import Binaries
from fi_doctor.model.calls import Calls
from fi_doctor.model.machine import Machine
from fi_doctor.model.server import Server
from fi_doctor.model.surroundings import HostLimits, Nvcc, OtherToolkit, RayCopies, Site, TritonPtxas


class Gpu(Data, frozen=True):
    """One GPU as NVML sees it. Source: NVML; cuda_index: the CUDA driver, matched by UUID."""

    nvml_index: int  # PCI order, unlike CUDA's own
    cuda_index: int | Missing  # number in CUDA's own order; Missing when CUDA_VISIBLE_DEVICES hides it
    uuid: str
    name: str
    sm: int | Missing  # compute capability without the dot: 90, 121
    memory_total_mib: int | Missing
    memory_free_mib: int | Missing
    mig: bool | Missing  # whether MIG mode is on
    pci_bus: str | Missing
    # Whether each of its NVLinks is up, by number; empty: it has none.
    nvlinks: tuple[bool, ...] | Missing = Missing(reason="they were not read")
    # How the IOMMU treats it: the type of its group, "identity", "DMA", "DMA-FQ"; "none" where no IOMMU is used.
    iommu: str | Missing = Missing(reason="it was not read")
    # Bridges above it that send what goes from GPU to GPU up to the root complex (PCI ACS); empty: none does.
    acs_bridges: tuple[str, ...] | Missing = Missing(reason="they were not read")
    compute_mode: str | Missing = Missing(reason="it was not read")  # "default", "exclusive-process", "prohibited"
    compute_processes: int | Missing = Missing(reason="they were not read")  # that have a CUDA context on it


class PeerLink(Data, frozen=True):
    """What lies between two GPUs. Source: NVML."""

    one: str  # UUID
    other: str  # UUID
    pcie: str | Missing  # where they meet, in nvidia-smi's words: "PIX", "PXB", "PHB", "NODE", "SYS"
    nvlink: bool | Missing  # whether NVML says that they reach each other over NVLink, which is what vLLM asks
    read: str | Missing  # "ok", or why NVML says that they do not read each other's memory
    write: str | Missing


class Driver(Data, frozen=True, tag_field="kind", tag="driver"):
    """The installed NVIDIA driver."""

    version: str  # "580.159.04"
    cuda: str | Missing  # the newest CUDA it runs, "13.0": not the toolkit's version


class GpuFacts(Data, frozen=True):
    """GPUs and driver."""

    driver: Driver | Missing
    gpus: tuple[Gpu, ...] | Missing  # all of the machine, in NVML order; an empty tuple means NVML answered "none"
    visible_devices: str | Missing  # CUDA_VISIBLE_DEVICES as set; Missing when unset
    cuda_order: tuple[str, ...] | Missing  # UUIDs in CUDA's numbering, only what CUDA sees
    unreadable: tuple[str, ...] = ()  # GPUs that NVML counts but cannot open (lost, not permitted), a sentence each
    links: tuple[PeerLink, ...] | Missing = Missing(reason="they were not read")  # every pair once

    @property
    def cuda_sees_any(self) -> bool:
        """Whether CUDA was asked and sees a GPU."""
        return not isinstance(self.cuda_order, Missing) and bool(self.cuda_order)


class JitToolkit(Data, frozen=True, tag_field="kind", tag="toolkit"):
    """The toolkit that FlashInfer's JIT takes, by the rule of the installed version (jit/cpp_ext.py get_cuda_path)."""

    cuda_home: str
    found_by: str  # "CUDA_HOME", "CUDA_PATH", "which nvcc", "default"
    nvcc: Nvcc | Missing  # $cuda_home/bin/nvcc: its version decides FlashInfer's gates
    compiler: Nvcc | Missing  # what ninja calls: FLASHINFER_NVCC if set, else the same
    headers: dict[str, str | Missing]  # header that every module needs -> where the compiler finds it
    libraries: dict[str, str | Missing]  # library that every module links (cudart, cuda) -> where the linker finds it
    cccl: str | Missing  # version of the toolkit's CCCL headers
    module_headers: dict[str, str | Missing] = {}  # the same for headers that only some modules need (MoE, bmm_fp8)
    module_libraries: dict[str, str | Missing] = {}  # the same for libraries that only some modules link
    runtime: str | Missing = Missing(reason="it was not read")  # CUDART_VERSION of cuda_runtime_api.h, "13.0"
    # Folder with the C library's headers that stands before those of C++, "/usr//include": <cstdlib> finds none then.
    c_before_cxx: str = ""
    host_headers: dict[str, str | Missing] = {}  # where c++ finds what .cpp files need: it knows no folder of nvcc's


class ToolkitFacts(Data, frozen=True):
    """CUDA at compile time."""

    jit: JitToolkit | Missing
    gate_version: str | Missing  # what FlashInfer compares with its version gates: nvcc's, else torch's CUDA
    gate_source: str  # "nvcc" or "torch.version.cuda", or why there is none
    others: tuple[Nvcc, ...]  # every other nvcc found, by path
    torch_cuda: str | Missing  # from torch/version.py
    jit_cache_cuda: str | Missing  # from the +cuXYZ tag of flashinfer-jit-cache
    ninja: str | Missing  # path of the ninja that FlashInfer would start
    host_compiler: str | Missing  # path of the C++ compiler that it would call (CXX, else c++)
    host_compiler_version: str | Missing
    nvcc_on_path: str | Missing = Missing(reason="it was not looked for")  # vLLM looks for it there, whatever CUDA_HOME
    toolkits: tuple[OtherToolkit, ...] = ()  # those of the other nvccs, and of the JIT's if it is a link


class Library(Data, frozen=True, tag_field="kind", tag="library"):
    """One CUDA library as a process of the examined interpreter would load it."""

    name: str  # "cudart", "nvrtc", "cublas", "cudnn", "nccl"
    path: str
    version: str | Missing
    origin: str  # "wheel", "LD_LIBRARY_PATH", "system", "toolkit"
    package: str | Missing  # the wheel that owns it, "nvidia-cublas 13.1.0.3"
    copies: tuple[str, ...]  # the same library elsewhere, not the one loaded


class Package(Data, frozen=True, tag_field="kind", tag="package"):
    """One installed distribution in the examined interpreter. Source: importlib.metadata there."""

    name: str
    version: str | Missing
    location: str  # the folder on sys.path that holds it, or the source tree when editable
    editable: bool
    commit: str | Missing
    # Requires-Dist lines: all without extras of vLLM, torch and FlashInfer, of others those about what is watched.
    requires: tuple[str, ...]
    shadowed: tuple[str, ...]  # further copies on sys.path that lose: "0.5.2 in /opt/site"
    leftovers: tuple[str, ...] = ()  # metadata of other versions in the same folder
    lost: str = ""  # why nothing can be imported of it although its metadata are there
    claims: str = ""  # the version that its metadata name, where its own files name another


class VersionCheck(Data, frozen=True):
    """FlashInfer's own comparison of a companion package with itself, replayed."""

    package: str  # "flashinfer-cubin"
    found: str  # the companion's version
    expected: str  # what this FlashInfer accepts, in words
    ok: bool
    effect: str  # what this FlashInfer does when not ok: "raises RuntimeError at import", "ignores the package"
    source: str  # file:line in the installed package


class FlashInfer(Data, frozen=True, tag_field="kind", tag="flashinfer"):
    """The installed flashinfer package, read from its files."""

    root: str  # the package folder
    version: str | Missing  # what it says of itself (_build_meta.py)
    commit: str | Missing
    architectures: tuple[str, ...] | Missing  # what the JIT builds for: "90a", "120f"
    architectures_from: str  # "FLASHINFER_CUDA_ARCH_LIST", "GPUs"
    version_checks: tuple[VersionCheck, ...]  # cubin and jit-cache, those that are installed
    version_check_disabled: bool  # FLASHINFER_DISABLE_VERSION_CHECK is non-empty
    cache_base: str  # $FLASHINFER_WORKSPACE_BASE or $HOME, then .cache/flashinfer
    cache_dir: str | Missing  # base/<version>/<architectures>; Missing without architectures
    cache_writable: bool | Missing
    cache_owner: int | Missing  # uid of the nearest existing folder
    cached_modules: tuple[str, ...]  # modules with a built .so in cache_dir
    cubin_dir: str | Missing
    cubins: int | Missing  # files counted, nothing downloaded
    jit_cache_modules: tuple[str, ...]  # modules that jit-cache packages bring prebuilt
    jit_cache_architectures: tuple[str, ...] | Missing  # as their providers say; old wheels do not
    symbols: dict[str, str | Missing]  # "flashinfer.norm.rmsnorm" -> "norm/__init__.py:41", or why it is not there
    cccl: str | Missing = Missing(reason="it was not read")  # that it brings itself; absent: the toolkit's is taken
    shared_ninja_log: bool = False  # one for all modules (facts/builds.py), which builds at the same time spoil
    # Module -> what its cached build.ninja says otherwise than FlashInfer would write today, "cuda_home = /usr/local;
    # now /usr/local/cuda-13.0". Empty where the installed version writes that file for every build.
    stale_modules: dict[str, str] = {}
    # Generator function, "flashinfer.jit.comm.gen_trtllm_comm_module" -> the majors that it is compiled for.
    majors: dict[str, Majors | Missing] = {}
    # Pattern, "*awq*" -> the public names that match and where they are defined, "gemm/gemm_base.py:333".
    public: dict[str, dict[str, str]] = {}
    # Name, call with what decides it, "flashinfer.mm_fp4(backend='cudnn')", or file of a kernel's runner -> where the
    # source turns GPUs away. Only those are here of which that can be read with certainty.
    admissions: dict[str, tuple[Admission, ...]] = {}
    altered: dict[str, str] = {}  # Python files that are not as they were installed -> how: "0 bytes instead of 41234"
    cached_unread: str = ""  # why it is not known which modules are cached: their folder cannot be listed
    cubins_damaged: dict[str, str] = {}  # fetched cubin that is not whole -> how: "4096 bytes of at least 18016"


class Named(Data, frozen=True):
    """What FlashInfer's source says of names: the fields that depend on nothing but its Python files and runners."""

    symbols: dict[str, str | Missing]
    public: dict[str, dict[str, str]]
    majors: dict[str, Majors | Missing]
    admissions: dict[str, tuple[Admission, ...]]
    altered: dict[str, str] = {}  # Python files that are not as they were installed -> how: "0 bytes instead of 41234"


class Majors(Data, frozen=True, tag_field="kind", tag="majors"):
    """For which compute capability majors one of FlashInfer's modules is compiled, as its generator says."""

    majors: tuple[int, ...]  # empty: for any
    source: str  # "jit/comm.py:198"


class Admission(Data, frozen=True):
    """A place in FlashInfer's source that lets a call through on some GPUs only."""

    source: str  # "mla.py:612", below the package folder
    admits: tuple[int, ...]  # compute capabilities on which nothing refuses the call, of those that were tried
    refuses: tuple[int, ...]  # those that get no further than this place


class Vllm(Data, frozen=True, tag_field="kind", tag="vllm"):
    """The installed vllm package, read from its files and never imported."""

    root: str  # the package folder
    variables: dict[str, str]  # variables that its registry (envs.py) knows -> "envs.py:887"
    # Of those, the ones that no other file of the package names: registered, and without effect.
    unread_variables: tuple[str, ...]
    flags: dict[str, str]  # "--moe-backend" -> "engine/arg_utils.py:1238", those of vllm serve
    keys: dict[str, str]  # "PassConfig.fuse_allreduce_rms" -> "config/compilation.py:107"
    # Variables that other files of the package name although its registry does not know them -> the first such file.
    other_variables: dict[str, str] = {}
    unreadable: dict[str, str] = {}  # a field of these -> why it could not be read (and is empty)
    altered: dict[str, str] = {}  # Python files that are not as they were installed -> how: "gone"


class Interpreter(Data, frozen=True):
    """The Python under examination, which need not be the one that runs fi-doctor."""

    executable: str
    version: str
    implementation: str
    prefix: str
    pythonpath: str | Missing
    sys_path: tuple[str, ...]
    is_own: bool  # whether it is the one that runs fi-doctor
    wrapper: str = ""  # the program that was named and starts it; its variables are those of all that was started
    serving: tuple[str, ...] = ()  # options that say for whom it was examined: "--pid", "4711"

    @property
    def named(self) -> str:
        """What --python has to say to start it in the same way."""
        return self.wrapper or self.executable


class SystemFacts(Data, frozen=True):
    """Operating system, container, limits."""

    os: str  # PRETTY_NAME of os-release
    kernel: str
    libc: str
    machine: str
    container: str | Missing  # "docker", "kubernetes", ...; Missing when no sign of one
    image: dict[str, str]  # image tags such as NVIDIA_PYTORCH_VERSION
    cpus: int  # usable: affinity and cgroup quota counted
    memory_total_mib: int | Missing
    memory_available_mib: int | Missing
    memory_limit_mib: int | Missing  # cgroup limit; Missing when there is none
    shm_mib: int | Missing  # size of /dev/shm
    uid: int
    # What the control groups leave of their limits, less what can be given back; Missing when none has a limit.
    memory_left_mib: int | Missing = Missing(reason="it was not read")
    own_ipc_namespace: bool | Missing = Missing(reason="it was not read")  # False: the host's (--ipc=host, hostIPC)
    own_pid_namespace: bool | Missing = Missing(reason="it was not read")  # False: the host's (--pid=host, hostPID)
    hostname: str | Missing = Missing(reason="it was not read")  # of a container its own


class Facts(Data, frozen=True):
    """Everything read. `sources` tells by dotted name how each group was read."""

    interpreter: Interpreter
    gpus: GpuFacts
    toolkit: ToolkitFacts
    libraries: dict[str, Library | Missing]  # CUDA at run time, by short name
    packages: dict[str, Package | Missing]
    flashinfer: FlashInfer | Missing
    system: SystemFacts
    environment: dict[str, str]  # variables by allow-list, secrets hidden
    sources: dict[str, str]
    vllm: Vllm | Missing = Missing(reason="it was not read")
    calls: Calls | Missing = Missing(reason="they were not read")  # of that FlashInfer by that vLLM
    machine: Machine | Missing = Missing(reason="it was not read")
    server: Server | Missing = Missing(reason="no process was named")  # --pid: environment and system are then its own
    binaries: Binaries | Missing = Missing(reason="they were not read")  # shared objects with GPU code
    site: Site | Missing = Missing(reason="it was not read")  # beside the packages on sys.path
    host_limits: HostLimits | Missing = Missing(reason="they were not read")
    triton_ptxas: TritonPtxas | Missing = Missing(reason="it was not read")
    ray_copies: RayCopies | Missing = Missing(reason="they were not read")
    installed_on: dict[str, str] = {}  # distribution -> the day of its metadata's files, "2026-11-28"

    @property
    def serving_uid(self) -> int:
        """The user who serves, who need not be the one of this process."""
        return self.system.uid if isinstance(self.machine, Missing) else self.machine.user.uid

    @property
    def running_uid(self) -> int:
        """The user as whom everything is started: the one who serves, where root can become that one."""
        return self.system.uid if isinstance(self.machine, Missing) else self.machine.running_uid(self.system.uid)

    @property
    def vllm_version(self) -> str:
        """Of the installed vLLM; "" where none is installed or its version is not known."""
        return self.version_of("vllm")

    def version_of(self, name: str) -> str:
        """Of an installed distribution; "" where it is not installed or its version is not known."""
        package = self.packages.get(name)
        return package.version if isinstance(package, Package) and isinstance(package.version, str) else ""
