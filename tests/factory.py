"""Plain facts and outcomes for tests: a healthy machine with one H200 by default, everything else by change."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor.facts.packages import Survey
from fi_doctor.model import (
    Calls,
    Cell,
    CellOutcome,
    Depth,
    Driver,
    Ending,
    Evidence,
    Facts,
    FeatureRow,
    FlashInfer,
    Gpu,
    GpuFacts,
    Interpreter,
    JitToolkit,
    Library,
    Misfit,
    MisfitKind,
    Missing,
    Nvcc,
    Outcome,
    Package,
    PeerLink,
    PlannedProbe,
    ProbeSpec,
    Requires,
    Scope,
    Stage,
    SystemFacts,
    ToolkitFacts,
    Verdict,
    VersionCheck,
    Vllm,
)

PYTHON = "/venv/bin/python"
SITE = "/venv/lib/python3.12/site-packages"
UNSET = Missing(reason="CUDA_VISIBLE_DEVICES is not set")
SYMBOLS = {
    "flashinfer.norm.rmsnorm": "norm/__init__.py:642",
    "flashinfer.norm.fused_add_rmsnorm": "norm/__init__.py:769",
    "flashinfer.activation.silu_and_mul": "activation.py:91",
    "flashinfer.sampling.top_k_top_p_sampling_from_logits": "sampling.py:1659",
    "flashinfer.sampling.top_k_top_p_sampling_from_probs": "sampling.py:1827",
    "flashinfer.page.append_paged_kv_cache": "page.py:580",
}


def missing(reason: str = "not read") -> Missing:
    return Missing(reason=reason)


def absent(reason: str = "not there") -> Missing:
    """What was looked for and is not there."""
    return Missing(reason=reason, absent=True)


def gpu(*, sm: int | Missing = 90, index: int = 0, visible: bool = True, **changes) -> Gpu:
    """One GPU; `index` in both NVML's and CUDA's order."""
    base = Gpu(
        nvml_index=index,
        cuda_index=index if visible else missing("CUDA_VISIBLE_DEVICES hides it"),
        uuid=f"GPU-{index:08d}",
        name="NVIDIA H200" if sm == 90 else f"a GPU of SM{sm}",
        sm=sm,
        memory_total_mib=143771,
        memory_free_mib=143000,
        mig=False,
        pci_bus=f"00000000:{index:02x}:00.0",
    )
    return replace(base, **changes)


def link(one: int, other: int, **changes) -> PeerLink:
    """What lies between two GPUs of these numbers: NVLink, and nothing in the way."""
    ends = {"one": f"GPU-{one:08d}", "other": f"GPU-{other:08d}"}
    return replace(PeerLink(**ends, pcie="SYS", nvlink=True, read="ok", write="ok"), **changes)


def gpu_facts(*gpus: Gpu, driver: str | Missing = "580.159.04", cuda: str = "13.0", **changes) -> GpuFacts:
    """These GPUs, by default one H200, under a driver of CUDA 13.0."""
    gpus = gpus or (gpu(),)
    base = GpuFacts(
        driver=driver if isinstance(driver, Missing) else Driver(version=driver, cuda=cuda),
        gpus=gpus,
        visible_devices=UNSET,
        cuda_order=tuple(one.uuid for one in gpus if not isinstance(one.cuda_index, Missing)),
    )
    return replace(base, **changes)


def no_gpus(reason: str = "no NVIDIA driver on this machine") -> GpuFacts:
    gone = missing(reason)
    return GpuFacts(driver=gone, gpus=gone, visible_devices=UNSET, cuda_order=gone)


def nvcc(version: str = "13.0", home: str | None = None, **changes) -> Nvcc:
    home = home or f"/usr/local/cuda-{version}"
    base = Nvcc(
        path=f"{home}/bin/nvcc",
        resolved=f"{home}/bin/nvcc",
        found_by="CUDA_HOME",
        version=version,
        build=f"{version}.88",
        architectures=("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121"),
    )
    return replace(base, **changes)


def jit(version: str = "13.0", home: str | None = None, **changes) -> JitToolkit:
    """A complete toolkit under CUDA_HOME."""
    home = home or f"/usr/local/cuda-{version}"
    base = JitToolkit(
        cuda_home=home,
        found_by="CUDA_HOME",
        nvcc=nvcc(version, home),
        compiler=nvcc(version, home),
        headers={"cuda_runtime.h": f"{home}/include/cuda_runtime.h"},
        libraries={"cudart": f"{home}/lib64/libcudart.so", "cuda": f"{home}/lib64/stubs/libcuda.so"},
        cccl="3.0.1",
    )
    return replace(base, **changes)


def toolkit(version: str = "13.0", **changes) -> ToolkitFacts:
    base = ToolkitFacts(
        jit=jit(version),
        gate_version=version,
        gate_source="nvcc",
        others=(),
        torch_cuda="13.0",
        jit_cache_cuda=missing("flashinfer-jit-cache is not installed"),
        ninja="/usr/bin/ninja",
        host_compiler="/usr/bin/c++",
        host_compiler_version="13.3.0",
    )
    return replace(base, **changes)


def without_nvcc(**changes) -> ToolkitFacts:
    gone = missing("/usr/local/cuda does not exist")
    return toolkit(jit=gone, gate_version="13.0", gate_source="torch.version.cuda", **changes)


def package(name: str, version: str, **changes) -> Package:
    base = Package(
        name=name,
        version=version,
        location=SITE,
        editable=False,
        commit=missing("a wheel"),
        requires=(),
        shadowed=(),
    )
    return replace(base, **changes)


def flashinfer(version: str = "0.7.2.post1", **changes) -> FlashInfer:
    base = FlashInfer(
        root=f"{SITE}/flashinfer",
        version=version,
        commit=missing("not in _build_meta.py"),
        architectures=("90a",),
        architectures_from="GPUs",
        version_checks=(),
        version_check_disabled=False,
        cache_base="/home/user/.cache/flashinfer",
        cache_dir=f"/home/user/.cache/flashinfer/{version}/90a",
        cache_writable=True,
        cache_owner=1000,
        cached_modules=(),
        cubin_dir="/home/user/.cache/flashinfer/cubins",
        cubins=0,
        jit_cache_modules=(),
        jit_cache_architectures=missing("flashinfer-jit-cache is not installed"),
        symbols=dict(SYMBOLS),
    )
    return replace(base, **changes)


def survey(**modules: str | Missing) -> Survey:
    """An interpreter that would import these modules from these files, and has nothing else."""
    return Survey(
        executable=PYTHON,
        version="3.12.4",
        implementation="CPython",
        prefix="/venv",
        base_prefix="/usr",
        sys_path=(SITE,),
        distributions=(),
        modules=modules,
        problems=(),
    )


def vllm(**changes) -> Vllm:
    """The source of a vLLM that registers two variables, one of them for nothing, and reads a third unregistered."""
    base = Vllm(
        root=f"{SITE}/vllm",
        variables={
            "VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB": "envs.py:1337",
            "VLLM_USE_FLASHINFER_SAMPLER": "envs.py:697",
        },
        unread_variables=("VLLM_FLASHINFER_ALLREDUCE_FUSION_THRESHOLDS_MB",),
        flags={"--attention-backend": "engine/arg_utils.py:743"},
        keys={"AttentionConfig.use_trtllm_attention": "config/attention.py:41"},
        other_variables={"VLLM_BATCH_INVARIANT": "model_executor/layers/batch_invariant.py"},
    )
    return replace(base, **changes)


def calls(*misfits: Misfit, **changes) -> Calls:
    """A vLLM that calls two functions of FlashInfer, besides what does not fit."""
    base = Calls(
        files=3,
        fitting=2,
        calls={
            "flashinfer.norm.rmsnorm": ("layernorm.py:7", "layernorm.py:9"),
            "flashinfer.top_k_top_p_sampling_from_logits": ("sampler.py:5",),
        },
        places={
            "flashinfer.norm.rmsnorm": "norm/__init__.py:642",
            "flashinfer.top_k_top_p_sampling_from_logits": "sampling.py:1659",
        },
        names={},
        misfits=misfits,
        unbound=(),
    )
    return replace(base, **changes)


def misfit(kind: MisfitKind = MisfitKind.UNKNOWN_KEYWORD, **changes) -> Misfit:
    base = Misfit(
        kind=kind,
        name="flashinfer.sampling.top_k_top_p_sampling_from_logits",
        caller="sampler.py:5",
        callee="sampling.py:1659",
        text="unexpected keyword argument 'seed'",
    )
    return replace(base, **changes)


def check(package: str, found: str, *, ok: bool = False, effect: str = "the package is ignored") -> VersionCheck:
    return VersionCheck(
        package=package, found=found, expected="exactly 0.7.2.post1", ok=ok, effect=effect, source="jit/env.py:87"
    )


def library(name: str, version: str, **changes) -> Library:
    base = Library(
        name=name,
        path=f"{SITE}/nvidia/cu13/lib/lib{name}.so.13",
        version=version,
        origin="wheel",
        package=f"nvidia-{name} {version}",
        copies=(),
    )
    return replace(base, **changes)


def facts(*, packages: dict[str, str | Package | Missing] | None = None, **changes) -> Facts:
    """A healthy machine. `packages` adds to the installed ones, by version, or takes one away with Missing."""
    installed: dict[str, str | Package | Missing] = {
        "torch": "2.14.0+cu130",
        "flashinfer-python": "0.7.2.post1",
        "flashinfer-cubin": missing(f"not installed in {PYTHON}"),
        "flashinfer-jit-cache": missing(f"not installed in {PYTHON}"),
        "vllm": missing(f"not installed in {PYTHON}"),
        **(packages or {}),
    }
    base = Facts(
        interpreter=Interpreter(
            executable=PYTHON,
            version="3.12.4",
            implementation="CPython",
            prefix="/venv",
            pythonpath=missing("PYTHONPATH is not set"),
            sys_path=(SITE,),
            is_own=True,
        ),
        gpus=gpu_facts(),
        toolkit=toolkit(),
        libraries={"cudart": library("cudart", "13.0.96"), "cublas": library("cublas", "13.1.0.3")},
        packages={name: package(name, of) if isinstance(of, str) else of for name, of in sorted(installed.items())},
        flashinfer=flashinfer(),
        system=SystemFacts(
            os="Ubuntu 24.04.2 LTS",
            kernel="6.8.0-60-generic",
            libc="glibc 2.39",
            machine="x86_64",
            container=missing("no sign of a container"),
            image={},
            cpus=16,
            memory_total_mib=128000,
            memory_available_mib=120000,
            memory_limit_mib=missing("no limit"),
            shm_mib=64000,
            uid=1000,
        ),
        environment={},
        sources={},
    )
    return replace(base, **changes)


def spec(probe: str = "norm.rmsnorm", feature: str | None = None, **changes) -> ProbeSpec:
    feature = feature or probe
    base = ProbeSpec(
        id=probe,
        feature=feature,
        path=f"/probes/{probe.replace('.', '_')}.py",
        origin="fi-doctor",
        question=f"Does {probe} work?",
        module=feature.partition(".")[0],
        requires=Requires(),
        variants={},
        gpus=0 if feature.startswith("import.") else 1,
        timeout_s=120,
        build_timeout_s=600,
        compiles=("nvcc",),
        has_build=not feature.startswith("import."),
        checks_numbers=not feature.startswith("import."),
    )
    return replace(base, **changes)


def planned(probe: str = "norm.rmsnorm", *, sm: int | Missing = 90, skip: str = "", **changes) -> PlannedProbe:
    """A plan to run a probe; with `skip` a plan to leave it out."""
    of = changes.pop("spec", None) or spec(probe)
    skipped = changes.get("skipped_variants", {})
    base = PlannedProbe(
        spec=of,
        sm=sm,
        gpu_uuids=("GPU-00000000",) if of.gpus else (),
        depth=Depth.STATIC if skip else Depth.RUN,
        variants=tuple(name for name in (of.variants or ("",)) if name not in skipped),
        skipped_variants={},
        skip=skip,
    )
    return replace(base, **changes)


def cell(ending: Ending = Ending.RETURNED, stage: Stage = Stage.VERIFIED, variant: str = "", **changes) -> CellOutcome:
    measured = {"elements": 64} if stage is Stage.VERIFIED else {}
    base = CellOutcome(variant=variant, stage=stage, ending=ending, detail="", measurements=measured)
    return replace(base, **changes)


def outcome(
    probe: str = "norm.rmsnorm",
    ending: Ending = Ending.RETURNED,
    stage: Stage = Stage.VERIFIED,
    *,
    sm: int | Missing = 90,
    detail: str = "",
    error: str = "",
    cells: tuple[CellOutcome, ...] | None = None,
    **changes,
) -> Outcome:
    """How a probe ended on one SM; with `cells` as its variants did."""
    if cells is None:
        cells = (cell(ending, stage, detail=detail, error=error),)
    tried = [one for one in cells if one.ending is not Ending.NOT_RUN]
    bad = next((one for one in tried if one.ending is not Ending.RETURNED), None)
    base = Outcome(
        probe=probe,
        feature=probe,
        sm=sm,
        depth=Depth.RUN,
        stage=min((one.stage for one in tried), key=lambda word: word.rank, default=Stage.NONE),
        ending=bad.ending if bad else Ending.RETURNED if tried else Ending.NOT_RUN,
        detail=bad.detail if bad else "",
        cells=cells,
    )
    return replace(base, **changes)


def row(
    feature: str = "norm.rmsnorm",
    verdict: Verdict = Verdict.WORKS,
    evidence: Evidence = Evidence.VERIFIED,
    *,
    sm: int | Missing = 90,
    why: str = "as it was found",
    **changes,
) -> FeatureRow:
    """A row with one cell of the same verdict."""
    one = Cell(variant="", verdict=verdict, evidence=evidence, scope=Scope.FULL, probe=feature, why=why)
    base = FeatureRow(
        feature=feature,
        sm=sm,
        verdict=verdict,
        evidence=evidence,
        scope=Scope.FULL,
        why=why,
        needs_gpu=not feature.startswith("import."),
        vllm="",
        cells=(one,),
    )
    return replace(base, **changes)
