"""Examples of the rules about packages and about what vLLM hands on."""

from __future__ import annotations

import factory as make
from example import Example

from fi_doctor.model import Facts, RayCopies, Site


def _site(**changes) -> Facts:
    return make.facts(site=Site(**changes))


def _of_vllm(**changes) -> Facts:
    return make.facts(packages={"vllm": make.package("vllm", "0.33.0", **changes)})


def _altered(how: str) -> Facts:
    return make.facts(flashinfer=make.flashinfer(altered={"page.py": how}))


def _requiring(name: str, version: str, *lines: str, **installed: str) -> Facts:
    """A package with these Requires-Dist lines beside these others, written with _ for -."""
    others = {other.replace("_", "-"): of for other, of in installed.items()}
    return make.facts(packages={name: make.package(name, version, requires=lines), **others})


def _beside(owner: str, line: str, *, absent: str, **installed: str) -> Facts:
    """A package with this requirement, in an environment where just these are installed."""
    there = {name.replace("_", "-"): version for name, version in installed.items()}
    return make.facts(
        site=Site(installed={owner: "1.0", **there}, unlisted=""),
        libraries={},
        packages={owner: make.package(owner, "0.7.2.post1", requires=(line,)), absent: make.missing("not installed")},
    )


def _ray(*, has_ray: bool = True, **environment: str) -> Facts:
    registry = {"CUDA_HOME": "envs.py:751", "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": "envs.py:1543"}
    return make.facts(
        packages={"vllm": "0.33.0"},
        vllm=make.vllm(variables=registry, unread_variables=()),
        ray_copies=RayCopies(prefixes=("NCCL_", "VLLM_"), names=("PYTHONHASHSEED",), source="ray/ray_env.py:36"),
        site=Site(has_ray=has_ray),
        environment=environment,
    )


