"""Reports in plain values for the tests of reports/: invented machines, each for one way to look at a report."""

from __future__ import annotations

from msgspec.structs import replace

from fi_doctor.diagnosis.gate import decide
from fi_doctor.model import (
    SCHEMA,
    ActionKind,
    Cell,
    CellOutcome,
    Depth,
    Doctor,
    Driver,
    Ending,
    Evidence,
    Facts,
    FeatureRow,
    Finding,
    FlashInfer,
    Gpu,
    GpuFacts,
    Interpreter,
    JitToolkit,
    Library,
    Missing,
    Nvcc,
    Outcome,
    Package,
    PlannedProbe,
    ProbeSpec,
    Recommendation,
    Report,
    Request,
    Requires,
    Scope,
    Severity,
    Stage,
    SystemFacts,
    ToolkitFacts,
    Verdict,
)

FEATURES = (
    "activation.silu_and_mul",
    "import.flashinfer",
    "import.torch",
    "kv.append_paged",
    "norm.fused_add_rmsnorm",
    "norm.rmsnorm",
    "sampling.top_k_top_p",
)
NO_NVML = Missing(reason="no libnvidia-ml.so.1 on this machine")
AGREES = "numbers agree with the float32 reference"


def gpu(index=0, name="NVIDIA H200", sm=90):
    return Gpu(
        nvml_index=index,
        cuda_index=index,
        uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
        name=name,
        sm=sm,
        memory_total_mib=143771,
        memory_free_mib=143200,
        mig=False,
        pci_bus=f"00000000:{index:02}:00.0",
    )


def package(name, version, **fields):
    values = {"editable": False, "commit": Missing(reason="no direct_url.json"), "requires": (), "shadowed": ()}
    return Package(name=name, version=version, location="/venv/lib/python3.12/site-packages", **(values | fields))


def gpu_facts(*gpus):
    return GpuFacts(
        driver=Driver(version="580.159.04", cuda="13.0"),
        gpus=gpus,
        visible_devices=Missing(reason="CUDA_VISIBLE_DEVICES is not set"),
        cuda_order=tuple(each.uuid for each in gpus),
    )


def no_gpu_facts():
    missing = Missing(reason="CUDA_VISIBLE_DEVICES is not set")
    return GpuFacts(driver=NO_NVML, gpus=NO_NVML, visible_devices=missing, cuda_order=NO_NVML)


def toolkit():
    nvcc = Nvcc(
        path="/usr/local/cuda/bin/nvcc",
        resolved="/usr/local/cuda-13.0/bin/nvcc",
        found_by="CUDA_HOME",
        version="13.0",
        build="13.0.88",
        architectures=("sm_80", "sm_90", "sm_90a", "sm_100a"),
    )
    jit = JitToolkit(
        cuda_home="/usr/local/cuda",
        found_by="CUDA_HOME",
        nvcc=nvcc,
        compiler=nvcc,
        headers={"cuda_runtime.h": "/usr/local/cuda/include", "nv/target": "/usr/local/cuda/include/cccl"},
        libraries={"cudart": "/usr/local/cuda/lib64"},
        cccl="3.0.2",
    )
    return ToolkitFacts(
        jit=jit,
        gate_version="13.0",
        gate_source="nvcc",
        others=(),
        torch_cuda="13.0",
        jit_cache_cuda=Missing(reason="flashinfer-jit-cache is not installed"),
        ninja="/venv/bin/ninja",
        host_compiler="/usr/bin/c++",
        host_compiler_version="13.3.0",
    )


def flashinfer():
    return FlashInfer(
        root="/venv/lib/python3.12/site-packages/flashinfer",
        version="0.7.2.post1",
        commit="0123abcd",
        architectures=("90a",),
        architectures_from="GPUs",
        version_checks=(),
        version_check_disabled=False,
        cache_base="/root/.cache/flashinfer",
        cache_dir="/root/.cache/flashinfer/0.7.2.post1/90a",
        cache_writable=True,
        cache_owner=0,
        cached_modules=("norm",),
        cubin_dir=Missing(reason="no cubin folder"),
        cubins=Missing(reason="no cubin folder"),
        jit_cache_modules=(),
        jit_cache_architectures=Missing(reason="flashinfer-jit-cache is not installed"),
        symbols={"flashinfer.norm.rmsnorm": "norm/__init__.py:41"},
    )


