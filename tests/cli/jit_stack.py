"""A stand-in of FlashInfer, with a real ninja, a toolkit and a torch, in an environment of its own."""

from __future__ import annotations

import os
import shutil

from cli_command import ROOT, linked_package, script

FAKE = ROOT / "tests" / "fake_jit"
CONTEXT = """import os


class CompilationContext:
    def __init__(self):
        self.TARGET_CUDA_ARCHS = set()
        if "FLASHINFER_CUDA_ARCH_LIST" in os.environ:
            for arch in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" "):
                major, minor = arch.split(".")
                self.TARGET_CUDA_ARCHS.add((int(major), str(minor)))
"""
PROBE = '''"""Does it load?"""

PROBE = {{"id": "fake.{name}", "feature": "fake.{name}", "module": "{name}", "gpus": 0}}


def build():
    from flashinfer.ops import get_module

    get_module("{name}")


def run():
    return {{}}
'''
NVCC = """#!/bin/sh
echo "Cuda compilation tools, release 13.0, V13.0.88"
echo "Build cuda_13.0.r13.0/compiler.36424714_0"
"""
TOOLKIT = (
    *(f"include/{name}" for name in ("cuda_runtime.h", "cuda_bf16.h", "cuda/std/optional", "nv/target")),
    "lib64/libcudart.so",
    "lib64/stubs/libcuda.so",
)


class Stack:
    """A site folder with a stand-in of FlashInfer, and probes of its modules beside our own."""

    def __init__(self, folder, doctor=None, place=None):
        """doctor: what runs the command. place: where fi-doctor and probes are installed; None: a linked checkout."""
        self.doctor = doctor
        self.site, self.sources, self.home = folder / "site", folder / "sources", folder / "home"
        for made in (self.site, self.sources, self.home, folder / "cuda/bin", folder / "cuda/include"):
            made.mkdir(parents=True)
        shutil.copytree(FAKE / "flashinfer", self.site / "flashinfer", ignore=shutil.ignore_patterns("__pycache__"))
        (self.site / "flashinfer/_build_meta.py").write_text('__version__ = "0.7.2.post1"\n')
        (self.site / "flashinfer/compilation_context.py").write_text(CONTEXT)
        shutil.copy(FAKE / "torch.py", self.site)
        self.place = linked_package(folder) if place is None else place
        for name, version in (("torch", "2.11.0"), ("flashinfer-python", "0.7.2.post1")):
            info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.cuda = folder / "cuda"
        script(self.cuda / "bin/nvcc", NVCC)
        for name in TOOLKIT:
            (self.cuda / name).parent.mkdir(parents=True, exist_ok=True)
            (self.cuda / name).touch()
        self.ops = self.home / ".cache/flashinfer/0.7.2.post1/90a/cached_ops"
        self.environ = {
            "PYTHONPATH": f"{self.site}{os.pathsep}{self.place}",
            "FLASHINFER_WORKSPACE_BASE": self.home,
            "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
            "CUDA_HOME": folder / "cuda",
            "CUDA_VISIBLE_DEVICES": "",
            "FAKE_SOURCES": self.sources,
            "FAKE_LOG": "own",
        }

    def module(self, name, *sources):
        """A module with a probe of it."""
        self.write(name, *sources)
        (self.place / f"probes/fake_{name}.py").write_text(PROBE.format(name=name))

    def __call__(self, *words, **changes):
        return self.doctor("warm", *words, env={**self.environ, **changes})

    def write(self, name, *sources):
        """The sources of a module: scripts that the compiler runs."""
        (self.sources / name).mkdir()
        for number, text in enumerate(sources):
            (self.sources / name / f"{name}{number}.cu").write_text(text + "\n")
