"""Reads for which architectures each release of FlashInfer compiles: writes fi_doctor/knowledge/contexts.json.xz.

    python benchmarks/contexts.py --wheels FOLDER

FOLDER holds the wheels that benchmarks/releases.py --fetch leaves there. Its compilation_context.py is replayed for
each GPU and each release of the toolkit, as for an installed one.
"""

import argparse
import lzma
import pathlib
import sys
import tempfile
import zipfile

import msgspec

from fi_doctor.conditions.compilers import SINCE, TOOLKITS
from fi_doctor.facts import architectures
from fi_doctor.facts.flashinfer import read_cccl
from fi_doctor.knowledge import contexts, pins
from fi_doctor.model import Missing

VERSION = "flashinfer/data/cccl/libcudacxx/include/cuda/std/__cccl/version.h"


def read(wheel):
    """What is shipped of one release."""
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("flashinfer/compilation_context.py", folder)
            for name in {VERSION} & set(archive.namelist()):
                archive.extract(name, folder)
        root = pathlib.Path(folder, "flashinfer")
        cccl = read_cccl(root)
        if isinstance(cccl, Missing):
            cccl = Missing(reason="it brings no CCCL of its own", absent=True)
        return contexts.Context(sms={str(sm): _answers(root, sm) for sm in sorted(SINCE)}, cccl=cccl)


def _answers(root, sm):
    found = []
    for release in TOOLKITS:
        tags = architectures.for_capabilities(root, (sm,), release)
        said = contexts.Answer(since=release, tags=tags if isinstance(tags, tuple) else (), why="")
        if isinstance(tags, Missing):
            said = contexts.Answer(since=release, tags=(), why=tags.reason)
        if not found or (found[-1].tags, found[-1].why) != (said.tags, said.why):
            found.append(said)
    return tuple(found)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--wheels", type=pathlib.Path, required=True)
    folder = arguments.parse_args().wheels
    known = {}
    for release in pins.load()["flashinfer-python"]:
        [wheel] = folder.glob(f"flashinfer_python-{release}-*.whl")
        known[release] = read(wheel)
    text = msgspec.json.encode(known, order="deterministic")
    contexts.PATH.write_bytes(lzma.compress(text, format=lzma.FORMAT_XZ, preset=9))
    print(f"{len(known)} releases, {contexts.PATH.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
