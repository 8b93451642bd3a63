"""What `fi-doctor explain` says of faults that are really done to FlashInfer: the logs are real, the causes are known.

    python benchmarks/provoked.py record FOLDER [--fault NAME ...] [--jobs N]   # where a GPU is: what each fault prints
    python benchmarks/provoked.py judge FOLDER ...   # anywhere: the cause that explain puts first

Each fault is a process of its own with an empty JIT cache, except where it needs one that was filled before. What is
recorded is what it printed, its exit status and nothing else. The causes were written down before anything was run.
"""

# ruff: noqa: E501 - programs and commands stand on a line each

from __future__ import annotations

import argparse
import concurrent.futures
import importlib.util
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LIMIT_S = 150
NORM = "flashinfer.norm.rmsnorm(half(4, 128), half(128))"
SAMPLE = "flashinfer.sampling.sampling_from_probs(torch.softmax(torch.randn(4, 100, device='cuda'), -1))"
PRELUDE = """
import os, sys, torch, flashinfer
def half(*shape, dtype=torch.float16): return torch.randn(*shape, device="cuda").to(dtype)
def workspace(size): return torch.zeros(size, dtype=torch.uint8, device="cuda")
"""
DECODE = """
w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace({size}), "NHD")
ints = lambda *n: torch.tensor(n, dtype=torch.int32, device="cuda")
w.plan(ints(0, {pages}), ints(*range({pages})), ints(1), 32, 8, 128, 16, q_data_type=torch.float16)
w.run(half(1, 32, 128), half({pages}, 2, 16, 8, 128))
torch.cuda.synchronize()
"""
FA3 = """
w = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(1 << 27), "NHD", backend="fa3")
ints = lambda *n: torch.tensor(n, dtype=torch.int32, device="cuda")
eight = dict(q_data_type=torch.bfloat16, kv_data_type=torch.float8_e4m3fn)
w.plan(ints(0, 8), ints(0, 4), ints(0, 1, 2, 3), ints(1), 32, 8, 128, 16, causal=True, **eight)
w.run(half(8, 32, 128, dtype=torch.bfloat16), half(4, 2, 16, 8, 128).to(torch.float8_e4m3fn))
"""


@dataclass(frozen=True)
class Fault:
    """causes: those that may stand first, by what is done. before: what is done to the folder of the cache.

    environ: {base} is that folder; a PATH "without nvcc" has all that is on it but that. words: for Python, in place of
    a program. is_told: whether it fails without a status that says so.
    """

    causes: tuple[str, ...]
    code: str
    environ: dict[str, str] = field(default_factory=dict)
    before: Callable[[pathlib.Path], None] = lambda _: None
    filled: str = ""  # code that fills the cache first
    words: tuple[str, ...] = ()
    limit: int = 0  # of open files
    is_told: bool = False
    at_fault: bool = True