DSL = "nvidia-cutlass-dsl[cu13]==4.8.0"
TVM_FFI = "apache-tvm-ffi<0.2,>=0.1.11"
CUDNN = "nvidia-cudnn-frontend>=1.31.0"
TOOLKIT = "cuda-toolkit[cublas,cudart]==13.0.3"
EXAMPLES: dict[str, Example] = {
    "flashinfer-import-requirement-absent": Example(
        fires=_beside("flashinfer-python", TVM_FFI, absent="apache-tvm-ffi"),
        silent=_beside("flashinfer-python", CUDNN, absent="nvidia-cudnn-frontend"),
    ),
    "flashinfer-requirement-absent": Example(
        fires=_beside("flashinfer-python", CUDNN, absent="nvidia-cudnn-frontend"),
        silent=_beside("flashinfer-python", "nvidia-ml-py", absent="nvidia-ml-py", pynvml="13.0.1"),
    ),
    "companion-requirement-absent": Example(
        fires=_beside("flashinfer-cubin", "requests", absent="ninja"),
        silent=_beside("flashinfer-cubin", "requests", absent="ninja", requests="2.33.0"),
    ),
    "vllm-requirement-absent": Example(
        fires=_beside("vllm", "opencv-python-headless>=4.13.0", absent="ninja"),
        silent=_beside("vllm", "opencv-python-headless>=4.13.0", absent="ninja", opencv_python="4.13.0"),
    ),
    "torch-requirement-absent": Example(
        fires=_beside("torch", TOOLKIT, absent="triton", nvidia_cublas_cu12="12.8"),
        silent=_beside("torch", TOOLKIT, absent="triton", nvidia_cublas_cu13="13.1", nvidia_cuda_runtime="13.0"),
    ),
    "torch-requirement-not-met": Example(
        fires=_beside("torch", "nvidia-cudnn-cu13==9.24.0.43", absent="triton", nvidia_cudnn_cu13="9.20.0.48"),
        silent=_beside("torch", "nvidia-cudnn-cu13==9.24.0.43", absent="triton", nvidia_cudnn_cu13="9.24.0.43"),
    ),
    "vllm-requirement-not-met": Example(
        fires=_requiring("vllm", "0.33.0", "flashinfer-python==0.7.2.post1", flashinfer_python="0.6.7.post3"),
        silent=_requiring("vllm", "0.33.0", "flashinfer-python==0.7.2.post1", DSL, nvidia_cutlass_dsl="4.8.0"),
    ),
    "flashinfer-requirement-not-met": Example(
        fires=_requiring("flashinfer-python", "0.7.2.post1", "apache-tvm-ffi<0.2,>=0.1.11", apache_tvm_ffi="0.1.6"),
        silent=_requiring(
            "flashinfer-python",
            "0.7.2.post1",
            "apache-tvm-ffi<0.2,>=0.1.11",
            'apache-tvm-ffi<0.2,>=0.1.12; extra == "ptx"',
            apache_tvm_ffi="0.1.11",
        ),
    ),
    "metadata-left-by-upgrade": Example(
        fires=_of_vllm(leftovers=(f"{make.SITE}/vllm-0.28.0.dist-info",)), silent=_of_vllm()
    ),
    "metadata-of-other-version": Example(fires=_of_vllm(claims="0.28.0"), silent=_of_vllm()),
    "package-files-damaged": Example(fires=_altered("gone"), silent=_altered("2 bytes instead of 3")),
    "package-files-changed": Example(fires=_altered("2 bytes instead of 3"), silent=_altered("gone")),
    "package-without-code": Example(fires=_of_vllm(lost="no module named vllm"), silent=_of_vllm()),
    "pip-was-interrupted": Example(
        fires=_site(leftovers=(f"{make.SITE}/~lashinfer",)), silent=make.facts(packages={"vllm": "0.33.0"})
    ),
    "package-metadata-missing": Example(
        fires=_site(broken={"flashinfer-python": f"{make.SITE}/flashinfer_python-0.7.2.post1.dist-info"}),
        silent=_site(leftovers=(f"{make.SITE}/~lashinfer",)),
    ),
    "python-compiled-by-every-process": Example(
        fires=make.facts(site=Site(uncompiled=(f"{make.SITE}/vllm",)), environment={"PYTHONDONTWRITEBYTECODE": "1"}),
        silent=make.facts(site=Site(uncompiled=(f"{make.SITE}/vllm",)), environment={"PYTHONDONTWRITEBYTECODE": ""}),
    ),
    "one-folder-of-two-cuda-majors": Example(
        fires=_site(cuda_majors={"nvidia-cudnn-cu12": 12, "nvidia-cudnn-cu13": 13}),
        silent=_site(cuda_majors={"nvidia-cublas-cu12": 12, "nvidia-cudnn-cu13": 13}),
    ),
    "cupy-for-other-cuda": Example(
        fires=_site(cuda_majors={"cupy-cuda12x": 12}), silent=_site(cuda_majors={"cupy-cuda13x": 13})
    ),
    "pynvml-replaces-nvidia-ml-py": Example(
        fires=make.facts(packages={"pynvml": "11.5.3"}), silent=make.facts(packages={"pynvml": "13.0.1"})
    ),
    "source-tree-in-current-folder": Example(
        fires=_site(here={"vllm": "/src/vllm/vllm/__init__.py"}), silent=_site(has_ray=True)
    ),
    "source-tree-on-pythonpath": Example(
        fires=make.facts(
            packages={"vllm": make.package("vllm", "0.33.1.dev3", location="/src/vllm", shadowed=("0.33.0 in /venv",))}
        ),
        silent=make.facts(
            packages={
                "vllm": make.package(
                    "vllm", "0.33.1.dev3", location="/src/vllm", shadowed=("0.33.0 in /venv",), editable=True
                )
            }
        ),
    ),
    "ray-workers-lack-variables": Example(
        fires=_ray(FLASHINFER_CUDA_ARCH_LIST="9.0a"),
        silent=_ray(
            FLASHINFER_CUDA_ARCH_LIST="9.0a",
            CUDA_HOME="/usr/local/cuda",
            VLLM_RAY_EXTRA_ENV_VARS_TO_COPY="FLASHINFER_CUDA_ARCH_LIST",
        ),
    ),
}
