"""Does the shell line show the failure of one variant alone? Its first call fails, which counts as the build."""

import sys

PROBE = {
    "id": "fake.by_hand",
    "feature": "fake.by_hand",
    "gpus": 0,
    "timeout_s": 20,
    "compiles": ["triton"],
    "variants": {"good": {}, "bad one": {}},
}


def build(variant):
    return False


def run(variant):
    if variant == "bad one":
        raise RuntimeError("Triton: no such layout")
    return {}


if __name__ == "__main__":
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        sys.stdout.write(f"{name} {run(name)}\n")
