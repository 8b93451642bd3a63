"""The rules of FlashInfer's own files in short: jit/env.py of 0.5.3, which raises, and compilation_context.py."""

RAISES = """
import os
import pathlib

def _get_cubin_dir():
    if has_flashinfer_cubin():
        import flashinfer_cubin

        flashinfer_cubin_version = flashinfer_cubin.__version__
        if not os.getenv("FLASHINFER_DISABLE_VERSION_CHECK") and flashinfer_version != flashinfer_cubin_version:
            raise RuntimeError(f"flashinfer-cubin version ({flashinfer_cubin_version}) does not match")
        return pathlib.Path(flashinfer_cubin.get_cubin_dir())
    env_dir = os.getenv("FLASHINFER_CUBIN_DIR")
    if env_dir:
        return pathlib.Path(env_dir)
    return FLASHINFER_CACHE_DIR / "cubins"

def _get_aot_dir():
    if has_flashinfer_jit_cache():
        import flashinfer_jit_cache

        version = flashinfer_jit_cache.__version__
        if not os.getenv("FLASHINFER_DISABLE_VERSION_CHECK") and not version.startswith(flashinfer_version):
            raise RuntimeError(f"flashinfer-jit-cache version ({version}) does not match")
        return pathlib.Path(flashinfer_jit_cache.get_jit_cache_dir())
    return _package_root / "data" / "aot"
"""
CONTEXT = """
import os


class CompilationContext:
    def __init__(self):
        self.TARGET_CUDA_ARCHS = set()
        for arch in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" "):
            major, minor = arch.split(".")
            self.TARGET_CUDA_ARCHS.add((int(major), minor))
"""
