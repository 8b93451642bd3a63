"""An environment on disk that the real readers read: a virtual environment, a toolkit, compilers, and variables.

Packages are their metadata and the files that are read; nvcc, c++ and ptxas are shell scripts that answer what those of
CUDA 13.0, GCC 13 and Triton 3.8.0 answered. Nothing of the machine is on its PATH.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import factory as make
from flashinfer_rules import CONTEXT, RAISES
from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import findings
from fi_doctor.facts import Gathering
from fi_doctor.model import Facts, Finding, Missing

VERSION = "0.7.2.post1"
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_120 sm_121"
HEADERS = ("cuda_runtime.h", "cuda_bf16.h", "cuda_fp16.h", "cuda.h", "cuda/std/optional", "nv/target", "cublas_v2.h")
MODULE_HEADERS = ("cublasLt.h", "curand.h", "curand_kernel.h", "nvrtc.h")
LIBRARIES = ("libcudart.so", "stubs/libcuda.so", "libcublas.so", "libcublasLt.so", "libnvrtc.so")
# crt/host_config.h of CUDA 13.0, shortened.
HOST_CONFIG = """#if defined(__GNUC__)
#if __GNUC__ > 15
#error -- unsupported GNU version! gcc versions later than 15 are not supported!
#endif /* __GNUC__ > 15 */
#if (__clang_major__ >= 21) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))
#error -- unsupported clang version!
#endif
#endif
"""
# vllm/ray/ray_env.py of 0.33.0, shortened.
RAY = """
DEFAULT_ENV_VAR_PREFIXES: set[str] = {"VLLM_", "NCCL_", "HF_"}
DEFAULT_EXTRA_ENV_VARS: set[str] = {"PYTHONHASHSEED"}
def get_env_vars_to_copy(): ...
"""
ENVS = """
import os
environment_variables = {
    "CUDA_HOME": lambda: os.environ.get("CUDA_HOME"),
    "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": lambda: os.getenv("VLLM_RAY_EXTRA_ENV_VARS_TO_COPY", ""),
}
"""
# Distribution -> version, module folder, what it requires.
PACKAGES = {
    "torch": ("2.14.0+cu130", "torch", ()),
    "triton": ("3.8.0", "triton", ()),
    "flashinfer_python": (
        VERSION,
        "flashinfer",
        ("apache-tvm-ffi<0.2,>=0.1.11", "nvidia-cutlass-dsl>=4.6.2a0", "nvidia-cudnn-frontend>=1.31.0", "torch"),
    ),
    "vllm": (
        "0.33.0",
        "vllm",
        (f"flashinfer-python=={VERSION}", "apache-tvm-ffi==0.1.11", "nvidia-cutlass-dsl[cu13]==4.8.0"),
    ),
    "apache_tvm_ffi": ("0.1.11", "tvm_ffi", ()),
    "nvidia_cutlass_dsl": ("4.8.0", "", ()),
    "nvidia_cudnn_frontend": ("1.32.0", "", ()),
    "nvidia_cudnn_cu13": ("9.20.0", "", ()),
    "nvidia_ml_py": ("13.590.44", "", ()),
}


class Environment:
    """One environment, healthy until it is changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.local = folder / "usr-local"  # where its packages put toolkits
        self.cxx = folder / "include/c++"  # headers of C++, where a test puts some
        self.cuda, self.bin, self.venv = folder / "cuda-13.0", folder / "bin", folder / "venv"
        self.python = self.venv / "bin" / "python"
        self.site = self.venv / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        self.cccl = self.site / "flashinfer/data/cccl/libcudacxx/include/cuda/std/__cccl/version.h"
        self.environ = {
            "CUDA_HOME": str(self.cuda),
            "PATH": str(self.bin),
            "HOME": str(folder / "home"),
            "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        }
        self.sm = 90
        self.gpu = "NVIDIA H200"
        self.driver_cuda = "13.0"
        write(self.venv / "pyvenv.cfg", f"home = {Path(sys.base_prefix, 'bin')}\n")
        self.python.parent.mkdir(parents=True)
        self.python.symlink_to(os.path.realpath(sys.executable))
        (folder / "home").mkdir()
        for name, (version, module, requires) in PACKAGES.items():
            self.install(name, version, module, requires)
        write(self.site / "torch/version.py", "__version__ = '2.14.0+cu130'\ncuda = '13.0'\n")
        write(self.site / "flashinfer/_build_meta.py", f'__version__ = "{VERSION}"\n')
        write(self.site / "flashinfer/jit/env.py", RAISES)
        write(self.cccl, "#define CCCL_VERSION 3006000\n")
        write(self.site / "flashinfer/compilation_context.py", CONTEXT)
        write(self.site / "vllm/ray/ray_env.py", RAY)
        write(self.site / "vllm/envs.py", ENVS)
        script(self.site / "triton/backends/nvidia/bin/ptxas", ptxas("12.9"))
        script(self.site / "triton/backends/nvidia/bin/ptxas-blackwell", ptxas("13.3"))
        toolkit(self.cuda)
        for name in ("c++", "gcc"):
            self.compiler(name)
        script(self.bin / "ninja", "echo 1.13.0\n")
        script(self.bin / "which", "exit 1\n")

    def install(self, name: str, version: str, module: str = "", requires: tuple[str, ...] = ()) -> Path:
        """A distribution as pip leaves it; its metadata's folder."""
        info = self.site / f"{name}-{version}.dist-info"
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
        write(info / "METADATA", "\n".join(["Metadata-Version: 2.4", *lines, "", ""]))
        write(info / "RECORD", f"{info.name}/METADATA,,\n")
        write(info / "INSTALLER", "pip\n")
        if module:
            write(self.site / module / "__init__.py", f'__version__ = "{version}"\n')
        return info

    def info(self, name: str) -> Path:
        """The folder of an installed distribution's metadata."""
        [found] = self.site.glob(f"{name}-*.dist-info")
        return found

    def remove(self, name: str) -> None:
        """Uninstall a distribution's metadata; its module stays where it has one."""
        shutil.rmtree(self.info(name))

    def change(self, name: str, version: str) -> None:
        """Install another version."""
        self.remove(name)
        _, module, requires = PACKAGES[name]
        self.install(name, version, module, requires)

    def compiler(self, name: str, said: str = "gcc (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0") -> None:
        """A host compiler that looks in what it is given, and in lib of this folder."""
        text = f"""case "$1" in
--version) echo '{said}';;
-print-search-dirs) echo 'programs: ='; echo 'libraries: ={self.folder}/lib';;
*)
  echo '#include <...> search starts here:' >&2
  while [ $# -gt 0 ]; do
    case "$1" in -I*) f=${{1#-I}};; -isystem) f=$2; shift;; *) f=;; esac
    if [ -d "$f" ]; then echo " $f" >&2; fi
    shift
  done
  if [ -d "{self.cxx}" ]; then echo ' {self.cxx}' >&2; fi
  echo 'End of search list.' >&2;;
esac
"""
        script(self.bin / name, text)

    def facts(self, libraries=lambda *_: {}) -> Facts:
        """What the readers read; the GPU is given."""
        unread = Missing(reason="not read here")
        gathering = Gathering(
            str(self.python), self.environ, asks_cuda=False, calls=lambda _: unread, libraries=libraries
        )
        facts = gathering.finish()
        return replace(facts, gpus=make.gpu_facts(make.gpu(sm=self.sm, name=self.gpu), cuda=self.driver_cuda))

    def found(self, rule: str) -> Finding:
        """The finding of a rule that holds."""
        [found] = [found for found in findings.find(KB, self.facts(), ()) if found.id == rule]
        return found

    def fix(self, rule: str) -> tuple[str, ...]:
        """What to do, where the rule holds."""
        return self.found(rule).fix

    def findings(self) -> dict[str, str]:
        """Rule -> severity."""
        return {found.id: found.severity.value for found in findings.find(KB, self.facts(), ())}


KB = knowledge.load()


def toolkit(home: Path, version: str = "13.0", codes: str = ARCHITECTURES) -> None:
    """A complete toolkit."""
    listed = "; ".join(f"echo {code}" for code in codes.split())
    text = f"""case "$*" in
--version) echo 'Cuda compilation tools, release {version}, V{version}.88';;
--list-gpu-code) {listed};;
*) echo '#$ LIBRARIES="-L{home}/lib64"' >&2; echo '#$ gcc -E -x c++ "-I{home}/include" "/dev/null"' >&2;;
esac
"""
    script(home / "bin/nvcc", text)
    for name in (*HEADERS, *MODULE_HEADERS):
        write(home / "include" / name, "\n")
    write(home / "include/cuda/std/__cccl/version.h", "#define CCCL_VERSION 3000001\n")
    write(home / "include/crt/host_config.h", HOST_CONFIG)
    major, minor = version.split(".")
    write(home / "include/cuda_runtime_api.h", f"#define CUDART_VERSION  {int(major) * 1000 + int(minor) * 10}\n")
    for name in LIBRARIES:
        write(home / "lib64" / name, "\n")


def ptxas(version: str) -> str:
    return f"echo 'Cuda compilation tools, release {version}, V{version}.86'\n"


def script(path: Path, text: str) -> None:
    write(path, f"#!/bin/sh\n{text}")
    path.chmod(0o755)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
