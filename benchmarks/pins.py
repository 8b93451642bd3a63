"""Writes what releases of vLLM, FlashInfer and torch require of each other (fi_doctor/knowledge/pins.json).

    python benchmarks/pins.py
    python benchmarks/pins.py --check

pip is asked, which reads the metadata of a wheel and not the wheel. The releases are those of benchmarks/registry.py,
those of FlashInfer that such a vLLM pins, and of torch all from OLDEST_TORCH to the newest that one pins. --check
writes nothing, and ends with 1 where the shipped data is not what is read now; with --only NAME-VERSION just that
release is checked.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from packaging.requirements import Requirement
from packaging.version import Version
from registry import RELEASES

from fi_doctor.knowledge import pins

# What moves together. Of torch the packages that say for which CUDA it is built.
WATCHED = {
    "vllm": re.compile(r"torch|flashinfer-(python|cubin|jit-cache)|nvidia-(cutlass-dsl|cudnn-frontend)|apache-tvm-ffi"),
    "flashinfer-python": re.compile(r"torch|nvidia-(cutlass-dsl|cudnn-frontend)|apache-tvm-ffi"),
    "torch": re.compile(r"cuda-toolkit|nvidia-cuda-runtime(-cu12)?"),
}
OLDEST_TORCH = Version("2.4")


def read(release):
    """What one release requires of what is watched, as its METADATA say."""
    name, version = release
    with tempfile.TemporaryDirectory() as folder:
        told = pathlib.Path(folder, "told.json")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"),
                *("--report", told, "--only-binary=:all:", "--use-feature=fast-deps", f"{name}=={version}"),
            ],
            check=True,
            capture_output=True,
        )
        [found] = json.loads(told.read_text())["install"]
    if found["metadata"]["version"] != version:
        sys.exit(f"pip takes {name} {found['metadata']['version']} for {version}: have it look at no other index")
    wanted = {line: Requirement(line) for line in found["metadata"].get("requires_dist", [])}
    return tuple(
        sorted(
            line
            for line, one in wanted.items()
            if WATCHED[name].fullmatch(one.name.lower()) and "extra ==" not in str(one.marker)
        )
    )


def releases(name, vllm):
    """Those of the registry, and those that some vLLM requires exactly."""
    wanted = (Requirement(line) for of in vllm.values() for line in of)
    versions = {
        bound.version for one in wanted if one.name == name for bound in one.specifier if bound.operator == "=="
    }
    every = RELEASES.get(name, ())
    if name == "torch":
        every = [one for one in published(name) if Version(one) <= max(map(Version, versions))]
    return sorted({*versions, *every}, key=Version)


def published(name):
    """Those that pip's index has, the oldest of them OLDEST_TORCH; none that is for a CUDA of its own, "+cpu"."""
    asked = (sys.executable, "-m", "pip", "index", "versions", name)
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    versions = re.search(r"^Available versions: (.*)$", told, re.MULTILINE)[1].split(", ")
    return [one for one in versions if "+" not in one and Version(one) >= OLDEST_TORCH]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--only", action="append", default=[])
    given = arguments.parse_args()
    found = {}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name in WATCHED:
            versions = releases(name, pins.load()["vllm"] if given.only else found.get("vllm", {}))
            wanted = [one for one in versions if not given.only or f"{name}-{one}" in given.only]
            found[name] = dict(zip(wanted, pool.map(read, [(name, one) for one in wanted]), strict=True))
    if not (given.check or given.only):
        pins.PATH.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{pins.PATH.name}: {', '.join(f'{len(of)} releases of {name}' for name, of in found.items())}")
        return
    shipped = pins.load()
    wrong = [
        f"{name} {version}: read {lines}, shipped {shipped[name].get(version)}"
        for name, of in found.items()
        for version, lines in of.items()
        if lines != shipped[name].get(version)
    ]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
