"""A small installation on disk: FlashInfer, torch, vLLM, a toolkit, a cache, and the facts of its machine."""

from __future__ import annotations

import functools

import factory as make
from msgspec.structs import replace
from ninja_samples import write_deps

from fi_doctor import knowledge, locked, pipeline
from fi_doctor.facts.imports import Imports, Loaded
from fi_doctor.facts.vllm import read_vllm
from fi_doctor.locking import compare
from fi_doctor.locking.digests import Digests
from fi_doctor.locking.inputs import Inputs
from fi_doctor.locking.resolving import Resolver
from fi_doctor.model import Depth, Ending, Request, Stage
from fi_doctor.probing import catalog, plan

VERSION = "0.7.2.post1"
CREATED = "2038-01-02T03:04:05+00:00"  # later than every file
FILES = {
    "flashinfer/__init__.py": "from .norm import rmsnorm\nfrom .sampling import *\n",
    "flashinfer/_build_meta.py": f'__version__ = "{VERSION}"\n',
    "flashinfer/utils.py": "def device(): ...\n",
    "flashinfer/norm.py": """
        import os
        from .jit import gen_norm_module
        from .utils import device
        PLAIN = os.environ.get("FLASHINFER_USE_CUDA_NORM")
        def rmsnorm(): ...
        def fused_add_rmsnorm(): ...
    """,
    "flashinfer/activation.py": """
        from .utils import device
        def silu_and_mul():
            from .jit.activation import gen
    """,
    "flashinfer/sampling.py": """
        from .jit import gen_sampling_module
        from .utils import device
        def top_k_top_p_sampling_from_logits(): ...
        def top_k_top_p_sampling_from_probs(): ...
    """,
    "flashinfer/artifacts.py": "def get_artifact(): ...\n",
    "flashinfer/comm/__init__.py": """
        from .other import thing
        from .trtllm_ar import (
            AllReduceFusionPattern, CudaRTLibrary, QuantizationSFLayout, create_shared_buffer,
            trtllm_allreduce_fusion, trtllm_lamport_initialize,
        )
    """,
    "flashinfer/comm/trtllm_ar.py": """
        from ..artifacts import get_artifact
        from ..jit.comm import gen_trtllm_comm_module
        from ..utils import device
        AllReduceFusionPattern = CudaRTLibrary = QuantizationSFLayout = create_shared_buffer = None
        trtllm_allreduce_fusion = trtllm_lamport_initialize = get_trtllm_comm_module = None
    """,
    "flashinfer/comm/other.py": "thing = 1\n",
    "flashinfer/jit/__init__.py": """
        from .core import JitSpec
        from .norm import gen_norm_module
        from .sampling import gen_sampling_module
    """,
    "flashinfer/jit/core.py": (
        'import tvm_ffi\nNAMES = "FLASHINFER_JIT_VERBOSE", "FLASHINFER_NVCC_THREADS", "FLASHINFER_JIT_LOGGING"\n'
        "class JitSpec: ...\n"
    ),
    "flashinfer/jit/norm.py": "from .core import JitSpec\ndef gen_norm_module(): ...\n",
    "flashinfer/jit/activation.py": 'from .core import JitSpec\nTEMPLATE = "activation.jinja"\ndef gen(): ...\n',
    "flashinfer/jit/sampling.py": "from .core import JitSpec\ndef gen_sampling_module(): ...\n",
    "flashinfer/jit/comm.py": "from .core import JitSpec\ndef gen_trtllm_comm_module(): ...\n",
    "flashinfer/data/csrc/norm.cu": "norm",
    "flashinfer/data/csrc/sampling.cu": "sampling",
    "flashinfer/data/csrc/shared.h": "shared",
    "flashinfer/data/csrc/allreduce.cu": "allreduce",
    "flashinfer/data/csrc/activation.jinja": "{{ activation }}",
    "flashinfer/data/include/flashinfer/norm.cuh": "norm",
    "flashinfer/data/include/flashinfer/unused.cuh": "unused",
    "flashinfer/data/cutlass/include/cutlass.h": "cutlass",
    "flashinfer_jit_cache/jit_cache/silu_and_mul/silu_and_mul.so": "silu_and_mul",
    "torch/__init__.py": "import numpy\nfrom . import _utils\n",
    "torch/_utils.py": "def one(): ...\n",
    "torch/testing.py": "def nothing_imports_this(): ...\n",
    "torch/lib/libc10.so": "c10",
    "numpy/__init__.py": "from .core import array\n",
    "numpy/core.cpython-312-x86_64-linux-gnu.so": "core",
    "numpy/random.py": "def nothing_imports_this(): ...\n",
    "typing_extensions.py": "def override(): ...\n",
    "tvm_ffi/__init__.py": "from .core import load\n",
    "tvm_ffi/core.py": "def load(): ...\n",
    "tvm_ffi/lib/libtvm_ffi.so": "tvm",
    "spaces/inner.py": "one = 1\n",
    "plain.pth": "/somewhere\n",
    "torch/version.py": "cuda = '13.0'\n",
    "torch/lib/libtorch_cuda.so": "torch",
    "vllm/envs.py": 'environment_variables = {"VLLM_USE_FLASHINFER_SAMPLER": lambda: 1}\n',
    "vllm/sampler.py": "from flashinfer.sampling import top_k_top_p_sampling_from_logits\n",
    "vllm/scheduler.py": "steps = 1\n",
    "other/thing.py": "thing = 1\n",
    "lib/libcudart.so.13": "cudart",
    "lib/libcublas.so.13": "cublas",
    "lib/libnccl.so.2": "nccl",
}
ELSEWHERE = {
    "cuda/bin/nvcc": "nvcc",
    "cuda/bin/ptxas": "ptxas",
    "cuda/nvvm/bin/cicc": "cicc",
    "bin/c++": "c++",
    "cubins/one.cubin": "cubin",
    "ops/norm/norm.so": "norm",
    "ops/sampling/sampling.so": "sampling",
    "ops/trtllm_comm/trtllm_comm.so": "trtllm_comm",
    "ops/unused/unused.so": "unused",
}
# Import -> the modules that it loads, beside the libraries; "dill" and "cutlass" are looked for and not there.
LOADS = {
    "torch": (
        ("torch", "torch._utils", "torch.version", "numpy", "numpy.core", "typing_extensions", "spaces.inner"),
        ("dill",),
        ("torch/lib/libc10.so",),
    ),
    "flashinfer": (
        ("flashinfer", "flashinfer.norm", "flashinfer.utils", "flashinfer.jit.core", "tvm_ffi", "tvm_ffi.core"),
        ("cutlass", "torch.compiled"),
        ("tvm_ffi/lib/libtvm_ffi.so",),
    ),
}
VARIABLES = {"torch": ("TORCH_USE_RTLD_GLOBAL",), "flashinfer": ("FLASHINFER_LOGLEVEL", "FLASHINFER_CUBIN_DIR")}
MODULES = {
    "norm": ("data/csrc/norm.cu", "data/csrc/shared.h", "data/include/flashinfer/norm.cuh"),
    "sampling": ("data/csrc/sampling.cu", "data/csrc/shared.h"),
    "trtllm_comm": ("data/csrc/allreduce.cu", "data/cutlass/include/cutlass.h"),
}
# Row -> where its module came from, and which it is.
ROWS = {
    "import.torch": ("", ()),
    "import.flashinfer": ("", ()),
    "norm.rmsnorm": ("cache", ("norm",)),
    "norm.fused_add_rmsnorm": ("built", ("norm",)),
    "activation.silu_and_mul": ("jit-cache", ("silu_and_mul",)),
    "sampling.top_k_top_p": ("cache", ("sampling",)),
    "comm.allreduce_fusion": ("cache", ("trtllm_comm",)),
}


