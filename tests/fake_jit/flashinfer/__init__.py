"""Stands for FlashInfer: its JIT, with a compiler that does what its sources say."""

__version__ = "0"
