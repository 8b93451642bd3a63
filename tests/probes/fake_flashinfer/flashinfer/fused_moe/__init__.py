import enum

from flashinfer.fused_moe.core import cutlass_fused_moe as cutlass_fused_moe


class QuantFormat(enum.Enum):
    BF16 = 0
    DeepSeekFp8 = 1
