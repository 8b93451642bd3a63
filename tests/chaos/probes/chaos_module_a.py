"""Does a module load that ninja builds? Its sources are the fault's."""

PROBE = {"id": "chaos.module_a", "feature": "chaos.module_a", "module": "a", "gpus": 0, "build_timeout_s": 3}


def build():
    from flashinfer.ops import get_module

    get_module("a")


def run():
    return {}
