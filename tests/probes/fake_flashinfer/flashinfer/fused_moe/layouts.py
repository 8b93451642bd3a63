"""How MXFP4 lies in memory: as 0.7.2 folds the scales, and as 0.5.3 wants them interleaved."""


def interleave_moe_weights_for_sm90_mixed_gemm(weight, quant_type="fp4"):
    """The order of the bytes is this stand-in's own; the real one is made by a kernel."""
    if quant_type != "fp4":
        raise ValueError(quant_type)
    return weight.flip(-1).contiguous()


def straight_weights(packed):
    return packed.flip(-1)


def interleave_moe_scales_for_sm90_mixed_gemm(scales, group_size=32):
    experts, rows, groups = scales.shape
    parts = scales.reshape(experts, rows // 64, 4, 16, groups // 4, 4)
    return parts.permute(0, 1, 4, 3, 2, 5).reshape(experts, rows // 64, groups // 4, 16, 16).contiguous()


def straight_scales(scales, rows, layout):
    """The scales [rows, K/32] of one expert, whatever shape they were given in."""
    if layout == "folded":
        parts = scales.reshape(rows // 64, -1, 16, 4, 4)
        return parts.permute(0, 3, 2, 1, 4).reshape(rows, -1)
    if layout == "raw":
        return scales.reshape(rows, -1)
    return scales.reshape(-1, rows, 4).permute(1, 0, 2).reshape(rows, -1)
