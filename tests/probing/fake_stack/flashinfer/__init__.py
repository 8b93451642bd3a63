"""What the template asks of FlashInfer."""

import os

from . import jit as jit

if "asks" in os.environ.get("FAKE_STACK", ""):
    import torch

    kept = torch.cuda.device_count
    seen = (torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.get_device_capability(0))

__version__ = "0.7.2"
