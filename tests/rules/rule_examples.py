"""For each rule two examples: one on which it fires, and one close to it on which it stays silent."""

from __future__ import annotations

import itertools

import factory as make
from example import Example
from msgspec.structs import replace

from fi_doctor.model import CellOutcome, Ending, Facts, Gpu, GpuFacts, Outcome, PeerLink, Stage

SILENT = make.missing("/usr/local/cuda-13.0/bin/nvcc did not answer --version within 5 s")
FAILED = make.missing("/usr/local/cuda-13.0/bin/nvcc --version exits with code 1")

HUNG = "rank 1 did not come back from 'oneshot_bf16: call 1 of 9, 7x4096, separate: launching' within 11 s"
STOPPED = f"{HUNG} (its process is stopped by a signal); rank 0 waits for another rank"


def _wrong(variant: str, detail: str) -> CellOutcome:
    return make.cell(Ending.WRONG, Stage.RAN, variant, detail=detail)


def _requiring(line: str, absent: str) -> Facts:
    """A FlashInfer whose metadata has this line, without that package."""
    flashinfer = make.package("flashinfer-python", "0.5.3", requires=("torch", line))
    return make.facts(packages={"flashinfer-python": flashinfer, absent: make.missing("not installed")})


def _checked(package: str, effect: str = "", *, disabled: bool = False, ok: bool = False) -> Facts:
    found = make.check(package, "0.7.2.post1" if ok else "0.6.13", ok=ok, effect=effect)
    return make.facts(flashinfer=make.flashinfer(version_checks=(found,), version_check_disabled=disabled))


def _gpus(*gpus, **changes) -> Facts:
    return make.facts(gpus=make.gpu_facts(*gpus, **changes))


def _toolkit(version: str = "13.0", **changes) -> Facts:
    return make.facts(toolkit=make.toolkit(version, **changes))


def _jit(**changes) -> Facts:
    return _toolkit(jit=make.jit(**changes))


def _flashinfer(**changes) -> Facts:
    return make.facts(flashinfer=make.flashinfer(**changes))


def _with_cuda(cuda: str, flashinfer: str, *, cccl: str = "2.8.0", cached_modules: tuple[str, ...] = ()) -> Facts:
    """A toolkit of that CUDA, with those headers, under that FlashInfer."""
    return make.facts(
        toolkit=make.toolkit(cuda, jit=make.jit(cuda, cccl=cccl)),
        flashinfer=make.flashinfer(flashinfer, cached_modules=cached_modules),
        packages={"flashinfer-python": flashinfer},
    )


def _arch_list(value: str, architectures, **changes) -> Facts:
    fi = make.flashinfer(architectures=architectures, architectures_from="FLASHINFER_CUDA_ARCH_LIST")
    return make.facts(environment={"FLASHINFER_CUDA_ARCH_LIST": value}, flashinfer=fi, **changes)


def _vllm(version: str, **changes) -> Facts:
    return make.facts(packages={"vllm": version}, **changes)


def _absent(name: str) -> Facts:
    return make.facts(packages={name: make.missing(f"not installed in {make.PYTHON}")})


def _linked(*gpus: Gpu, nvlink: bool, read: str = "ok") -> GpuFacts:
    """These GPUs, and every pair of them with or without NVLink."""
    links = tuple(
        PeerLink(one=one.uuid, other=other.uuid, pcie="PHB", nvlink=nvlink, read=read, write="ok")
        for one, other in itertools.combinations(gpus, 2)
    )
    return make.gpu_facts(*gpus, links=links)


def _pair(*, nvlink: bool, read: str = "ok", **changes) -> Facts:
    return make.facts(gpus=_linked(*(make.gpu(index=index, **changes) for index in range(2)), nvlink=nvlink, read=read))


def _three(*, nvlink: bool) -> GpuFacts:
    return _linked(*(make.gpu(index=index) for index in range(3)), nvlink=nvlink)


def _contained(environment: dict[str, str], gpus: GpuFacts | None = None, **changes) -> Facts:
    """A container with these properties of the system."""
    facts = make.facts(gpus=gpus or make.gpu_facts(), environment=environment)
    return replace(facts, system=replace(facts.system, container="docker", **changes))