def path_without(folder: pathlib.Path, programs: list[str]) -> str:
    """A folder with links to everything that is on PATH but these."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(pathlib.Path(place).glob("*")) if place and pathlib.Path(place).is_dir() else ():
            link = folder / program.name
            if program.name not in programs and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


def each_library(base: pathlib.Path, changed: Callable[[bytes], bytes]) -> None:
    for path in base.rglob("*.so"):
        whole = path.read_bytes()
        path.unlink()
        path.write_bytes(changed(whole))


def companion(base: pathlib.Path, name: str, folder: str, function: str) -> None:
    (base / "site" / name / folder).mkdir(parents=True)
    (base / "site" / name / "__init__.py").write_text(f"__version__ = '0.1.2'\ndef {function}(): return '/x'\n")


def checkout(base: pathlib.Path) -> None:
    """The tree of a release before it was built."""
    spec = importlib.util.find_spec("flashinfer")
    folder = base / "site" / "flashinfer"
    shutil.copytree(spec.submodule_search_locations[0], folder, ignore=lambda *_: ["data", "_build_meta.py"])


def toolkit(base: pathlib.Path, linked: tuple[str, ...], copied: tuple[str, ...] = (), *, nvcc: bool = False) -> None:
    """CUDA_HOME with these of the parts that there are."""
    whole, folder = pathlib.Path("/usr/local/cuda"), base / "cuda"
    folder.mkdir()
    for name in linked:
        (folder / name).symlink_to(whole / name)
    for name in copied:
        shutil.copytree(whole / name, folder / name, symlinks=True)
    if nvcc:
        (folder / "bin").mkdir()
        for path in (whole / "bin").glob("nvcc*"):
            shutil.copy2(path, folder / "bin")
    (folder / "include").mkdir(exist_ok=True)


def mounted(folder: pathlib.Path, option: str) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "none", str(folder)], check=True)


def kill_compilers() -> None:
    for _ in range(200):
        time.sleep(0.1)
        if subprocess.run(["pkill", "-9", "-x", "cicc"], check=False).returncode == 0:
            return


def faults() -> dict[str, Fault]:
    return {
        "cuda-home-is-nowhere": Fault(
            ("nvcc-not-found", "cuda-home-malformed"), NORM, {"CUDA_HOME": "/opt/cuda-99", "PATH": "without nvcc"}
        ),
        "cuda-home-with-a-blank": Fault(("cuda-home-malformed",), NORM, {"CUDA_HOME": "/usr/local/cuda "}),
        "cuda-home-is-its-bin": Fault(
            ("cuda-home-malformed", "nvcc-not-found"), NORM, {"CUDA_HOME": "/usr/local/cuda/bin"}
        ),
        "no-ninja": Fault(("ninja-not-on-path",), NORM, {"PATH": "without ninja"}),
        "no-host-compiler": Fault(
            ("no-host-compiler",),
            NORM,
            {
                "PATH": "without g++ c++ gcc cc x86_64-linux-gnu-g++ x86_64-linux-gnu-gcc",
                "CXX": "g++",
            },
        ),
        "cache-cannot-be-made": Fault(
            ("flashinfer-cache-not-writable",), NORM, {"FLASHINFER_WORKSPACE_BASE": "/proc/1/task"}
        ),
        "architecture-of-ampere": Fault(
            ("torch-cuda-arch-list-has-old-arch", "arch-list-lacks-this-gpu", "wheel-lacks-gpu-arch"),
            SAMPLE,
            {"FLASHINFER_CUDA_ARCH_LIST": "8.0"},
        ),
        "architecture-of-the-future": Fault(
            ("jit-arch-too-new-for-nvcc",), NORM, {"FLASHINFER_CUDA_ARCH_LIST": "15.0a"}
        ),
        "module-cut-in-half": Fault(
            ("jit-cache-corrupt-artifact",),
            NORM,
            filled=NORM,
            before=lambda base: each_library(base, lambda whole: whole[:5000]),
        ),
        "module-of-nothing": Fault(
            ("jit-cache-corrupt-artifact",),
            NORM,
            filled=NORM,
            before=lambda base: each_library(base, lambda _: b"not a library\n"),
        ),
        "nvcc-is-killed": Fault(
            ("jit-parallelism-host-oom",),
            NORM,
            before=lambda _: threading.Thread(target=kill_compilers, daemon=True).start(),
        ),
        "no-gpu-visible": Fault(
            ("gpu-not-visible", "arch-detection-without-gpu"), NORM, {"CUDA_VISIBLE_DEVICES": ""}, at_fault=False
        ),
        "head-of-96": Fault(
            ("head-dim-unsupported",),
            'flashinfer.single_prefill_with_kv_cache(half(8, 4, 96), half(8, 4, 96), half(8, 4, 96), backend="fa2")',
        ),
        "head-of-512": Fault(
            ("head-dim-unsupported",),
            'flashinfer.single_prefill_with_kv_cache(half(8, 4, 512), half(8, 4, 512), half(8, 4, 512), backend="fa2")',
        ),
        "group-of-3-heads": Fault(
            ("plan-arguments-inconsistent", "arguments-refused-by-check", "gqa-group-size-unsupported"),
            "flashinfer.single_decode_with_kv_cache(half(32, 128), half(64, 7, 128), half(64, 7, 128))",
        ),
        "workspace-of-1-kb": Fault(("attention-workspace-too-small",), DECODE.format(size=1024, pages=4000)),
        "run-before-plan": Fault(
            ("plan-arguments-inconsistent",),
            'w = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(1 << 27), "NHD")\nw.run(half(1, 32, 128), half(4, 2, 16, 8, 128))',
        ),
        "other-type-than-planned": Fault(
            ("plan-arguments-inconsistent", "arguments-refused-by-check"),
            DECODE.format(size=1 << 27, pages=4).replace(
                "w.run(half(1, 32, 128),", "w.run(half(1, 32, 128, dtype=torch.bfloat16),"
            ),
        ),
        "page-out-of-reach": Fault(
            ("kernel-crash-unresolved", "index-out-of-range-on-gpu"),
            DECODE.format(size=1 << 27, pages=4).replace("ints(*range(4))", "ints(0, 1, 2, 2000000000)"),
        ),
        "logits-of-nan": Fault(
            ("sampler-nan-input",),
            "flashinfer.sampling.sampling_from_probs(torch.full((4, 100), float('nan'), device='cuda'), check_nan=True)",
        ),
        # Where there is no network its cubins cannot be fetched, which comes first.
        "trtllm-decode-on-hopper": Fault(
            ("trtllm-gen-attention-arch-unsupported", "cubin-artifact-download-blocked"),
            "i = torch.zeros(1, 4, dtype=torch.int32, device='cuda')\nflashinfer.decode.trtllm_batch_decode_with_kv_cache(half(1, 32, 128, dtype=torch.bfloat16), half(4, 2, 8, 16, 128, dtype=torch.bfloat16), workspace(1 << 27), i, i[0, :1] + 4, 64, 1.0, 1.0, backend='trtllm-gen')",
        ),
        "fp4-product-on-hopper": Fault(
            ("gemm-backend-unsupported-for-arch", "operation-unsupported-for-arch"),
            "u = lambda *n: torch.zeros(*n, dtype=torch.uint8, device='cuda')\nflashinfer.mm_fp4(u(128, 64), u(128, 64).T, u(128, 8), u(128, 8).T, torch.ones(1, device='cuda'), torch.bfloat16, backend='cutlass')",
        ),
        "fp4-quantised-on-hopper": Fault(
            ("operation-unsupported-for-arch", "gemm-backend-unsupported-for-arch"),
            "flashinfer.nvfp4_quantize(half(128, 128, dtype=torch.bfloat16), torch.ones(1, device='cuda'))",
        ),
        "tensor-of-the-cpu": Fault(
            ("arguments-refused-by-check",),
            "flashinfer.norm.rmsnorm(torch.randn(4, 128, dtype=torch.float16), half(128))",
        ),
        "weight-of-another-size": Fault(
            ("arguments-refused-by-check",), "flashinfer.norm.rmsnorm(half(4, 128), half(256))"
        ),
        "gpu-is-full": Fault(
            ("gpu-out-of-memory",), "a = torch.empty(10**15, dtype=torch.uint8, device='cuda')", at_fault=False
        ),
        "assertion-of-a-model": Fault(
            ("kernel-crash-unresolved", "device-side-assert", "index-out-of-range-on-gpu", "engine-bug"),
            "torch.arange(4, device='cuda')[torch.tensor([9], device='cuda')]\ntorch.cuda.synchronize()",
            at_fault=False,
        ),
        "cubins-of-another-version": Fault(
            ("cubin-version-mismatch",),
            NORM,
            before=lambda base: companion(base, "flashinfer_cubin", "cubins", "get_cubin_dir"),
        ),
        "jit-cache-of-another-version": Fault(
            ("jit-cache-version-mismatch",),
            NORM,
            before=lambda base: companion(base, "flashinfer_jit_cache", "jit_cache", "get_jit_cache_dir"),
        ),
        "checkout-before-the-package": Fault(
            ("shadowed-package",),
            NORM,
            before=checkout,
        ),
        "toolkit-without-libraries": Fault(
            ("jit-link-library-not-found",),
            NORM,
            {"CUDA_HOME": "{base}/cuda"},
            before=lambda base: toolkit(base, linked=("bin", "include", "nvvm")),
        ),
        "disk-is-full": Fault(
            ("disk-full-while-compiling",),
            NORM,
            {"FLASHINFER_WORKSPACE_BASE": "{base}/small"},
            before=lambda base: mounted(base / "small", "size=300k"),
        ),
        "cache-without-exec": Fault(
            ("flashinfer-cache-noexec",),
            NORM,
            {"FLASHINFER_WORKSPACE_BASE": "{base}/noexec"},
            before=lambda base: mounted(base / "noexec", "noexec"),
        ),
        "fp8-cache-with-fa3": Fault(
            ("sm90-fp8kv-kernel-uncompilable", "kv-cache-dtype-unsupported", "arguments-refused-by-check"), FA3
        ),
        "plan-in-a-graph": Fault(
            ("graph-capture-forbidden-call",),
            "with torch.cuda.graph(torch.cuda.CUDAGraph()):"
            + DECODE.format(size=1 << 27, pages=4).replace("\n", "\n    "),
        ),
        "fp8-product-of-blackwell": Fault(
            ("gemm-backend-unsupported-for-arch", "operation-unsupported-for-arch"),
            "e = lambda *n: torch.zeros(*n, dtype=torch.float8_e4m3fn, device='cuda')\nflashinfer.gemm.gemm_fp8_nt_groupwise(e(128, 128), e(128, 128), torch.ones(1, 128, device='cuda'), torch.ones(1, 1, device='cuda'), out_dtype=torch.bfloat16)",
        ),
        "cubins-not-reachable": Fault(
            ("cubin-artifact-download-blocked",), "", words=("-m", "flashinfer", "download-cubin"), is_told=True
        ),
        "no-flashinfer": Fault(("flashinfer-not-installed",), NORM, {"PYTHONPATH": ""}),
        "suffix-left-out": Fault(
            ("arch-suffix-missing",),
            'flashinfer.single_prefill_with_kv_cache(half(64, 4, 128), half(64, 4, 128), half(64, 4, 128), backend="fa3")',
            {"FLASHINFER_CUDA_ARCH_LIST": "9.0"},
        ),
        "temporary-files-nowhere": Fault(("temporary-folder-not-writable",), NORM, {"TMPDIR": "/proc/1/task"}),
        "few-open-files": Fault(("too-many-open-files",), NORM, limit=14),
        "toolkit-without-cicc": Fault(
            ("toolkit-incomplete",),
            NORM,
            {"CUDA_HOME": "{base}/cuda"},
            before=lambda base: toolkit(base, linked=("include", "lib64", "targets"), nvcc=True),
        ),
        "toolkit-without-headers": Fault(
            ("cuda-dev-headers-missing",),
            NORM,
            {"CUDA_HOME": "{base}/cuda"},
            before=lambda base: toolkit(base, linked=("lib64", "nvvm"), copied=("bin",)),
        ),
        "fork-after-cuda": Fault(
            ("cuda-in-forked-process",),
            "half(1)\nif os.fork() == 0:\n    " + NORM + "\nelse:\n    os.wait()\n    os._exit(1)",
            at_fault=False,
        ),
        "gpu-that-is-not-there": Fault(
            ("gpu-not-visible", "fewer-gpus-than-ranks", "gpu-index-not-there"),
            "flashinfer.norm.rmsnorm(half(4, 128).to('cuda:7'), half(128).to('cuda:7'))",
            at_fault=False,
        ),
        "workspace-of-the-cpu": Fault(
            ("arguments-refused-by-check", "wrong-current-device", "kernel-crash-unresolved"),
            DECODE.format(size=8, pages=4).replace("workspace(8)", "torch.zeros(1 << 27, dtype=torch.uint8)"),
        ),
        "indices-of-64-bit": Fault(
            ("arguments-refused-by-check", "plan-arguments-inconsistent"),
            DECODE.format(size=1 << 27, pages=4).replace("torch.int32", "torch.int64"),
        ),
        "not-contiguous": Fault(("arguments-refused-by-check",), "flashinfer.norm.rmsnorm(half(128, 4).T, half(128))"),
        "float32-to-norm": Fault(
            ("arguments-refused-by-check", "dtype-unsupported"),
            "flashinfer.norm.rmsnorm(half(4, 128, dtype=torch.float32), half(128, dtype=torch.float32))",
        ),
        "float64-to-norm": Fault(
            ("arguments-refused-by-check", "dtype-unsupported"),
            "flashinfer.norm.rmsnorm(half(4, 128, dtype=torch.float64), half(128, dtype=torch.float64))",
        ),
        "index-out-of-reach-in-graph": Fault(
            ("kernel-crash-unresolved", "index-out-of-range-on-gpu"),
            DECODE.format(size=1 << 27, pages=4).replace("ints(*range(4))", "ints(0, 1, 2, 1 << 30)")
            + "print(flashinfer)\n"
            + NORM
            + "\n",
        ),
        "misspelt-module": Fault(
            ("engine-flashinfer-version-mismatch", "packaged-sources-missing"),
            "from flashinfer.attention_of_tomorrow import plan",
        ),
        "argument-of-tomorrow": Fault(
            ("engine-flashinfer-version-mismatch",),
            "flashinfer.norm.rmsnorm(half(4, 128), half(128), precision='high')",
        ),
        "gone-from-torch": Fault(
            ("engine-torch-version-mismatch",), "torch.library.register_of_tomorrow()", at_fault=False
        ),
    }


def record(folder: pathlib.Path, wanted: list[str], jobs: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = faults()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(done, known[name]): name for name in wanted or known}
        for future in concurrent.futures.as_completed(running):
            text, status, seconds = future.result()
            name = running[future]
            if status not in (0, "the limit") or known[name].is_told:  # else it did not come about here
                (folder / f"{name}.log").write_bytes(text)
            with (folder / "ended.txt").open("a") as file:
                file.write(f"{name}: ended with {status} after {seconds:.0f} s, {len(text)} bytes\n")


def done(fault: Fault) -> tuple[bytes, int | str, float]:
    base = pathlib.Path(tempfile.mkdtemp(prefix="provoked-"))
    environ = {**os.environ, "FLASHINFER_WORKSPACE_BASE": str(base), "PYTHONUNBUFFERED": "1"}
    environ["PYTHONPATH"] = os.pathsep.join((str(base / "site"), environ.get("PYTHONPATH", "")))
    try:
        (base / "site").mkdir()
        if fault.filled:
            ran(environ, program(fault.filled))
        fault.before(base)
        begun = time.monotonic()
        own = {name: value.replace("{base}", str(base)) for name, value in fault.environ.items()}
        if (path := own.get("PATH", "")).startswith("without "):
            own["PATH"] = path_without(base / "path", path.split()[1:])
        words = [sys.executable, *fault.words] if fault.words else program(fault.code, fault.limit)
        text, status = ran(environ | own, words)
        return text, status, time.monotonic() - begun
    finally:
        for name in ("small", "noexec"):
            if (base / name).is_mount():
                subprocess.run(["umount", str(base / name)], check=False)
        shutil.rmtree(base, ignore_errors=True)


def program(code: str, limit: int = 0) -> list[str]:
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n" if limit else ""
    place = pathlib.Path(tempfile.mkdtemp(prefix="provoked-code-")) / "serve.py"
    place.write_text(limited + PRELUDE + code + "\ntorch.cuda.synchronize()\n")
    return [sys.executable, str(place)]


def ran(environ: dict[str, str], words: list[str]) -> tuple[bytes, int | str]:
    try:
        ended = subprocess.run(
            words,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            timeout=LIMIT_S,
            cwd="/tmp",
        )
    except subprocess.TimeoutExpired as error:
        return error.stdout or b"", "the limit"
    return ended.stdout, ended.returncode


def judge(folders: list[pathlib.Path]) -> int:
    from fi_doctor.explaining.diagnose import Source, diagnose

    known, right, sure, blamed, of = faults(), 0, 0, 0, 0
    for folder in folders:
        for path in sorted(folder.glob("*.log")):
            fault = known[path.stem]
            if not path.stat().st_size:
                continue  # a process that was killed said nothing
            told = diagnose([Source(path.name, io.BytesIO(path.read_bytes()))]).diagnoses
            first = told[0] if told else None
            of += 1
            is_right = first is not None and first.cause in fault.causes
            right += is_right
            sure += first is not None and not is_right and first.confidence.value == "high"
            blamed += first is not None and first.flashinfer_at_fault and not fault.at_fault
            said = f"{first.rule} ({first.cause}, {first.confidence.value})" if first else "not known"
            print(f"{'right' if is_right else 'WRONG' if first else '-'} {folder.name} {path.stem}: {said}")
    print(json.dumps({"of": of, "right": right, "wrong and sure": sure, "blamed": blamed}))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--fault", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    if given.what == "judge":
        return judge(given.folders)
    record(given.folders[0], given.fault, given.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
