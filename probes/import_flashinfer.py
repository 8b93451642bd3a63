"""Can flashinfer be imported, and is it the flashinfer that the installed metadata names?

Nothing is computed. The import itself checks flashinfer-cubin and flashinfer-jit-cache against flashinfer-python (up to
0.6 a mismatch raises), creates its cache folder (an unwritable one raises) and reads FLASHINFER_CUDA_ARCH_LIST; all of
that is what this probe is for. A version that is not that of the installed distribution raises as well: another copy on
sys.path then hides it. A machine without a GPU passes.

Upstream: flashinfer/__init__.py, flashinfer/jit/env.py
"""

import importlib.metadata
import sys
import time

PROBE = {
    "id": "import.flashinfer",
    "feature": "import.flashinfer",
    "module": "",
    "requires": {"packages": {"torch": "", "flashinfer-python": ""}},
    "gpus": 0,
    "timeout_s": 180,
    "checks": "nothing",
}


def run():
    was_imported = "flashinfer" in sys.modules
    start = time.perf_counter()
    import torch

    torch_seconds = time.perf_counter() - start
    import flashinfer

    seconds = time.perf_counter() - start
    version, path = str(flashinfer.__version__), str(flashinfer.__file__)
    installed = _installed_version("flashinfer-python")
    if installed and installed.partition("+")[0] != version.partition("+")[0]:
        raise RuntimeError(
            f"{path} says it is flashinfer {version}, the installed distribution is {installed}: "
            "another copy of flashinfer comes first on sys.path"
        )
    measured = {
        "version": version,
        "installed_version": installed or "no metadata",
        "path": path,
        "torch_version": str(torch.__version__),
        "import_s": round(seconds, 3),  # torch's share included
        "torch_import_s": round(torch_seconds, 3),
        "fresh_process": not was_imported,  # False: import_s is not what an import costs
    }
    if not was_imported:
        measured["initialises_cuda"] = torch.cuda.is_initialized()
    return measured


def _installed_version(distribution):
    """The version in the installed metadata; "" for a build that has none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    print(run())
