from types import SimpleNamespace

from flashinfer import _norm_gemma, _norm_layer, norm


def gen_norm_module():
    module = SimpleNamespace(
        rmsnorm=norm.module_rmsnorm,
        fused_add_rmsnorm=norm.module_fused_add_rmsnorm,
        gemma_rmsnorm=_norm_gemma.module_gemma_rmsnorm,
        gemma_fused_add_rmsnorm=_norm_gemma.module_gemma_fused_add_rmsnorm,
        layernorm=_norm_layer.module_layernorm,
    )
    return SimpleNamespace(build_and_load=lambda: module)