def facts(gpus=None):
    return Facts(
        interpreter=Interpreter(
            executable="/venv/bin/python",
            version="3.12.3",
            implementation="CPython",
            prefix="/venv",
            pythonpath=Missing(reason="PYTHONPATH is not set"),
            sys_path=("/venv/lib/python3.12/site-packages",),
            is_own=False,
        ),
        gpus=gpus or gpu_facts(gpu()),
        toolkit=toolkit(),
        libraries={
            "nccl": Missing(reason="no libnccl.so.2 found"),
            "cudart": Library(
                name="cudart", path="/venv/libcudart.so.13", version="13.0.96", origin="wheel", package="x", copies=()
            ),
        },
        packages={
            "vllm": package("vllm", "0.33.0"),
            "torch": package("torch", "2.11.0+cu130"),
            "flashinfer-python": package("flashinfer-python", "0.7.2.post1"),
            "sglang": Missing(reason="not installed"),
        },
        flashinfer=flashinfer(),
        system=SystemFacts(
            os="Ubuntu 24.04.2 LTS",
            kernel="6.8.0",
            libc="glibc 2.39",
            machine="x86_64",
            container="docker",
            image={},
            cpus=16,
            memory_total_mib=131072,
            memory_available_mib=120000,
            memory_limit_mib=Missing(reason="no cgroup limit"),
            shm_mib=64,
            uid=0,
        ),
        environment={"PATH": "/venv/bin:/usr/bin", "CUDA_HOME": "/usr/local/cuda"},
        sources={"packages": "importlib.metadata in /venv/bin/python", "gpus": "NVML"},
    )


def cell(variant="", verdict=Verdict.WORKS, evidence=Evidence.VERIFIED, why=AGREES, probe="norm.rmsnorm"):
    return Cell(variant=variant, verdict=verdict, evidence=evidence, scope=Scope.FULL, probe=probe, why=why)


def row(feature, verdict=Verdict.WORKS, evidence=Evidence.VERIFIED, why=AGREES, *, sm=90, cells=()):
    is_import = feature.startswith("import.")
    return FeatureRow(
        feature=feature,
        sm=Missing(reason="needs no GPU") if is_import else sm,
        verdict=verdict,
        evidence=Evidence.RAN if is_import and verdict is Verdict.WORKS else evidence,
        scope=Scope.FULL,
        why="imported in 4.9 s" if is_import and verdict is Verdict.WORKS else why,
        needs_gpu=not is_import,
        vllm="not called",
        cells=cells or (cell(probe=feature, verdict=verdict, evidence=evidence, why=why),),
    )


def outcome(probe, **fields):
    values = {
        "feature": probe,
        "sm": 90,
        "depth": Depth.RUN,
        "stage": Stage.VERIFIED,
        "ending": Ending.RETURNED,
        "detail": "",
        "cells": (
            CellOutcome(
                variant="",
                stage=Stage.VERIFIED,
                ending=Ending.RETURNED,
                detail="",
                measurements={"max_error": 0.0039, "elements": 524288},
            ),
        ),
        "seconds": {"imported": 4.8, "built": 18.25, "ran": 0.4},
        "reproduce": f"CUDA_VISIBLE_DEVICES=GPU-0 /venv/bin/python /opt/fi_doctor_probes/{probe.replace('.', '_')}.py",
    }
    return Outcome(probe=probe, **(values | fields))


