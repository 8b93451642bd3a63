"""Does the shell line show a failed build, without running anything?"""

import subprocess
import sys

PROBE = {
    "id": "fake.build_raises",
    "feature": "fake.build_raises",
    "gpus": 0,
    "timeout_s": 20,
    "variants": {"first": {}, "second": {}, "third": {}},
}


def build(variant):
    if variant == "second":
        subprocess.run(["echo", "the compiler speaks"], check=True)
        raise RuntimeError("Ninja build failed")


def run(variant):
    return {"variant": variant}


if __name__ == "__main__":
    for name in sys.argv[1:] or PROBE["variants"]:
        build(name)
        sys.stdout.write(f"{name} {run(name)}\n")
