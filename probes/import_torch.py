"""Can torch be imported, and is it the torch that the installed metadata names?

Nothing is computed. An import that fails raises, as does a torch whose version is not that of the installed
distribution: another copy on sys.path then hides it. The part after "+" is left out of that comparison because the
wheels of the package index carry it in torch.__version__ and not in their metadata. A machine without a GPU passes; the
measurements say so.

Upstream: torch/version.py
"""

import importlib.metadata
import sys
import time

PROBE = {
    "id": "import.torch",
    "feature": "import.torch",
    "module": "",
    "requires": {"packages": {"torch": ""}},
    "gpus": 0,
    "timeout_s": 180,
    "checks": "nothing",
}


def run():
    was_imported = "torch" in sys.modules
    start = time.perf_counter()
    import torch

    seconds = time.perf_counter() - start
    installed = _installed_version("torch")
    if installed and installed.partition("+")[0] != torch.__version__.partition("+")[0]:
        raise RuntimeError(
            f"{torch.__file__} says it is torch {torch.__version__}, the installed distribution is {installed}: "
            "another copy of torch comes first on sys.path"
        )
    return {
        "version": str(torch.__version__),
        "installed_version": installed or "no metadata",
        "path": str(torch.__file__),
        "cuda": torch.version.cuda or "none",
        "cuda_available": torch.cuda.is_available(),
        "devices": torch.cuda.device_count(),
        "import_s": round(seconds, 3),
        "fresh_process": not was_imported,  # False: import_s is not what an import costs
    }


def _installed_version(distribution):
    """The version in the installed metadata; "" for a build that has none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    print(run())
