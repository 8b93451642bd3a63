"""The subjects that bring a table of their own: name -> kind and how it is read off the facts."""

from __future__ import annotations

from fi_doctor.conditions import (
    binaries,
    cccl,
    compat,
    installed,
    lacking,
    machine,
    peers,
    server,
    stale,
    surroundings,
    toolkits,
    tvm_ffi,
    vllm,
    wheels,
)

_TABLES = (
    binaries,
    cccl,
    compat,
    installed,
    lacking,
    machine,
    peers,
    server,
    stale,
    surroundings,
    toolkits,
    tvm_ffi,
    vllm,
    wheels,
)
SUBJECTS = {name: subject for family in _TABLES for name, subject in family.SUBJECTS.items()}
