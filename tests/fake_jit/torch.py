"""Stands for torch: no GPU, and quick to import."""

import types

__version__ = "0"
cuda = types.SimpleNamespace(is_initialized=lambda: False)
