"""Reads releases of vLLM and FlashInfer beforehand, and writes what is shipped of them (fi_doctor/knowledge/releases).

    python benchmarks/releases.py --wheels FOLDER [--fetch]

FOLDER holds wheels (`pip download --no-deps vllm==0.33.0 flashinfer-python==0.7.2.post1`). Each is read by itself, and
the calls of each vLLM with the FlashInfer that it requires, if that is there. To be run again when a reader (READERS in
fi_doctor/facts/released.py) or the names that are asked of FlashInfer have changed: what is shipped is not used then.
--fetch: what is missing of the releases in knowledge/pins.json is fetched with pip, and vLLM's wheels, which are large,
are not kept.
"""

import argparse
import email
import lzma
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile
from functools import partial

from msgspec.structs import replace

from fi_doctor import knowledge
from fi_doctor.diagnosis import symbols as named
from fi_doctor.facts import packages, released
from fi_doctor.knowledge import pins
from fi_doctor.locking.readings import Readings
from fi_doctor.model import Missing
from fi_doctor.probing import catalog


def unpack(wheel, site):
    """What is read of a wheel: Python, metadata, vLLM's Rust program and the headers that say what a kernel is for."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith((".py", "vllm-rs", ".cuh")) or ".dist-info/" in name:
                archive.extract(name, site)
    for record in site.glob("*.dist-info/RECORD"):
        record.touch()  # as an installer does, at last


def wheels(folder):
    """(name, version) -> path."""
    found = {}
    for path in folder.glob("*.whl"):
        name, version = path.name.split("-")[:2]
        found[name, version.partition("+")[0]] = path
    return found


def required(wheel):
    """The version of flashinfer-python that a vLLM asks for."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", ())
    return {found[1] for line in lines if (found := re.match(r"flashinfer-python\s*==\s*([\w.]+)", line))}


def shipped(read):
    """Have a reading made, under the name and key that it is looked for with, and write it."""
    asked = []
    released.recall = lambda name, key, _: asked.append((name, key))
    found = read()
    [(name, key)] = asked
    if isinstance(found, Missing) or not key:
        sys.exit(f"{name}: {found if isinstance(found, Missing) else 'its files are younger than its RECORD'}")
    path = released.FOLDER / f"{name}{released.ENDING}"
    released.write(path, key, replace(found, root="") if hasattr(found, "root") else found)
    if tempfile.gettempdir().encode() in lzma.decompress(path.read_bytes()):
        sys.exit(f"{path} names a folder of this machine")
    print(f"{path.name}: {path.stat().st_size} bytes")


def fetched(name, version, folder):
    """The wheel of a release, as pip gives it."""
    named = f"{name.replace('_', '-')}=={version}"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, named], check=True)
    return wheels(folder)[name, version]


def read(name, version, wheel, there):
    """Read one release, and write what is shipped of it. there: the wheels of FlashInfer that a vLLM may require."""
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder, "site")
        readings = Readings(pathlib.Path(folder, "memory"))
        unpack(wheel, site)
        if name == "flashinfer_python":
            symbols = named.of(knowledge.load(), catalog.discover())
            shipped(partial(readings.named, site / "flashinfer", f"flashinfer {version}", symbols))
            return
        for other in required(wheel) & {version for name, version in there if name == "flashinfer_python"}:
            unpack(there["flashinfer_python", other], site)
        survey = packages.survey(sys.executable, {**os.environ, "PYTHONPATH": str(site)})
        shipped(partial(readings.vllm, survey))
        if (site / "flashinfer").is_dir():
            shipped(partial(readings.calls, survey))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--wheels", type=pathlib.Path, required=True)
    arguments.add_argument("--fetch", action="store_true")
    asked = arguments.parse_args()
    there = wheels(asked.wheels)
    known = {name: pins.load()[name.replace("_", "-")] for name in ("flashinfer_python", "vllm")}
    if asked.fetch:
        for version in known["flashinfer_python"]:
            if ("flashinfer_python", version) not in there:
                there["flashinfer_python", version] = fetched("flashinfer_python", version, asked.wheels)
    for path in released.FOLDER.glob(f"*{released.ENDING}"):
        path.unlink()
    for (name, version), wheel in sorted(there.items()):
        if version in known.get(name, ()):
            read(name, version, wheel, there)
    for version in known["vllm"] if asked.fetch else ():
        if ("vllm", version) not in there:
            with tempfile.TemporaryDirectory() as folder:
                read("vllm", version, fetched("vllm", version, pathlib.Path(folder)), there)


if __name__ == "__main__":
    main()