RAISES = "import flashinfer raises RuntimeError: flashinfer-cubin version (0.6.13) does not match"
IGNORED = "the package is ignored: Ignoring incompatible flashinfer-cubin package"
DISABLED = "nothing, because FLASHINFER_DISABLE_VERSION_CHECK is set: the package is used as it is"
HEALTHY = make.facts()
NO_CUDNN = "cuDNN is not available. Please install cuDNN to use FP8 GEMM functions."
NO_CHECKSUMS = "Failed to get checksums.txt from 55bba5/batched_gemm-b3c1646-c111d7c/checksums.txt"
PAIR_HANGS = "GPU 0 -> GPU 1, 4 bytes, written by GPU 0 (memcpy): hangs: nothing came back within 10 s"
NO_PEER_ACCESS = "GPU 0 and GPU 1: the driver reports no peer access"
NOT_TRACED = "rank 0: RuntimeError: pidfd_getfd(pidfd=40, fd=35) failed with errno 1: Operation not permitted."
NO_PIDFD = "rank 0: RuntimeError: pidfd_getfd(pidfd=40, fd=35) failed with errno 38: Function not implemented."
TWO_GPUS = make.gpu_facts(make.gpu(), make.gpu(index=1))
NO_LINK = {"cudart": make.absent("libcudart.so is in none of: /usr/local/lib64"), "cuda": "/usr/lib/libcuda.so"}
NO_STUB = {"cudart": "/usr/local/cuda/lib64/libcudart.so", "cuda": make.absent("libcuda.so is in none of: /usr/lib")}
STALE = dict.fromkeys(("norm", "sampling"), "cuda_home = /usr/local; now /usr/local/cuda-13.0")
WRAPPER = make.nvcc(home="/usr/local", found_by="PATH")
WRAPPED = _toolkit(
    jit=make.jit(home="/usr/local", found_by="which nvcc", nvcc=WRAPPER, compiler=WRAPPER, libraries=NO_LINK),
    others=(make.nvcc(found_by="/usr/local/cuda*"),),
)
MISMATCHED = make.no_gpus(
    "the driver's libraries (580.159.04) do not match the loaded kernel driver (580.95.05), "
    "as after a driver update without a reboot: reboot"
)
NO_CUBLAS_H = {"cublasLt.h": make.absent("cublasLt.h is in none of: /usr/local/cuda/include")}
LACKS_HEADER = make.cell(
    Ending.RAISED, Stage.IMPORTED, detail="norm.cu:3: fatal error: cublasLt.h: No such file or directory"
)
LACKS_CUBLAS = make.cell(
    Ending.RAISED, Stage.IMPORTED, detail="/usr/bin/ld: cannot find -lcublas: No such file or directory"
)
LACKS_CUDART = make.cell(
    Ending.RAISED, Stage.IMPORTED, detail="/usr/bin/ld: cannot find -lcudart: No such file or directory"
)
NO_NVCC_ON_PATH = make.absent("there is no nvcc on PATH")
OLD_NVCC = make.nvcc("12.6", architectures=("sm_80", "sm_90"))
BF16_FAILS = make.cell(Ending.RAISED, Stage.BUILT, "bf16", detail="MLIRError")
WIDTH_CRASHES = make.cell(Ending.RAISED, Stage.BUILT, "bf16_d3420", detail="CUDA error: misaligned address")
WIDTH_WORKS = make.cell(variant="bf16_d3420")
CAP_IGNORED = make.cell(
    Ending.WRONG,
    Stage.RAN,
    "fa2_softcap_orders_d64",
    detail="the soft cap is ignored: the numbers are those without it",
)
CAP_REFUSED = make.cell(variant="fa2_softcap_orders_d64")
UNWRITTEN = make.cell(
    Ending.WRONG,
    Stage.RAN,
    "linear",
    detail="linear, 1 rows of bf16, global scale a power of two: not one byte of the values was written",
)
MISPLACED = make.cell(
    Ending.WRONG,
    Stage.RAN,
    "linear",
    detail="linear, 1 rows of bf16, global scale a power of two: 3 of 20 scales are wrong, in 1 of 1 rows",
)
CUDA_WORKS, CUDA_FAILS = make.cell(variant="cuda_bf16"), make.cell(Ending.WRONG, Stage.RAN, "cuda_bf16")


def _cell(probe: str, *cells: CellOutcome) -> Outcome:
    return make.outcome(probe, cells=cells)