def planned(probe="norm.rmsnorm", module="norm", *, sm=90, skip="", depth=None):
    spec = ProbeSpec(
        id=probe,
        feature=probe,
        path=f"/probes/{probe}.py",
        origin="fi-doctor",
        question="Does it work?",
        module=module,
        requires=Requires(),
        variants={},
        gpus=1,
        timeout_s=120,
        build_timeout_s=600,
        compiles=("nvcc",),
        has_build=bool(module),
        checks_numbers=True,
    )
    return PlannedProbe(
        spec=spec,
        sm=sm,
        gpu_uuids=("GPU-0",),
        depth=depth or (Depth.STATIC if skip else Depth.RUN),
        variants=("",),
        skipped_variants={},
        skip=skip,
    )


def gate(rows, code=0, reason="no selected row is broken or gives wrong results"):
    """What the gate finds of these rows, with a code and a reason as somebody might write them."""
    return replace(decide(Request(depth=Depth.RUN), rows, (), facts()), code=code, reason=reason)


def report(rows=None, **fields):
    rows = tuple(row(feature) for feature in FEATURES) if rows is None else rows
    values = {
        "schema": SCHEMA,
        "doctor": Doctor(version="0.1.0", knowledge="2026.11.27"),
        "request": Request(depth=Depth.RUN),
        "created": "2026-11-27T10:00:00Z",
        "facts": facts(),
        "features": rows,
        "findings": (),
        "recommendations": (),
        "outcomes": tuple(outcome(feature) for feature in FEATURES),
        "gate": gate(rows),
    }
    return Report(**(values | fields))


def all_good():
    """An H200 on which everything works, four dtypes of one kernel included."""
    dtypes = tuple(cell(name) for name in ("float16", "bfloat16", "float16-h128", "bfloat16-h128"))
    return report(tuple(row(feature, cells=dtypes if feature == "norm.rmsnorm" else ()) for feature in FEATURES))


def one_variant_broken():
    """Three variants, one of which crashes; the probe's output is there to read."""
    why = "killed by SIGSEGV while it ran (float32)"
    cells = (
        cell("float16"),
        cell("bfloat16"),
        cell("float32", Verdict.BROKEN, Evidence.RAN, "killed by SIGSEGV while it ran"),
    )
    rows = tuple(
        row(name, Verdict.BROKEN, Evidence.RAN, why, cells=cells) if name == "norm.rmsnorm" else row(name)
        for name in FEATURES
    )
    crash = outcome(
        "norm.rmsnorm",
        stage=Stage.BUILT,
        ending=Ending.SIGNALLED,
        detail="SIGSEGV",
        cells=(
            CellOutcome(variant="float16", stage=Stage.VERIFIED, ending=Ending.RETURNED, detail=""),
            CellOutcome(variant="bfloat16", stage=Stage.VERIFIED, ending=Ending.RETURNED, detail=""),
            CellOutcome(variant="float32", stage=Stage.BUILT, ending=Ending.SIGNALLED, detail="SIGSEGV"),
        ),
        output="loading norm\ncalling rmsnorm with float32\nSegmentation fault: 0x0\n",
    )
    others = tuple(outcome(feature) for feature in FEATURES if feature != "norm.rmsnorm")
    return report(rows, outcomes=(*others, crash), gate=gate(rows, 1, '"norm.rmsnorm" is broken on SM90'))


def from_a_lock():
    """Rows that a lock holds: works, works with a variant that crashes, broken; and one that does not hold any more."""
    cells = (cell("float16"), cell("float32", Verdict.BROKEN, Evidence.RAN, "killed by SIGSEGV while it ran"))
    lost = "since it was locked: cache:sampling"
    locked = {
        "norm.rmsnorm": row("norm.rmsnorm", cells=cells),
        "kv.append_paged": row("kv.append_paged", Verdict.BROKEN, Evidence.RAN, "killed by SIGABRT while it ran"),
    }
    rows = tuple(
        row(name, Verdict.UNKNOWN, Evidence.NONE, lost)
        if name == "sampling.top_k_top_p"
        else locked.get(name, row(name)).as_locked("2026-11-20")
        for name in FEATURES
    )
    ended = {"norm.rmsnorm": "SIGSEGV", "kv.append_paged": "SIGABRT"}
    outcomes = tuple(
        outcome(
            name,
            stage=Stage.BUILT,
            ending=Ending.SIGNALLED,
            detail=detail,
            cells=(CellOutcome(variant="", stage=Stage.BUILT, ending=Ending.SIGNALLED, detail=detail),),
            output="",
            seconds={},
            reproduce="",
        )
        for name, detail in ended.items()
    )
    missed = tuple(one for one in rows if one.verdict is Verdict.UNKNOWN)
    return report(rows, outcomes=outcomes, gate=decide(Request(depth=Depth.RUN), rows, (), facts(), missed=missed))


