"""Builds for what FLASHINFER_CUDA_ARCH_LIST says, literally, as 0.5 does."""

import os
import types

_entries = os.environ.get("FLASHINFER_CUDA_ARCH_LIST", "").split()
current_compilation_context = types.SimpleNamespace(
    TARGET_CUDA_ARCHS={(int(major), minor) for major, minor in (entry.split(".") for entry in _entries)}
)
