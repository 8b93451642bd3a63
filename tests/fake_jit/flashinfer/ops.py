"""Getters of modules, which keep them as FlashInfer's do."""

import functools

from flashinfer.jit.core import JitSpec


@functools.cache
def get_module(name):
    module = JitSpec(name).build_and_load()
    return module.run