def broken_toolkit():
    """A wrapper named nvcc outside its toolkit: every build fails at the link."""
    why = "build failed: /usr/bin/ld: cannot find -lcudart: No such file or directory"
    rows = tuple(
        row(name)
        if name.startswith("import.")
        else row(name, Verdict.BROKEN, Evidence.BUILT, why, cells=(cell("", Verdict.BROKEN, Evidence.BUILT, why),))
        for name in FEATURES
    )
    log = (
        "[1/3] /usr/local/bin/nvcc -c rmsnorm.cu -o rmsnorm.cuda.o\n"
        "[3/3] c++ rmsnorm.cuda.o -shared -L/usr/local/lib64 -lcudart -o norm.so\n"
        "FAILED: norm.so\n"
        "/usr/bin/ld: cannot find -lcudart: No such file or directory\n"
        "collect2: error: ld returned 1 exit status\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/venv/lib/python3.12/site-packages/flashinfer/jit/cpp_ext.py", line 332, in run_ninja\n'
        "    raise RuntimeError(msg) from e\n"
        "RuntimeError: Ninja build failed. Ninja output: ...\n"
    )
    failures = tuple(
        outcome(
            name,
            stage=Stage.IMPORTED,
            ending=Ending.RAISED,
            detail="RuntimeError: Ninja build failed",
            cells=(
                CellOutcome(
                    variant="",
                    stage=Stage.IMPORTED,
                    ending=Ending.RAISED,
                    detail="RuntimeError: Ninja build failed",
                    error="RuntimeError",
                    traceback=trace,
                ),
            ),
            output=log,
        )
        for name in ("activation.silu_and_mul", "norm.rmsnorm")
    )
    finding = Finding(
        id="jit-toolkit-derived-wrongly",
        cause="toolkit",
        severity=Severity.ERROR,
        title="FlashInfer takes /usr/local for the CUDA toolkit",
        why=(
            "CUDA_HOME and CUDA_PATH are not set, and the nvcc on PATH (/usr/local/bin/nvcc) is a wrapper outside its "
            "toolkit: FlashInfer takes the folder above it, where there is no lib64/libcudart.so."
        ),
        fix=("export CUDA_HOME=/usr/local/cuda-13.0", "put /usr/local/cuda-13.0/bin first on PATH"),
        features=("norm.*",),
        source="flashinfer/jit/cpp_ext.py:47",
    )
    set_home = Recommendation(
        kind=ActionKind.SET,
        line="export CUDA_HOME=/usr/local/cuda-13.0",
        why="the nvcc on PATH is a wrapper outside its toolkit",
        findings=("jit-toolkit-derived-wrongly",),
    )
    info = replace(
        finding,
        id="newer-flashinfer-exists",
        cause="age",
        severity=Severity.INFO,
        title="A newer release exists",
        fix=(),
    )
    reason = '"activation.silu_and_mul" and 4 more are broken on SM90'
    return report(
        rows, outcomes=failures, findings=(info, finding), recommendations=(set_home,), gate=gate(rows, 1, reason)
    )


