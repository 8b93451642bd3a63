"""Facts: for which GPUs the shared objects hold code that the interpreter under examination would load."""

from __future__ import annotations

from fi_doctor.model.base import Data, Missing


class Binary(Data, frozen=True):
    """One shared object: what its .nv_fatbin section holds and what it asks of the loader. Nothing is decompressed."""

    path: str
    owner: str  # "vllm", "torch", "flashinfer-jit-cache", "flashinfer cache", "--binary"
    # Architectures for which a unit (what one compilation gave, a fatbin container) has code -> how many units have
    # just these: {"sm_90 sm_120a compute_80": 12}. sm_ is a cubin, compute_ PTX, named as cuobjdump does. Empty: none.
    units: dict[str, int]
    # Architecture of PTX -> the lowest PTX version among its entries, "9.0".
    ptx: dict[str, str]
    needed: tuple[str, ...]  # DT_NEEDED
    # Mangled names of torch's C++ that it needs and no library of the installed torch defines, of FlashInfer's modules
    # names of apache-tvm-ffi; Missing: not compared.
    unresolved: tuple[str, ...] | Missing = Missing(reason="they were not compared")


class Binaries(Data, frozen=True, tag_field="kind", tag="binaries"):
    """Every shared object that was looked at."""

    files: tuple[Binary, ...]  # by path
    unread: dict[str, str]  # path -> why it could not be read, or not wholly
    named: tuple[str, ...] = ()  # paths of those that were asked for by name, or lie in a folder that was
