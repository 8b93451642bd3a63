"""Does a module load that ninja builds? Its sources are the fault's."""

PROBE = {"id": "chaos.module_b", "feature": "chaos.module_b", "module": "b", "gpus": 0, "build_timeout_s": 60}


def build():
    from flashinfer.ops import get_module

    get_module("b")


def run():
    return {}
