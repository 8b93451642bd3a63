from types import SimpleNamespace

current_compilation_context = SimpleNamespace(TARGET_CUDA_ARCHS={(9, "0a")})
