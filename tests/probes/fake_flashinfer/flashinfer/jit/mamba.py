# ruff: noqa: PLR0917 - these are the signatures of FlashInfer
from types import SimpleNamespace

BUILT = []  # what the modules were compiled for


def gen_selective_state_update_sm90_module(
    state_dtype,
    input_dtype,
    weight_dtype,
    matrixA_dtype,  # noqa: N803
    stateIndex_dtype,  # noqa: N803
    state_scale_dtype,
    dim,
    dstate,
    ntokens_mtp,
    cu_seqlens_dtype,
    num_accepted_tokens_dtype,
    philox_rounds=0,
):
    assert state_scale_dtype is None
    assert philox_rounds == 0
    types = (state_dtype, input_dtype, weight_dtype, matrixA_dtype, stateIndex_dtype)
    key = (*types, dim, dstate, ntokens_mtp, cu_seqlens_dtype, num_accepted_tokens_dtype)
    return SimpleNamespace(build_and_load=lambda: BUILT.append(key))