EXAMPLES: dict[str, Example] = {
    "flashinfer-not-installed": Example(
        make.facts(flashinfer=make.missing("not installed"), packages={"flashinfer-python": make.missing("not there")}),
        HEALTHY,
    ),
    "torch-not-installed": Example(_absent("torch"), HEALTHY),
    "flashinfer-installed-twice": Example(
        make.facts(
            packages={"flashinfer-python": make.package("flashinfer-python", "0.7.2", shadowed=("0.5.2 in /x",))}
        ),
        make.facts(packages={"torch": make.package("torch", "2.14.0", shadowed=("2.9.0 in /x",))}),
    ),
    "flashinfer-cubin-breaks-import": Example(
        _checked("flashinfer-cubin", RAISES), _checked("flashinfer-cubin", IGNORED)
    ),
    "flashinfer-cubin-ignored": Example(_checked("flashinfer-cubin", IGNORED), _checked("flashinfer-cubin", RAISES)),
    "flashinfer-jit-cache-breaks-import": Example(
        _checked("flashinfer-jit-cache", RAISES), _checked("flashinfer-cubin", RAISES)
    ),
    "flashinfer-jit-cache-ignored": Example(
        _checked("flashinfer-jit-cache-sm90a", IGNORED), _checked("flashinfer-jit-cache", IGNORED, ok=True)
    ),
    "flashinfer-version-check-disabled": Example(
        _checked("flashinfer-cubin", DISABLED, disabled=True), _checked("flashinfer-cubin", RAISES)
    ),
    "torch-without-cuda": Example(
        make.facts(packages={"torch": "2.14.0+cpu"}, toolkit=make.toolkit(torch_cuda=make.missing("a CPU build"))),
        make.facts(
            packages={"torch": "2.14.0+cpu"},
            toolkit=make.toolkit(torch_cuda=make.missing("a CPU build")),
            gpus=make.no_gpus(),
        ),
    ),
    "jit-cache-for-other-cuda": Example(_toolkit(jit_cache_cuda="12.9"), _toolkit(jit_cache_cuda="13.0")),
    "nvcc-not-found": Example(
        make.facts(toolkit=make.without_nvcc()),
        make.facts(toolkit=make.without_nvcc(), flashinfer=make.flashinfer(jit_cache_modules=("norm", "sampling"))),
    ),
    "nvcc-not-taken": Example(
        make.facts(toolkit=make.without_nvcc(others=(make.nvcc(),))), make.facts(toolkit=make.without_nvcc())
    ),
    "nvcc-does-not-answer": Example(
        _jit(
            nvcc=make.nvcc(home="/usr/local/cuda-13.0", version=SILENT),
            compiler=make.nvcc(home="/usr/local/cuda-13.0", version=SILENT),
        ),
        _jit(nvcc=make.nvcc(home="/usr/local/cuda-13.0", version=FAILED)),
    ),
    "host-compiler-does-not-answer": Example(
        _toolkit(host_compiler_version=make.missing("c++ did not answer --version within 5 s")),
        _toolkit(host_compiler_version=make.missing("c++ --version says nothing (exit code 1)")),
    ),
    "cuda-home-derived-from-nvcc-wrapper": Example(
        WRAPPED, _jit(home="/usr/local/cuda", found_by="which nvcc", nvcc=make.nvcc(home="/usr/local/cuda"))
    ),
    "toolkit-lacks-link-libraries": Example(_jit(libraries=NO_STUB), WRAPPED),
    "toolkit-lacks-headers": Example(_jit(headers={"cuda_runtime.h": make.absent("no cuda_runtime.h")}), HEALTHY),
    "flashinfer-nvcc-and-gates-differ": Example(
        make.facts(
            environment={"FLASHINFER_NVCC": "/opt/cuda-12.9/bin/nvcc"},
            toolkit=make.toolkit("12.6", jit=make.jit("12.6", compiler=make.nvcc("12.9", "/opt/cuda-12.9"))),
        ),
        make.facts(
            environment={"FLASHINFER_NVCC": "/opt/cuda-13.0/bin/nvcc"},
            toolkit=make.toolkit(jit=make.jit(compiler=make.nvcc("13.0", "/opt/cuda-13.0"))),
        ),
    ),
    "nvcc-too-old-for-gpu": Example(
        make.facts(
            gpus=make.gpu_facts(make.gpu(sm=103)),
            toolkit=make.toolkit("12.6", jit=make.jit("12.6", compiler=OLD_NVCC)),
            flashinfer=make.flashinfer(architectures=("103a",)),
        ),
        make.facts(toolkit=make.toolkit("12.6", jit=make.jit("12.6", compiler=OLD_NVCC))),
    ),
    "nvcc-too-old-for-sm12x": Example(
        _flashinfer(
            architectures=make.missing('FlashInfer logs "SM 12.x requires CUDA >= 12.9" and has no architecture')
        ),
        _flashinfer(architectures=make.missing("FlashInfer has no architecture to build for: no driver")),
    ),
    # One nvcc that is too old, seen at three places, and what it leaves behind.
    "fp8-block-moe-refused-below-cuda-12-8": Example(_with_cuda("12.6", "0.5.3"), _with_cuda("12.8", "0.5.3")),
    "b12x-refused-below-cuda-13": Example(
        replace(_with_cuda("12.9", "0.6.9"), gpus=make.gpu_facts(make.gpu(sm=120))),
        replace(_with_cuda("13.0", "0.6.9"), gpus=make.gpu_facts(make.gpu(sm=120))),
    ),
    "experts-left-out-on-sm11x-and-sm12x": Example(
        make.facts(packages={"vllm": "0.15.0"}, gpus=make.gpu_facts(make.gpu(sm=120))),
        make.facts(packages={"vllm": "0.15.1"}, gpus=make.gpu_facts(make.gpu(sm=120))),
    ),
    "mxfp4-moe-left-out-below-cuda-12-8": Example(_with_cuda("12.6", "0.6.16.post3"), _with_cuda("12.6", "0.6.16")),
    "allreduce-fusion-needs-newer-cccl": Example(
        _with_cuda("12.6", "0.5.3", cccl="2.5.0"), _with_cuda("12.6", "0.6.8", cccl="2.5.0")
    ),
    "old-builds-survive-new-cuda-home": Example(
        _with_cuda("12.6", "0.6.7.post3", cached_modules=("norm",)),
        _with_cuda("12.6", "0.6.12", cached_modules=("norm",)),
    ),
    "sinks-drop-soft-cap": Example(
        HEALTHY, HEALTHY, (_cell("attention.sinks", CAP_IGNORED),), (_cell("attention.sinks", CAP_REFUSED),)
    ),
    "fp8-cache-takes-fa3-that-does-not-compile": Example(
        make.facts(packages={"flashinfer-python": "0.5.3"}),
        make.facts(packages={"flashinfer-python": "0.6.7.post3"}),
        (_cell("attention.fp8_kv", make.cell(Ending.RAISED, Stage.IMPORTED, "auto_bf16q_d128")),),
        (_cell("attention.fp8_kv", make.cell(Ending.RAISED, Stage.IMPORTED, "auto_bf16q_d128")),),
    ),
    "fp8-query-with-window-hangs": Example(
        HEALTHY,
        HEALTHY,
        (_cell("attention.fp8_kv", make.cell(Ending.TIMED_OUT, Stage.BUILT, "fa3_fp8q_window_d128")),),
        (_cell("attention.fp8_kv", make.cell(Ending.TIMED_OUT, Stage.BUILT, "fa3_fp8q_d128")),),
    ),
    "sink-module-key-lacks-head-size": Example(
        HEALTHY,
        HEALTHY,
        (_cell("attention.sinks", make.cell(variant="fa2_d64")),),
        (_cell("attention.sinks", CAP_IGNORED),),
    ),
    "two-empty-states-merge-to-nan": Example(
        HEALTHY,
        HEALTHY,
        (
            _cell(
                "attention.cascade", _wrong("empty_merge_state", "4224 of 151552 elements are wrong, 4224 of them NaN")
            ),
        ),
        (_cell("attention.cascade", _wrong("empty_merge_state", "4224 of 151552 elements are wrong, 0 of them NaN")),),
    ),
    "mla-causal-tile-loses-own-key": Example(
        HEALTHY,
        HEALTHY,
        (_cell("attention.mla", _wrong("fa3_h40", "3674 of 327680 elements are wrong")),),
        (_cell("attention.mla", _wrong("fa3_h16", "3674 of 327680 elements are wrong"), make.cell(variant="fa3_h40")),),
    ),
    "prompt-parts-merged-with-wrong-base": Example(
        _vllm("0.28.0"),
        _vllm("0.33.0"),
        (_cell("attention.ragged", make.cell(variant="fa3_d128")),),
        (_cell("attention.ragged", make.cell(variant="fa3_d128")),),
    ),
    "xqa-decoding-drops-soft-cap": Example(
        _vllm("0.33.0"),
        _vllm("0.20.2"),
        (_cell("attention.soft_cap", make.cell(variant="fa3_d128")),),
        (_cell("attention.soft_cap", make.cell(variant="fa3_d128")),),
    ),
    "flashinfer-requirement-not-installed": Example(
        _requiring("nvidia-cudnn-frontend>=1.13.0", "nvidia-cudnn-frontend"),
        _requiring("nvidia-cudnn-frontend>=1.13.0; extra == 'cu12'", "nvidia-cudnn-frontend"),
        (_cell("gemm.bmm_fp8", make.cell(Ending.RAISED, Stage.BUILT, "auto_bf16", detail=NO_CUDNN)),),
        (_cell("gemm.bmm_fp8", make.cell(Ending.RAISED, Stage.BUILT, "auto_bf16", detail=NO_CUDNN)),),
    ),
    "window-without-mask-loses-keys": Example(
        HEALTHY,
        HEALTHY,
        (_cell("attention.window", make.cell(Ending.WRONG, Stage.RAN, "fa2_noncausal_d128")),),
        (_cell("attention.window", make.cell(Ending.WRONG, Stage.RAN, "fa2_d128")),),
    ),
    "unoffered-head-size-is-not-refused": Example(
        HEALTHY,
        HEALTHY,
        (_cell("attention.prefill", make.cell(Ending.WRONG, Stage.RAN, "fa2_d80")),),
        (_cell("attention.prefill", make.cell(Ending.WRONG, Stage.RAN, "fa2_d128"), make.cell(variant="fa2_d80")),),
    ),
    "peer-data-does-not-arrive": Example(
        make.facts(gpus=TWO_GPUS),
        make.facts(gpus=TWO_GPUS),
        (_cell("comm.peer_transfer", make.cell(Ending.WRONG, Stage.RAN, "peer_copy")),),
        (_cell("comm.peer_transfer", make.cell(Ending.RAISED, Stage.RAN, "ipc")),),
    ),
    "peer-transfer-hangs": Example(
        make.facts(gpus=TWO_GPUS),
        make.facts(gpus=TWO_GPUS),
        (_cell("comm.peer_transfer", make.cell(Ending.RAISED, Stage.BUILT, "ipc", detail=PAIR_HANGS)),),
        (_cell("comm.peer_transfer", make.cell(Ending.RAISED, Stage.BUILT, "ipc", detail=NO_PEER_ACCESS)),),
    ),
    "descriptors-of-other-ranks-forbidden": Example(
        make.facts(gpus=TWO_GPUS),
        make.facts(gpus=TWO_GPUS),
        (_cell("comm.all2all", make.cell(Ending.RAISED, Stage.BUILT, "two_sided_bf16", detail=NOT_TRACED)),),
        (_cell("comm.all2all", make.cell(Ending.RAISED, Stage.BUILT, "two_sided_bf16", detail=NO_PIDFD)),),
    ),
    "iommu-translates-between-gpus": Example(
        _pair(nvlink=False, iommu="DMA-FQ"),
        _pair(nvlink=False, iommu="DMA-FQ"),
        (_cell("comm.peer_transfer", make.cell(Ending.NOT_RUN, Stage.NONE, "peer_copy")),),
        (_cell("comm.peer_transfer", make.cell(variant="peer_copy"), make.cell(variant="ipc")),),
    ),
    "acs-redirects-between-gpus": Example(
        _pair(nvlink=False, acs_bridges=("0000:00:03.1",)),
        _pair(nvlink=True, acs_bridges=("0000:00:03.1",)),
        (_cell("comm.peer_transfer", make.cell(Ending.RAISED, Stage.IMPORTED, "ipc", detail=PAIR_HANGS)),),
        (_cell("comm.peer_transfer", make.cell(Ending.RAISED, Stage.IMPORTED, "ipc", detail=PAIR_HANGS)),),
    ),
    "gpu-has-fewer-nvlinks": Example(
        _gpus(make.gpu(nvlinks=(True,) * 18), make.gpu(index=1, nvlinks=(True,) * 16 + (False,) * 2)),
        _gpus(make.gpu(nvlinks=(True,) * 18), make.gpu(index=1, name="NVIDIA H200 NVL", nvlinks=(True,) * 6)),
    ),
    "more-than-two-gpus-not-all-linked": Example(
        make.facts(gpus=_three(nvlink=False), packages={"vllm": "0.33.0"}),
        make.facts(gpus=_three(nvlink=True), packages={"vllm": "0.33.0"}),
    ),
    "driver-refuses-peer-access": Example(
        _pair(nvlink=False, read="chipset not supported"),
        _pair(nvlink=False),
    ),
    "mig-instances-are-no-peers": Example(_gpus(make.gpu(mig=True)), HEALTHY),
    "gpus-of-several-kinds": Example(
        _gpus(make.gpu(), make.gpu(sm=120, index=1)), _gpus(make.gpu(), make.gpu(sm=120, index=1, visible=False))
    ),
    "visible-devices-named-by-uuid": Example(
        make.facts(gpus=TWO_GPUS, packages={"vllm": "0.20.2"}, environment={"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}),
        make.facts(gpus=TWO_GPUS, packages={"vllm": "0.25.1"}, environment={"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}),
    ),
    "rank-sees-its-own-gpu-only": Example(
        make.facts(
            gpus=make.gpu_facts(make.gpu(), make.gpu(index=1, visible=False)),
            environment={"CUDA_VISIBLE_DEVICES": "0", "LOCAL_RANK": "0"},
        ),
        make.facts(
            gpus=make.gpu_facts(make.gpu(), make.gpu(index=1, visible=False)), environment={"CUDA_VISIBLE_DEVICES": "0"}
        ),
    ),
    "ranks-in-containers-of-their-own": Example(
        _contained({"WORLD_SIZE": "4"}, own_pid_namespace=True),
        _contained({"WORLD_SIZE": "4"}, own_pid_namespace=False),
    ),
    "shared-memory-too-small-for-ranks": Example(
        _contained({}, gpus=TWO_GPUS, shm_mib=64), _contained({}, gpus=TWO_GPUS, shm_mib=1024)
    ),
    "rank-was-stopped": Example(
        make.facts(gpus=TWO_GPUS),
        make.facts(gpus=TWO_GPUS),
        (_cell("comm.allreduce", make.cell(Ending.RAISED, Stage.BUILT, "oneshot_bf16", detail=STOPPED)),),
        (_cell("comm.allreduce", make.cell(Ending.RAISED, Stage.BUILT, "oneshot_bf16", detail=HUNG)),),
    ),
    "two-shot-allreduce-barrier-lets-through": Example(
        make.facts(gpus=TWO_GPUS, packages={"flashinfer-python": "0.6.8.post1", "vllm": "0.20.2"}),
        make.facts(gpus=TWO_GPUS, packages={"flashinfer-python": "0.7.2.post1", "vllm": "0.33.0"}),
        silent_outcomes=(_cell("comm.allreduce_fusion", make.cell(Ending.WRONG, Stage.RAN, "oneshot_bf16")),),
    ),
    "one-shot-allreduce-adds-absent-lanes": Example(
        make.facts(packages={"flashinfer-python": "0.5.3"}),
        make.facts(packages={"flashinfer-python": "0.6.15"}),
        (_cell("comm.allreduce_fusion", make.cell(Ending.WRONG, Stage.RAN, "oneshot_bf16_h2880")),),
        (_cell("comm.allreduce_fusion", make.cell(Ending.WRONG, Stage.RAN, "oneshot_bf16_h2880")),),
    ),
    "artifact-download-for-absent-kernel": Example(
        HEALTHY,
        make.facts(gpus=make.gpu_facts(make.gpu(sm=100))),
        (make.outcome("moe.trtllm", Ending.RAISED, Stage.IMPORTED, detail=NO_CHECKSUMS, error="AssertionError"),),
        (make.outcome("moe.trtllm", Ending.RAISED, Stage.IMPORTED, detail=NO_CHECKSUMS, error="AssertionError"),),
    ),
    "block-quantisers-write-nothing-before-sm100": Example(
        HEALTHY, HEALTHY, (_cell("quant.fp4", UNWRITTEN),), (_cell("quant.fp4", MISPLACED),)
    ),
    "fp4-quantisers-refuse-gpus-before-sm90": Example(
        make.facts(gpus=make.gpu_facts(make.gpu(sm=89))),
        HEALTHY,
        (make.outcome("quant.fp4", Ending.RAISED, Stage.IMPORTED, detail="Invalid backend: 89", error="ValueError"),),
        (make.outcome("quant.fp4", Ending.RAISED, Stage.IMPORTED, detail="Invalid backend: 89", error="ValueError"),),
    ),
    "block-scale-gemm-clips-bf16-weight": Example(
        HEALTHY,
        HEALTHY,
        (_cell("gemm.fp8_block_sm90", make.cell(Ending.WRONG, Stage.RAN, "bf16_weight")),),
        (_cell("gemm.fp8_block_sm90", make.cell(Ending.WRONG, Stage.RAN, "swap_ab")),),
    ),
    "block-scale-gemm-misreads-scales": Example(
        HEALTHY,
        HEALTHY,
        (_cell("gemm.fp8_block_sm90", make.cell(Ending.WRONG, Stage.RAN, "fp8_input")),),
        (_cell("gemm.fp8_block_sm90", make.cell(Ending.WRONG, Stage.RAN, "fp8_input_column_major")),),
    ),
    "nvcc-major-differs-from-torch": Example(_toolkit("12.9"), _toolkit("13.1")),
    "ninja-not-found": Example(
        _toolkit(ninja=make.missing("no ninja on PATH")),
        make.facts(
            toolkit=make.toolkit(ninja=make.missing("no ninja on PATH")),
            flashinfer=make.flashinfer(jit_cache_modules=("norm",)),
        ),
    ),
    "host-compiler-not-found": Example(_toolkit(host_compiler=make.missing("c++ is not on PATH")), HEALTHY),
    "runtime-library-of-other-cuda-major": Example(
        make.facts(libraries={"cublas": make.library("cublas", "12.8.4.1", origin="LD_LIBRARY_PATH")}),
        make.facts(libraries={"cudnn": make.library("cudnn", "9.13.0"), "cudart": make.missing("not found")}),
    ),
    "driver-too-old-for-torch": Example(_gpus(driver="570.124", cuda="12.8"), _gpus(driver="580.95", cuda="13.0")),
    "driver-too-old-for-gpu": Example(
        make.facts(gpus=make.gpu_facts(make.gpu(sm=103), cuda="12.8"), toolkit=make.toolkit("12.9", torch_cuda="12.8")),
        make.facts(gpus=make.gpu_facts(make.gpu(sm=103), cuda="12.9"), toolkit=make.toolkit("12.9", torch_cuda="12.8")),
    ),
    "driver-too-old-for-nvcc": Example(
        make.facts(gpus=make.gpu_facts(cuda="12.8"), toolkit=make.toolkit("13.0", torch_cuda="12.8")),
        make.facts(gpus=make.gpu_facts(cuda="12.4"), toolkit=make.toolkit("12.8", torch_cuda="12.8")),
    ),
    "torch-cuda-newer-than-driver": Example(
        make.facts(gpus=make.gpu_facts(cuda="12.4"), toolkit=make.toolkit("12.8", torch_cuda="12.8")),
        make.facts(gpus=make.gpu_facts(cuda="12.8"), toolkit=make.toolkit("12.8", torch_cuda="12.8")),
    ),
    "driver-libraries-do-not-match-kernel": Example(make.facts(gpus=MISMATCHED), make.facts(gpus=make.no_gpus())),
    "no-gpu-here": Example(make.facts(gpus=make.no_gpus()), _arch_list("9.0a", ("90a",), gpus=make.no_gpus())),
    "no-gpu-of-the-named-architecture": Example(
        _arch_list("9.0a", ("90a",), gpus=make.no_gpus()),
        make.facts(gpus=make.no_gpus()),
    ),
    "cuda-visible-devices-hides-all": Example(
        make.facts(environment={"CUDA_VISIBLE_DEVICES": ""}, gpus=make.gpu_facts(make.gpu(visible=False))),
        make.facts(environment={"CUDA_VISIBLE_DEVICES": "0"}),
    ),
    "cuda-does-not-start": Example(
        _gpus(cuda_order=make.missing("cuInit: system not yet initialized")), make.facts(gpus=make.no_gpus())
    ),
    "arch-list-breaks-import": Example(
        _arch_list("9.0;10.0", make.missing("import flashinfer raises ValueError: too many values to unpack")),
        _arch_list("9.0a 10.0a", ("90a", "100a")),
    ),
    "arch-list-malformed": Example(
        _arch_list("9.0+PTX", ("90+PTX",)),
        _arch_list("9.0;10.0", make.missing("import flashinfer raises ValueError: too many values to unpack")),
    ),
    "arch-list-misses-gpu": Example(_arch_list("10.0a", ("100a",)), _arch_list("8.0 9.0a", ("80", "90a"))),
    "gpu-comes-with-another-cpu": Example(
        make.facts(gpus=make.gpu_facts(make.gpu(name="NVIDIA GH200 480GB"))),
        make.facts(
            gpus=make.gpu_facts(make.gpu(name="NVIDIA GH200 480GB")),
            system=replace(make.facts().system, machine="aarch64"),
        ),
    ),
    "gpus-older-than-flashinfer-takes": Example(
        make.facts(gpus=make.gpu_facts(make.gpu(sm=70))), make.facts(gpus=make.gpu_facts(make.gpu(sm=70), make.gpu()))
    ),
    "arch-list-lacks-suffix": Example(_arch_list("9.0", ("90",)), _arch_list("9.0", ("90a",))),
    "cache-path-breaks-ninja": Example(
        _flashinfer(cache_base="my caches/.cache/flashinfer"), _flashinfer(cache_base="/home/me/.cache/flashinfer")
    ),
    "flashinfer-cache-not-writable": Example(_flashinfer(cache_writable=False), _flashinfer(cache_owner=0)),
    "flashinfer-cache-of-other-user": Example(_flashinfer(cache_owner=0), HEALTHY),
    "cached-build-uses-other-toolkit": Example(
        _flashinfer(stale_modules=STALE, cached_modules=("sampling",)),
        _flashinfer(stale_modules=STALE, cached_modules=("norm",), jit_cache_modules=("sampling",)),
        silent_outcomes=(make.outcome("norm.rmsnorm", Ending.RAISED, Stage.BUILT, detail="wrong"),),
    ),
    "flashinfer-builds-share-ninja-log": Example(
        make.facts(gpus=TWO_GPUS, flashinfer=make.flashinfer("0.5.3", shared_ninja_log=True)),
        make.facts(
            gpus=TWO_GPUS,
            flashinfer=make.flashinfer("0.5.3", shared_ninja_log=True, jit_cache_modules=("norm", "sampling")),
        ),
    ),
    "layernorm-ignores-strides": Example(
        HEALTHY,
        HEALTHY,
        (_cell("norm.layernorm", make.cell(Ending.WRONG, Stage.RAN, "spread_bf16")),),
        (_cell("norm.layernorm", make.cell(Ending.WRONG, Stage.RAN, "cuda_bf16")),),
    ),
    "cute-dsl-norm-fails": Example(
        HEALTHY,
        HEALTHY,
        (make.outcome(cells=(BF16_FAILS, CUDA_WORKS)),),
        (make.outcome(cells=(BF16_FAILS, CUDA_FAILS)),),
    ),
    "module-header-not-found": Example(
        HEALTHY, HEALTHY, (make.outcome(cells=(LACKS_HEADER,)),), (make.outcome(cells=(LACKS_CUBLAS,)),)
    ),
    "python-module-not-installed": Example(
        HEALTHY,
        HEALTHY,
        (make.outcome(cells=(make.cell(Ending.RAISED, detail="ModuleNotFoundError: No module named 'tqdm'"),)),),
        (make.outcome(cells=(make.cell(Ending.RAISED, detail="ModuleNotFoundError: No module named 'cudnn'"),)),),
    ),
    "first-start-compiles-moe-module": Example(
        HEALTHY,
        HEALTHY,
        (
            make.outcome(
                "moe.bf16", whole_module="fused_moe_90 is not compiled: 181 objects, estimated 9 min with 64 jobs"
            ),
        ),
        (make.outcome("moe.bf16"),),
    ),
    "attention-compiled-in-part": Example(
        HEALTHY,
        HEALTHY,
        (
            make.outcome(
                "attention.prefill", whole_module="batch_prefill_sm90 is not compiled: 10 objects, estimated 1 min"
            ),
        ),
        (make.outcome("attention.prefill", whole_module="fused_moe_90 is not compiled: 181 objects"),),
    ),
    "module-library-not-found": Example(
        HEALTHY, HEALTHY, (make.outcome(cells=(LACKS_CUBLAS,)),), (make.outcome(cells=(LACKS_CUDART,)),)
    ),
    "toolkit-lacks-module-headers": Example(
        _jit(module_headers=NO_CUBLAS_H), _jit(module_headers={"cublasLt.h": "/usr/local/cuda/include/cublasLt.h"})
    ),
    "torch-cpu-build": Example(
        make.facts(
            packages={"torch": "2.14.0+cpu"},
            gpus=make.no_gpus(),
            toolkit=make.toolkit(torch_cuda=make.missing("a CPU build")),
        ),
        make.facts(gpus=make.no_gpus()),
    ),
    "act-and-mul-misaligned": Example(
        make.facts(packages={"flashinfer-python": "0.5.3"}),
        make.facts(packages={"flashinfer-python": "0.5.3"}),
        (make.outcome("activation.silu_and_mul", cells=(WIDTH_CRASHES,)),),
        (make.outcome("activation.silu_and_mul", cells=(WIDTH_WORKS,)),),
    ),
    "sampler-repeats-random-numbers": Example(
        make.facts(packages={"flashinfer-python": "0.5.3"}), make.facts(packages={"flashinfer-python": "0.6.0"})
    ),
    # What the installed vLLM reads and refuses.
    "has-flashinfer-false-without-nvcc": Example(
        _vllm("0.28.0", toolkit=make.toolkit(nvcc_on_path=NO_NVCC_ON_PATH)),
        _vllm("0.33.0", toolkit=make.toolkit(nvcc_on_path=NO_NVCC_ON_PATH)),
    ),
    "has-flashinfer-false-without-nvcc-or-ninja": Example(
        _vllm("0.33.0", toolkit=make.toolkit(ninja=make.missing("no ninja on PATH"))),
        _vllm(
            "0.33.0",
            toolkit=make.toolkit(ninja=make.missing("no ninja on PATH")),
            environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"},
        ),
    ),
    "sinks-refused-by-vllm": Example(_vllm("0.28.0"), _vllm("0.33.0")),
    "forced-flashinfer-refuses-sinks": Example(
        _vllm("0.14.1", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
        _vllm("0.17.1", environment={"VLLM_ATTENTION_BACKEND": "FLASHINFER"}),
    ),
    "sinks-need-artifactory": Example(
        _vllm("0.28.0", gpus=make.gpu_facts(make.gpu(sm=121))), _vllm("0.25.1", gpus=make.gpu_facts(make.gpu(sm=121)))
    ),
    "sinks-on-sm90-need-artifactory": Example(
        _vllm("0.33.0"), _vllm("0.33.0", environment={"VLLM_HAS_FLASHINFER_CUBIN": "1"})
    ),
}
