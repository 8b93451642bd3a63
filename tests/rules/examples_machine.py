"""Examples of the rules on the machine: folders, memory, downloads, what a container is given, GPUs in use."""

from __future__ import annotations

import factory as make
import serving
from msgspec.structs import replace
from rule_examples import Example

from fi_doctor.model import DriverFiles, Facts, FlashInfer, Network

OLD_SOURCES = f"{make.SITE}/flashinfer/data/csrc/nv_internal/tensorrt_llm/cutlass_instantiations"
REFUSED = "/ has owner 0, group 0, mode 0755"
B200 = make.gpu(sm=100)
NO_LIBCUDA = make.absent("there is no libcuda.so.1 on the library path")
NO_NVML = make.no_gpus("no NVIDIA driver reaches this container")
STUB = "/usr/local/cuda/lib64/stubs/libcuda.so.1 lies among the CUDA toolkit's stubs"


def _refusing(purpose: str, path: str, *, gpus=(), fi: FlashInfer | None = None, **changes) -> Facts:
    """A machine whose serving user cannot write that folder."""
    folder = serving.folder(purpose, path, **{"nearest": "/", "writable": False, "why": REFUSED, **changes})
    return serving.with_folders(folder, gpus=make.gpu_facts(*gpus), flashinfer=fi or make.flashinfer())


def _memory(available_mib: int, environment: dict[str, str] | None = None, **changes) -> Facts:
    facts = make.facts(environment=environment or {}, **changes)
    return replace(facts, system=replace(facts.system, memory_available_mib=available_mib))


def _network(*, gpu=B200, **changes) -> Facts:
    base = Network(default_route=False, proxies=(), no_download="", repository_is_local=False)
    return make.facts(machine=replace(serving.machine(), network=replace(base, **changes)), gpus=make.gpu_facts(gpu))


def _contained(environment: dict[str, str], gpus, **files) -> Facts:
    base = DriverFiles(nodes=(), libcuda=NO_LIBCUDA, stub="")
    facts = make.facts(
        environment=environment, gpus=gpus, machine=replace(serving.machine(), driver_files=replace(base, **files))
    )
    return replace(facts, system=replace(facts.system, container="docker"))


def _gpus(*gpus, **changes) -> Facts:
    return make.facts(gpus=make.gpu_facts(*gpus, **changes))


def _compat(library: str, *, driver: str = "570.86.15", name: str = "NVIDIA H100") -> Facts:
    """A libcuda.so.1 of a cuda-compat package under that driver."""
    files = replace(serving.machine().driver_files, libcuda=f"/usr/local/cuda-12.9/compat/libcuda.so.{library}")
    gpus = make.gpu_facts(make.gpu(name=name), driver=driver, cuda="12.8")
    machine = replace(serving.machine(), driver_files=files)
    return make.facts(gpus=gpus, machine=machine, toolkit=make.toolkit("12.8", torch_cuda="12.8"))


def _unseen(**changes):
    return make.gpu(cuda_index=make.missing("CUDA sees no GPU"), **changes)


