def get_cuda_version():
    return "13.0"
