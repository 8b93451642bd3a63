from flashinfer.jit.gemm import Spec


def gen_tinygemm2_module():
    return Spec("tinygemm2")