def one_cause():
    """One nvcc that is too old, by three findings; what vLLM should leave, and what it could take besides."""
    refused = "NotImplementedError: FP8 block scaling not implemented for CUDA 12.6 or lower."
    part = "vLLM allocates through symmetric memory here; checked: IPC only (works: numbers agree with the reference)"
    rows = (
        replace(row("attention.prefill"), vllm="off by default: FlashAttention 3 is taken first"),
        replace(
            row("comm.allreduce_fusion", Verdict.UNKNOWN, Evidence.DECLARED, part), vllm="on by default: at TP > 1"
        ),
        replace(
            row("moe.fp8_block", Verdict.BROKEN, Evidence.RAN, refused), vllm="on by default: with EP, else Triton"
        ),
    )
    titles = {
        "moe-refused": "FP8 block-scale MoE is refused: FlashInfer's gate reads CUDA 12.6 and wants 12.8",
        "fusion-does-not-compile": "All-reduce fusion does not compile with the CUDA headers of /usr/local/cuda-12.6",
        "old-builds-stay": "3 modules built with CUDA 12.6 stay in the cache after CUDA_HOME is put right",
    }
    found = tuple(
        Finding(
            id=name,
            cause="nvcc-too-old",
            severity=Severity.WARNING,
            title=title,
            why="FlashInfer compiles with the nvcc of CUDA_HOME, whatever torch was built with.",
            fix=("export CUDA_HOME=/usr/local/cuda-13.0", *(("rm -f /c/build.ninja",) if "stay" in name else ())),
            features=("moe.fp8_block",),
            source="flashinfer/fused_moe/core.py:854",
        )
        for name, title in titles.items()
    )
    told = "calls it by default; Triton serves instead"
    advised = (
        Recommendation(
            kind=ActionKind.SET,
            line="export CUDA_HOME=/usr/local/cuda-13.0",
            why="a newer toolkit of this machine",
            findings=tuple(titles),
        ),
        Recommendation(
            kind=ActionKind.FLAG,
            line="--moe-backend triton",
            why=f"moe.fp8_block does not work here and vLLM 0.33.0 {told}",
            findings=(),
            features=("moe.fp8_block",),
        ),
        Recommendation(
            kind=ActionKind.FLAG,
            line="--attention-backend FLASHINFER",
            why="attention.prefill works here and vLLM 0.33.0 calls it only when told to",
            findings=(),
            features=("attention.prefill",),
            optional=True,
        ),
    )
    said = "moe.fp8_block on SM90: NotImplementedError"
    return report(rows, findings=found, recommendations=advised, outcomes=(), gate=gate(rows, 1, said))


def no_gpu():
    """A laptop: nothing to run on, FlashInfer and vLLM not installed, and the reasons."""
    why = "no GPU: no libnvidia-ml.so.1 on this machine"
    none = Missing(reason="no GPU and no architecture named")
    rows = tuple(
        row(name) if name == "import.torch" else row(name, Verdict.UNKNOWN, Evidence.NONE, why, sm=none)
        for name in FEATURES
    )
    packages = {
        "torch": package("torch", "2.13.0+cpu"),
        "flashinfer-python": Missing(reason="not installed in /venv"),
        "vllm": Missing(reason="not installed in /venv"),
    }
    jit = replace(toolkit(), jit=Missing(reason="no nvcc on PATH, CUDA_HOME and CUDA_PATH are not set"))
    bare = replace(
        facts(no_gpu_facts()), packages=packages, toolkit=jit, flashinfer=Missing(reason="not installed in /venv")
    )
    return report(
        rows,
        facts=bare,
        outcomes=(),
        request=Request(depth=Depth.STATIC),
        gate=gate(rows, 3, "nothing was measured on a GPU"),
    )


