"""Reads the settings of releases of vLLM, FlashInfer and SGLang, and writes what is shipped of them.

    python benchmarks/registry.py --wheels FOLDER
    python benchmarks/registry.py --wheels FOLDER --check

FOLDER holds wheels, or their Python files in folders such as vllm-0.33.0. What is not there is fetched with pip, one
wheel at a time, and of each only such a folder is kept: a wheel of vLLM has up to 500 MB. --check writes nothing, and
ends with 1 where the shipped data is not what is read now. With --only NAME-VERSION just that release is checked.
To be run again when a reader (fi_doctor/facts/registry*.py) has changed, and for new releases.
"""

import argparse
import concurrent.futures
import lzma
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import msgspec
from msgspec.structs import replace

from fi_doctor.facts import registry as reader
from fi_doctor.knowledge import registry as shipped
from fi_doctor.model import Missing
from fi_doctor.model.registry import Registry

MODULES = {"vllm": "vllm", "flashinfer-python": "flashinfer", "sglang": "sglang"}
# Of vLLM each release; of FlashInfer the last patch of each, and those that a vLLM pins; of SGLang about every third.
RELEASES = {
    "vllm": (
        *("0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0"),
        *("0.17.0", "0.17.1", "0.18.0", "0.18.1", "0.19.0", "0.19.1", "0.20.0", "0.20.1", "0.20.2", "0.21.0"),
        *("0.22.0", "0.22.1", "0.23.0", "0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0"),
        *("0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"),
    ),
    "flashinfer-python": (
        *("0.5.0", "0.5.1", "0.5.2", "0.5.3", "0.6.0", "0.6.1", "0.6.2", "0.6.3", "0.6.4", "0.6.5", "0.6.6"),
        *("0.6.7.post3", "0.6.8.post1", "0.6.9", "0.6.10.post1", "0.6.11.post3", "0.6.12", "0.6.13", "0.6.14"),
        *("0.6.15.post1", "0.6.16.post3", "0.6.16.post4", "0.6.17", "0.6.18.post1", "0.7.0.post1", "0.7.1"),
        *("0.7.2.post1", "0.7.4"),
    ),
    "sglang": (
        *("0.5.1.post3", "0.5.5.post3", "0.5.8.post1", "0.5.10.post1", "0.5.13.post1", "0.5.15.post1", "0.5.18"),
        *("0.5.20", "0.5.23"),
    ),
}


def unpacked(name, version, folder):
    """The folder with the Python files of a release, taken from its wheel where it is not there."""
    place = folder / f"{name}-{version}"
    if place.is_dir():
        return place
    wheels = list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if wheels:
        return unpack(wheels[0], place)
    with tempfile.TemporaryDirectory(dir=folder) as fetched:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", fetched]
        subprocess.run([*command, "--only-binary=:all:", f"{name}=={version}"], check=True)
        [wheel] = pathlib.Path(fetched).glob("*.whl")
        return unpack(wheel, place)


def unpack(wheel, place):
    """The Python files of a wheel, and vLLM's Rust program."""
    with tempfile.TemporaryDirectory(dir=place.parent) as half, zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith((".py", "/vllm-rs")) or ".dist-info/" in name:
                archive.extract(name, half)
        pathlib.Path(half).rename(place)
        pathlib.Path(half).mkdir()  # for what takes it away again
    return place


def read(name, version, folder):
    """The registry of a release, with the files that read flags and keys; as much of them as is shipped."""
    root = unpacked(name, version, folder) / MODULES[name]
    found = reader.read_registry(root, name, version)
    if isinstance(found, Missing) or found.unreadable:
        sys.exit(f"{name} {version}: {found.reason if isinstance(found, Missing) else found.unreadable}")
    found = reader.with_readers(found, root)
    cut = {
        word: replace(one, read_in=one.read_in[: shipped.MOST_READERS])
        for word, one in sorted(found.settings.items())
        if not isinstance(one.read_in, Missing)
    }
    return replace(found, settings=cut, release=version)


class Packer:
    """Puts the registries of several releases into one record."""

    def __init__(self, owner, registries):
        self.owner = owner
        self.registries = registries
        self.files = {}

    def pack(self):
        """All of it."""
        names = sorted({name for one in self.registries for name in one.settings})
        settings = {name: self.known(name) for name in names}
        releases = tuple(one.release for one in self.registries)
        return shipped.Shipped(owner=self.owner, releases=releases, files=tuple(self.files), settings=settings)

    def known(self, name):
        """One setting over all releases."""
        spans, places, readers = [], [], []
        for number, one in enumerate(self.registries):
            found = one.settings.get(name)
            if found is None:
                continue
            file, _, line = found.source.rpartition(":")
            record = replace(found, source="", read_in=Missing(reason="what reads it was not looked for"))
            self.add(spans, number, record)
            self.add(places, number, self.number(file), int(line))
            self.add(readers, number, tuple(self.number(path) for path in found.read_in))
        return shipped.Known(
            spans=tuple(shipped.Span(first=first, last=last, record=same) for first, last, same, _ in spans),
            places=tuple(shipped.Place(first=a, last=b, file=same, lines=tuple(more)) for a, b, same, more in places),
            readers=tuple(shipped.Readers(first=first, last=last, files=same) for first, last, same, _ in readers),
        )

    def add(self, spans, number, same, more=None):
        """Lengthen the last span, or begin one."""
        if spans and spans[-1][1] == number - 1 and spans[-1][2] == same:
            spans[-1][1] = number
            spans[-1][3].append(more)
        else:
            spans.append([number, number, same, [more]])

    def number(self, file):
        """What a file is called by."""
        return self.files.setdefault(file, len(self.files))


def differences(now: Registry, then: Registry | Missing):
    """What the shipped data says otherwise, in words."""
    if isinstance(then, Missing):
        return [then.reason]
    names = sorted(now.settings.keys() | then.settings.keys())
    pairs = [(name, now.settings.get(name), then.settings.get(name)) for name in names]
    return [f"{name}: read {new}, shipped {old}" for name, new, old in pairs if new != old]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--wheels", type=pathlib.Path, required=True)
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--only", action="append", default=[])
    given = arguments.parse_args()
    wrong = []
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        for owner, versions in RELEASES.items():
            wanted = [one for one in versions if not given.only or f"{owner}-{one}" in given.only]
            found = list(pool.map(read, [owner] * len(wanted), wanted, [given.wheels] * len(wanted)))
            if given.check:
                for one in found:
                    told = differences(one, shipped.at(owner, one.release))
                    print(f"{owner} {one.release}: {len(one.settings)} settings, {len(told)} differ")
                    wrong += told
            elif found:
                path = shipped.FOLDER / f"{owner}{shipped.ENDING}"
                path.parent.mkdir(exist_ok=True)
                text = msgspec.json.encode(Packer(owner, found).pack())
                path.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
                print(f"{path.name}: {len(versions)} releases, {path.stat().st_size} bytes, {len(text)} unpacked")
    if wrong:
        sys.exit("\n".join(wrong[:50]))


if __name__ == "__main__":
    main()
