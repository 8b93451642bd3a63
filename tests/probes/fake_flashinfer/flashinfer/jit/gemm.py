BUILT = []  # the modules that were compiled and loaded


class Spec:
    def __init__(self, name):
        self.name = name

    def build_and_load(self):
        BUILT.append(self.name)


def gen_gemm_module():
    return Spec("gemm")


def gen_fp8_blockscale_gemm_sm90_module():
    return Spec("fp8_blockscale_gemm_90")


def gen_mm_bf16_cublaslt_module():
    return Spec("mm_bf16_cublaslt")
