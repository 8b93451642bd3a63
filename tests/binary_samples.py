"""Machines with binaries of one kind of GPU code or another."""

from __future__ import annotations

import factory as make

from fi_doctor.model import Binary, Facts, Missing


def binary(*code: str, package: str = "vllm", ptx: str = "", not_found: tuple[str, ...] | Missing = ()) -> Binary:
    entries = dict.fromkeys(code, 1)
    return Binary(package=package, code=entries, ptx=ptx, needs=("libcudart.so.13",), not_found=not_found)


def on(sm: int, files: dict[str, Binary | Missing], *, driver_cuda: str = "13.0") -> Facts:
    """These files beside a GPU of that capability, with a driver of that CUDA."""
    gpus = make.gpu_facts(make.gpu(sm=sm), cuda=driver_cuda)
    return make.facts(gpus=gpus, binaries=files)