def two_sms():
    """A node with two kinds of GPU, on one of which a kernel is unsupported and one gives wrong results."""
    gpus = gpu_facts(gpu(0), gpu(1), gpu(2, "NVIDIA GB10", 121))
    declared = "flashinfer/fp4.py:12 asks for SM100 or newer"
    wrong = "max error 0.5 is over the tolerance of 0.01"
    rows = (
        *(row(feature) for feature in FEATURES),
        row("norm.rmsnorm", sm=121, cells=(cell("float16"), cell("bfloat16"))),
        row(
            "norm.fused_add_rmsnorm",
            Verdict.WRONG_RESULT,
            Evidence.VERIFIED,
            wrong,
            sm=121,
            cells=(
                cell("float16", Verdict.WRONG_RESULT, why=wrong),
                cell("bfloat16", Verdict.WRONG_RESULT, why=wrong),
                cell("float32", Verdict.UNKNOWN, Evidence.NONE, "needs nvcc >= 13.1"),
            ),
        ),
        row("quant.fp4", Verdict.UNSUPPORTED, Evidence.DECLARED, declared, sm=90),
        row("quant.fp4", Verdict.UNKNOWN, Evidence.NONE, "timed out while it was built, after 600 s", sm=121),
    )
    late = outcome(
        "quant.fp4",
        sm=121,
        stage=Stage.IMPORTED,
        ending=Ending.TIMED_OUT,
        detail="not built after 600 s",
        cells=(CellOutcome(variant="", stage=Stage.IMPORTED, ending=Ending.TIMED_OUT, detail="not built after 600 s"),),
        output="[12/40] nvcc -c a.cu\n[13/40] nvcc -c b.cu\n",
    )
    flag = Recommendation(
        kind=ActionKind.FLAG, line="--moe-backend marlin", why="CUTLASS is not built for SM121", findings=("a-rule",)
    )
    tell = Recommendation(
        kind=ActionKind.REPORT,
        line="https://github.com/flashinfer-ai/flashinfer/issues",
        why="wrong results on SM121",
        findings=("measured-wrong-result",),
    )
    return report(
        rows,
        facts=facts(gpus),
        outcomes=(late,),
        recommendations=(flag, tell),
        gate=gate(rows, 1, '"norm.fused_add_rmsnorm" gives wrong results on SM121'),
    )


HOSTILE = "[bold red]x[/] \x1b[31mred\x1b[0m \x1b]0;title\x07 \u202eabc\u200b \x9b2J \udcff :smile: \r\nnext"


def hostile():
    """Names and messages that try to command the terminal, the markup, the table and the encoding."""
    bad = facts(gpu_facts(gpu(name=f"NVIDIA {HOSTILE}")))
    bad = replace(bad, packages={"torch": package("torch", HOSTILE), "vllm": Missing(reason=HOSTILE)})
    wide = "/very/long/path/without/any/space/" + "deep/" * 40 + "file.cu"
    rows = (
        row(HOSTILE, Verdict.BROKEN, Evidence.RAN, HOSTILE),
        row("f" * 200, why=wide),
        row("kv.中文字符", why="宽字符" * 40),
    )
    finding = Finding(
        id="[link=x]id[/link] \x1b[5m",
        cause="x",
        severity=Severity.WARNING,
        title=HOSTILE,
        why=HOSTILE,
        fix=(HOSTILE,),
        features=(),
        source="",
    )
    setting = Recommendation(kind=ActionKind.SET, line=HOSTILE, why=HOSTILE, findings=(HOSTILE,))
    failure = outcome(HOSTILE, ending=Ending.RAISED, detail=HOSTILE, output=HOSTILE * 3, reproduce=HOSTILE)
    return report(
        rows,
        facts=bad,
        findings=(finding,),
        recommendations=(setting,),
        outcomes=(failure,),
        gate=gate(rows, 1, HOSTILE),
    )


def empty():
    """A glob that selects nothing."""
    return report(
        (),
        outcomes=(),
        request=Request(depth=Depth.RUN, features=("nothing.*",)),
        gate=gate((), 3, "nothing was selected"),
    )


SAMPLES = {
    "all-good": all_good,
    "broken-toolkit": broken_toolkit,
    "empty": empty,
    "from-a-lock": from_a_lock,
    "hostile": hostile,
    "no-gpu": no_gpu,
    "one-cause": one_cause,
    "one-variant-broken": one_variant_broken,
    "two-sms": two_sms,
}