EXAMPLES: dict[str, Example] = {
    "compat-library-older-than-driver": Example(
        fires=_compat("575.57.08", driver="580.95.05"), silent=_compat("575.57.08", driver="570.86.15")
    ),
    "compat-library-on-consumer-gpu": Example(
        fires=_compat("575.57.08", name="NVIDIA GeForce RTX 4090"), silent=_compat("575.57.08")
    ),
    "package-folder-not-writable": Example(
        fires=_refusing("cutlass-sources", OLD_SOURCES),
        silent=_refusing("cutlass-sources", OLD_SOURCES, nearest=OLD_SOURCES),  # generated with the image
    ),
    "flashinfer-cache-holds-files-of-other-user": Example(
        fires=serving.with_folders(
            serving.folder(blocked=(f"{serving.CACHE}/flashinfer_jit.log",), blocked_count=7),
        ),
        silent=serving.with_folders(serving.folder(owner=0, mode="0777")),
    ),
    "flashinfer-cache-on-noexec-file-system": Example(
        fires=serving.with_folders(serving.folder(noexec=True, mount="/home")),
        silent=serving.with_folders(serving.folder(), serving.folder("temporary", "/tmp", noexec=True)),
    ),
    "folder-for-builds-full": Example(
        fires=serving.with_folders(serving.folder(free_inodes=0)),
        silent=serving.with_folders(serving.folder(free_inodes=make.missing("btrfs counts none"), free_mib=64)),
    ),
    "folder-for-builds-nearly-full": Example(
        fires=serving.with_folders(serving.folder(free_mib=900)),
        silent=serving.with_folders(serving.folder("cubins", "/cubins", free_mib=900), serving.folder()),
    ),
    "python-unreachable-for-serving-user": Example(
        fires=make.facts(machine=serving.machine(unreachable=("/venv/bin/python: /root has owner 0, mode 0700",))),
        silent=make.facts(machine=serving.machine()),
    ),
    "temporary-folder-not-writable": Example(
        fires=_refusing("temporary", "/tmp"),
        silent=_refusing("temporary", "/tmp", writable=make.missing("a file system of type 9p decides")),
    ),
    "deep-gemm-cache-not-writable": Example(
        fires=_refusing("deep-gemm", "/.tensorrt_llm"),
        silent=_refusing("deep-gemm", "/.tensorrt_llm", gpus=(B200,)),
    ),
    "cubins-cannot-be-kept": Example(
        fires=_refusing("cubins", "/.cache/flashinfer/cubins", gpus=(B200,)),
        silent=_refusing("cubins", "/.cache/flashinfer/cubins", gpus=(B200,), fi=make.flashinfer(cubins=31000)),
    ),
    "cubin-links-not-writable": Example(
        fires=_refusing("cubin-links", f"{make.SITE}/flashinfer_cubin/cubins/flashinfer", gpus=(B200,)),
        silent=_refusing("cubin-links", f"{make.SITE}/flashinfer_cubin/cubins/flashinfer"),  # an H200
    ),
    "cubins-damaged": Example(
        make.facts(flashinfer=make.flashinfer(cubins=2, cubins_damaged={"/c/a.cubin": "0 bytes"})),
        make.facts(flashinfer=make.flashinfer(cubins=2)),
    ),
    "cubins-absent-and-offline": Example(
        fires=_network(),
        silent=_network(proxies=("https_proxy",)),
    ),
    "compilers-need-more-memory": Example(
        fires=_memory(48_000),
        silent=_memory(48_000, {"MAX_JOBS": "8"}),
    ),
    "container-without-gpu-devices": Example(
        fires=_contained({"NVIDIA_VISIBLE_DEVICES": "all"}, NO_NVML),
        silent=_contained({"NVIDIA_VISIBLE_DEVICES": "void"}, NO_NVML),
    ),
    "driver-capability-compute-missing": Example(
        fires=_contained({"NVIDIA_DRIVER_CAPABILITIES": "utility,graphics"}, make.gpu_facts()),
        silent=_contained({"NVIDIA_DRIVER_CAPABILITIES": "utility,compute"}, make.gpu_facts()),
    ),
    "libcuda-is-a-stub": Example(
        fires=_contained({}, make.gpu_facts(), stub=STUB),
        silent=_contained({}, NO_NVML, stub=STUB),  # where an image is built
    ),
    "mig-mode-without-instance": Example(
        fires=_gpus(_unseen(mig=True), cuda_order=make.missing("CUDA sees no GPU")),
        silent=_gpus(make.gpu(mig=True)),
    ),
    "gpu-compute-mode-prohibited": Example(
        fires=_gpus(_unseen(compute_mode="prohibited"), cuda_order=make.missing("CUDA sees no GPU")),
        silent=_gpus(_unseen(compute_mode="prohibited"), make.gpu(index=1, compute_mode="default")),
    ),
    "exclusive-gpu-in-use": Example(
        fires=_gpus(make.gpu(compute_mode="exclusive-process", compute_processes=1)),
        silent=_gpus(make.gpu(compute_mode="exclusive-process", compute_processes=0)),
    ),
    "gpu-memory-taken": Example(
        fires=_gpus(make.gpu(memory_free_mib=52_000)),
        silent=_gpus(make.gpu(memory_free_mib=52_000, mig=True)),
    ),
}
