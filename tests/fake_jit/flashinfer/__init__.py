"""Stands for FlashInfer: its JIT, with a compiler that does what its sources say."""

from . import ops as ops

__version__ = "0"