class Installation:
    """One machine, whose files and facts a test may change."""

    def __init__(self, folder):
        self.folder = folder
        self.site = folder / "site-packages"
        self.ops = folder / "ws" / VERSION / "90a" / "cached_ops"
        self.environ = {"HOME": str(folder), "PATH": "/usr/bin"}
        self.kb, self.specs = _shipped()
        for name, text in FILES.items():
            write(self.site / name, text)
        for name, text in ELSEWHERE.items():
            write(self.place(name), text)
        for name, files in MODULES.items():
            write_deps(self.ops / name, name, [self.site / "flashinfer" / file for file in files])
        self.earlier = folder / "earlier"  # before it on sys.path
        self.facts = self._facts()
        self.errors = {}  # import -> why it fails while the lock is made
        self.report = self._report()

    def place(self, name):
        """A file outside of the packages."""
        top, _, rest = name.partition("/")
        return self.ops / rest if top == "ops" else self.folder / name

    def lock(self, report=None):
        return locked.lock_of(
            report or self.report,
            kb=self.kb,
            specs=self.specs,
            facts=self.facts,
            imports=self.imports(),
            environ=self.environ,
            digests=Digests(),
        )

    def imports(self):
        """What a child of the interpreter would tell of the two imports."""
        resolver = Resolver(self.facts.interpreter.sys_path, self.facts.interpreter.version)
        files, asked, mapped, loaded = {}, set(), set(), []
        for name, (modules, missing, libraries) in LOADS.items():
            files |= {module: resolver.place(module).file for module in modules}
            asked |= {*modules, *missing}
            mapped |= {str(self.site / library) for library in libraries}
            loaded.append(
                Loaded(
                    name=name,
                    asked=frozenset(asked),
                    files=dict(files),
                    inner=frozenset({"sys"}),
                    mapped=frozenset(mapped),
                    variables=frozenset({"TORCH_LOGS", "HOME", "STROBELIGHT_RATE", *VARIABLES[name]}),
                    lacking=frozenset({"STROBELIGHT_RATE"}),
                    error=self.errors.get(name, ""),
                )
            )
        return Imports(
            sys_path=self.facts.interpreter.sys_path, standard=("/usr/lib/python3.12",), loaded=tuple(loaded)
        )

    def now(self, lock):
        digests = Digests()
        inputs = Inputs(self.facts, self.kb, self.specs, digests=digests, environ=self.environ, loads=lock.loads)
        return inputs.read(compare.names(lock))

    def touched(self, lock):
        """The features whose rows do not hold any more."""
        return {key.feature for key in compare.touched(lock, compare.changed(lock, self.now(lock)))}

    def checked(self, lock, request=None):
        return locked.LockedCheck(
            lock,
            request or Request(depth=Depth.RUN),
            kb=self.kb,
            specs=self.specs,
            facts=self.facts,
            now=self.now(lock),
        )

    def _facts(self):
        home = str(self.folder / "cuda")
        nvcc = make.nvcc(home=home)
        tools = make.toolkit(
            jit=make.jit(home=home, nvcc=nvcc, compiler=nvcc), host_compiler=str(self.folder / "bin" / "c++")
        )
        names = {"cudart": "13", "cublas": "13", "nccl": "2"}
        site = {"location": str(self.site)}
        packages = {
            "torch": make.package("torch", "2.14.0+cu130", **site),
            "vllm": make.package("vllm", "0.14.1", **site),
            "flashinfer-jit-cache": make.package("flashinfer-jit-cache", VERSION, **site),
            "apache-tvm-ffi": make.package("apache-tvm-ffi", "0.1.11", **site),
            "sglang": make.package("sglang", "0.5.1", **site),
        }
        made = make.facts(
            packages=packages,
            gpus=make.gpu_facts(make.gpu(index=0), make.gpu(index=1)),
            toolkit=tools,
            flashinfer=make.flashinfer(
                root=str(self.site / "flashinfer"),
                cache_base=str(self.folder / "ws"),
                cache_dir=str(self.ops.parent),
                cached_modules=("norm", "sampling", "trtllm_comm", "unused"),
                jit_cache_modules=("silu_and_mul",),
                cubin_dir=str(self.folder / "cubins"),
            ),
            libraries={
                name: make.library(name, "1", path=str(self.site / "lib" / f"lib{name}.so.{number}"))
                for name, number in names.items()
            },
            vllm=read_vllm(make.survey(vllm=str(self.site / "vllm" / "__init__.py"))),
        )
        places = (str(self.earlier), str(self.site))
        return replace(made, interpreter=replace(made.interpreter, sys_path=places))

    def _report(self):
        request = Request(depth=Depth.RUN)
        planned = plan.plan(self.specs, self.facts, request)
        outcomes = tuple(_outcome(one) for one in planned if one.spec.feature in ROWS and one.is_tried)
        return pipeline.conclude(
            request, kb=self.kb, facts=self.facts, planned=planned, outcomes=outcomes, created=CREATED
        )


def write(path, text):
    """A file, with what is indented in a test set to the left."""
    import textwrap

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")


@functools.cache
def _shipped():
    return knowledge.load(), catalog.discover()


def _outcome(planned):
    stage = Stage.VERIFIED if planned.spec.checks_numbers else Stage.RAN
    source, modules = ROWS[planned.spec.feature]
    cells = tuple(
        replace(make.cell(Ending.RETURNED, stage, variant), module_from=source, modules=modules)
        for variant in planned.variants
    )
    return make.outcome(planned.spec.id, cells=cells, feature=planned.spec.feature, sm=planned.sm)
