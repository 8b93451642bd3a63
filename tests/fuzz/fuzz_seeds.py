"""What inputs of the fuzzers begin with: small ones of every kind that is read."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pathlib
import struct
import zipfile

import elf_samples as elf
from report_samples import SAMPLES

from fi_doctor.knowledge import bundles
from fi_doctor.reports import document

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


def kept(name: str) -> tuple[bytes, ...]:
    """The inputs that campaigns kept for a parser, by name."""
    return tuple(path.read_bytes() for path in sorted((HERE / "corpus" / name).glob("*")))


def _zip(files: dict[str, bytes | str]) -> bytes:
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return place.getvalue()


def _bundle() -> bytes:
    """A bundle whose digests fit; of knowledge, no more than its head and a row."""
    data = ROOT / "fi_doctor/knowledge/data"
    files = {"kb.yaml": (data / "kb.yaml").read_bytes(), "features.yaml": b"[]\n", "operators.yaml": b"[]\n"}
    return _zip({**files, bundles.LIST: bundles._listed(files)})


NVCC = (
    b"nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0",
    b"sm_75\nsm_90\nsm_120\n",
    b'#$ _NVVM_BRANCH_=nvvm\n#$ LIBRARIES=  "-L/usr/local/cuda/lib64"\n#$ gcc -E -x c++ "-I/usr/local/include" x\n',
)
COMPILERS = (
    b"#include <...> search starts here:\n /usr/include/c++/13\n /usr/include\nEnd of search list.\n",
    b"programs: =/usr/libexec\nlibraries: =/usr/lib/gcc:/lib\n",
    b'SEARCH_DIR("=/usr/local/lib"); SEARCH_DIR("/lib");\n',
    b"#define CCCL_VERSION 3000001\n#define THRUST_VERSION 200302\n",
    (
        b"#if __GNUC__ > 15\n#error -- unsupported GNU version! gcc versions later than 15 are not supported!\n#endif\n"
        b"#if (__clang_major__ >= 21) || (__clang_major__ < 7)\n"
    ),
    b"g++ (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0\n",
)
NINJA_OUTPUT = (
    (
        b"[1/2] /usr/local/cuda/bin/nvcc -c a.cu -o a.o\nFAILED: a.o\nnvcc fatal   : Unsupported gpu architecture\n"
        b"ninja: build stopped: subcommand failed.\n"
    ),
    b'/x/a.cu(12): error: identifier "foo" is undefined\n\x1b[01;31merror:\x1b[0m\n/bin/ld: cannot find -lcudart\n',
    b"ninja: error: loading 'build.ninja': No such file or directory\nKilled\n",
)
BUILD_NINJA = (
    (
        b"ninja_required_version = 1.3\ncuda_home = /usr/local/cuda\nnvcc = $cuda_home/bin/nvcc\n\ncommon_cflags = -DX $\n"  # noqa: E501
        b" -Y\nrule cuda_compile\n  command = $nvcc -c $in -o $out\n  depfile = $out.d\n\nbuild $name/a.o: cuda_compile "  # noqa: E501
        b"/scratch/src/a.cu\nbuild $name/x.so: link $name/a.o\ndefault $name/x.so\n"
    ),
)
NINJA_LOG = (b"# ninja log v7\n0\t1200\t1700000000000\tnorm/a.cuda.o\tdeadbeef\n3\t5\t7\tnorm/norm.so\tfeed\n",)
NINJA_DEPS = (
    b"# ninjadeps\n"
    + struct.pack("=I", 4)
    + struct.pack("=I8sI", 12, b"a.o\0\0\0\0\0", 0xFFFFFFFF)
    + struct.pack("=I8sI", 12, b"a.cu\0\0\0\0", 0xFFFFFFFE)
    + struct.pack("=IIIII", 0x80000000 | 16, 0, 1, 2, 1),
)
NVML = (b"NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue\n", b"NVIDIA H200 [bold]\x1b[31m\0\xff")
METADATA = (b"Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\nRequires-Dist: torch==2.13.0; extra == 'x'\n\ntext",)
DIRECT_URL = (
    b'{"url": "https://user:secret@x/y.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}',
    b'{"url": "file:///src/%20x", "dir_info": {"editable": true}}',
)
WHEEL = (_zip({"vllm-1.0.dist-info/METADATA": METADATA[0], "vllm/__init__.py": ""}),)
ELF = (
    elf.elf(
        elf.container(elf.entry(elf.CUBIN, 90, elf.SPECIFIC), elf.entry(elf.PTX, 80)),
        needed=(b"libcudart.so.13",),
        undefined=(b"cudaMalloc",),
    ),
    elf.library(b"one", b"two"),
    elf.elf(elf.container(elf.entry(elf.CUBIN, 90, elf.ZSTD, size=1 << 40))),
)
CONFIG = (
    (
        b'{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 4, "hidden_size": 64,'
        b' "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "layer_types": ["sliding_attention",'
        b' "full_attention"], "sliding_window": 128, "num_local_experts": 8, "num_experts_per_tok": 2,'
        b' "intermediate_size": 64, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["a"]}}'
    ),
    (
        b'{"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 3, "hidden_size": 7168, "q_lora_rank": 1536,'  # noqa: E501
        b' "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "v_head_dim": 128,'
        b' "n_routed_experts": 256, "first_k_dense_replace": 1, "quantization_config": {"quant_method": "fp8",'
        b' "weight_block_size": [128, 128]}, "text_config": {"num_hidden_layers": 2}}'
    ),
)
LOGS = (
    (
        b"INFO 06-01 10:00:00 [cuda.py:300] Using FlashInfer backend on V1 engine.\n(EngineCore_0 pid=7) ERROR 06-01 "
        b'[core.py:1] EngineCore failed to start.\nTraceback (most recent call last):\n  File "/x/y.py", line 3, in f\n'
        b"    g()\nRuntimeError: No supported CUDA architectures found for major versions [12].\n"
    ),
    b"ninja: build stopped: subcommand failed.\nnvcc fatal   : Unsupported gpu architecture 'compute_121a'\n",
    b"torch==2.13.0\nCUDA runtime version: 13.0.88\nGPU 0: NVIDIA GB10\nNvidia driver version: 580.95\n",
)
PACKED = (
    gzip.compress(LOGS[0]),
    lzma.compress(LOGS[1]),
    bz2.compress(LOGS[2]),
    gzip.compress(gzip.compress(b"x")),
    LOGS[0].decode().encode("utf-16"),
)
REPORTS = (
    document.to_json(SAMPLES["no-gpu"]()).encode(),
    document.to_json(SAMPLES["empty"]()).encode(),
    document.to_yaml(SAMPLES["empty"]()).encode(),
)
JUDGED = (*REPORTS, *(document.to_json(SAMPLES[name]()).encode() for name in ("one-variant-broken", "one-cause")))
PASTED = (b"> " + b"\n> ".join(REPORTS[2][:800].splitlines()), b"log\n" + REPORTS[1] + b"\nmore")
POLICIES = (
    (
        b'fail-on = ["broken"]\nfeature = ["norm.*"]\nbudget = "5m"\n[require]\n"norm.rmsnorm" = "verified"\n'
        b'[versions]\nvllm = ">=0.17"\n[[allow]]\nfeature = "moe.*"\nreason = "x"\nuntil = 2027-01-01\n'
    ),
    b"[tool.fi-doctor]\njobs = 4\n",
)
LOCKS = (b'{"schema": "fi-doctor.lock/1.0", "inputs": {}, "rows": []}', *kept("lock-seeds"))
BUNDLES = (_bundle(), _zip({"../x.yaml": b"1", "kb.yaml": b"a"}))
KNOWLEDGE = (
    *(path.read_bytes() for path in sorted((ROOT / "fi_doctor/knowledge/data/faults/toolkit-too-old").glob("ptx*"))),
    b"a: &a [1, 2]\nb: [*a, *a]\n2020-01-01: .inf\n",
)
ENV_FILES = (b"# x\nexport VLLM_USE_V1=1\nA='b c'\nHF_TOKEN=\"hf_x\"\nB=${A}\n",)
DOCKERFILES = (
    (
        b'ARG V=1\nFROM vllm/vllm-openai:v0.33.0 AS base\nENV A=1 B="two words"\nENV C d e\nRUN <<EOF\nx\nEOF\nFROM base\n'  # noqa: E501
        b'ENTRYPOINT ["vllm", "serve"]\nCMD --model openai/gpt-oss-20b --tp ${V}\n'
    ),
)
MANIFESTS = (
    (
        b"services:\n  llm:\n    image: vllm/vllm-openai:v0.33.0\n    environment: &e\n      VLLM_USE_V1: '1'\n"
        b"    command: --model x --moe-backend marlin\n  two:\n    environment:\n      <<: *e\n    env_file: [a.env]\n"
    ),
    (
        b"kind: Deployment\nmetadata: {name: llm}\nspec:\n  template:\n    spec:\n      containers:\n      - name: server\n"  # noqa: E501
        b"        image: vllm/vllm-openai\n        args: [--dtype=auto]\n        env:\n        - {name: A, value: b}\n"
        b"        envFrom:\n        - configMapRef: {name: m}\n---\nkind: ConfigMap\nmetadata: {name: m}\ndata: {X: y}\n"  # noqa: E501
    ),
)
ARGUMENTS = (b"serve openai/gpt-oss-20b --tp 2 --kv-cache-dtype=fp8 -O.level 3 --api-key 'x y'",)
MOUNTS = (
    (
        b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        b"31 22 0:9 / /a\\040b rw - tmpfs tmpfs rw\n"
    ),
)
CGROUPS = (b"max\n", b"150000 100000\n", b"0::/kubepods/pod1/docker-abc\n4:memory:/docker/ff\n", b"inactive_file 12\n")
PROCESSES = (
    b"HOME=/root\0VLLM_USE_V1=1\0HF_TOKEN=hf_x\0",
    (
        b"Limit                     Soft Limit           Hard Limit           Units     \n"
        b"Max open files            1024                 1048576              files     \n"
    ),
    b"7f00-7f01 r-xp 00000000 08:01 9 /usr/lib/libcudart.so.13 (deleted)\n",
    b"/usr/bin/python3\0-m\0vllm\0--api-key\0x\0",
    b"Name:\tpython\nPPid:\t1\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t0 1\nCapEff:\t1ffffffffff\nNSpid:\t1\n",
)
SYSTEM = (
    b'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.2 LTS"\n',
    b"MemTotal:       128000 kB\nMemAvailable:   120000 kB\n",
    b"Iface\tDestination\tGateway\tFlags\neth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
    b"\tlibcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13\n",
)
ACLS = (struct.pack("<I", 2) + struct.pack("<HHI", 1, 6, 0xFFFFFFFF) + struct.pack("<HHI", 2, 4, 1000),)
ENVIRON = (b"CUDA_HOME=/usr\0HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123\0VLLM_X=--api-key abcdefg1\0",)
PROBES = (
    (
        b'"""Does it work?"""\nPROBE = {"id": "a.b", "feature": "a.b", "module": "a", "requires": {"sm": ">=90"}, '
        b'"gpus": 1, "timeout_s": 60}\n\n\ndef build(): ...\n\n\ndef run(): return {"elements": 1}\n'
    ),
)
RECORDS = (
    (
        b'{"variant": "a", "stage": "built", "seconds": 1.5}\n{"variant": "a", "ending": "returned", "measurements": '
        b'{"x": 1}}\n{"end": true}\n'
    ),
)
PYTHON = (
    (
        b"import os\nCOPIES = {'VLLM_': 1}\nRAY_NON_CARRY = set()\n\n\nclass A:\n    x = [f'{1!r}' for _ in ()]\n\n"
        b"    def f(self, *a, **k):\n        return lambda: os.environ.get('A', 'b')\n"
    ),
    b"cuda_libs = {\n    'cublas': 'libcublas.so.*[0-9]',\n}\ndef _preload_cuda_deps(): ...\n",
)
ANSWERS = (
    b'{"vllm": "0.33.0", "cells": [{"choices": [{"operator": "attention", "chosen": "FLASHINFER", "layers": "all"}]}]}',
    b'{"phase": "generated", "choices": [{"operator": "attention", "chosen": "FLASHINFER"}]}',
)
IMPORTS = (b'{"stage": "torch", "began": [["/a"], ["/b"]]}\n{"asked": "x.so", "files": {"a": "b"}, "inner": ["c"]}\n',)
MEMORIES = (json.dumps(["key", {"path": "/x", "owner": "o", "units": {"sm_90": 1}, "ptx": {}, "needed": []}]).encode(),)
VERSIONS = (b"0.7.2.post1", b"2.11.0+cu130", b"0.0.0.dev1!2")
