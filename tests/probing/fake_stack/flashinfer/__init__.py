"""What the template asks of FlashInfer."""

from . import jit as jit

__version__ = "0.7.2"
