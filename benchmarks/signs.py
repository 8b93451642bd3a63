"""Whether the messages of signs are where their sources say.

    python benchmarks/signs.py --wheels FOLDER [FOLDER ...]

A folder has wheels, unpacked ones (NAME-VERSION), or is a site-packages. A source that names a release and a file,
"vllm 0.33.0: vllm/config/model.py:12; sglang ...", is looked up there. A string may be broken over lines, and a sign
may be the name of the file or of a function, as a traceback has it. "Python, of vllm ..." says only what was running.
Each sign that is in none of its files is printed, and what could not be looked up is counted. Ends with 1 if any is.
"""

import argparse
import functools
import pathlib
import re
import sys
import zipfile

from fi_doctor.knowledge import faults

SOURCE = re.compile(r"(?P<name>[a-z][\w.-]*) (?P<version>\d[\w.]*): (?P<path>[\w./+-]+\.\w+)")
# What stands between two parts of one string: quotes, the start of a line, `<<`, a prefix of Python.
SEAM = re.compile(rb"""['"]\s*(?:\\\n\s*|<<\s*)?[fFrRbBuU]{0,2}['"]""")
NUMBER = re.compile(rb"\{[^{}]{0,80}\}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wheels", type=pathlib.Path, nargs="+", required=True)
    packages = found_in(parser.parse_args().wheels)
    wrong = looked_up = elsewhere = 0
    for fault in faults.load_all():
        for sign in fault.signs:
            there = [(one, packages[one["name"], one["version"]]) for one in named(sign) if is_there(one, packages)]
            elsewhere += not there
            looked_up += bool(there)
            if there and not any(has(text(package, one["path"]), one["path"], sign.text) for one, package in there):
                wrong += 1
                print(f"{fault.id}: {sign.text!r} is not in {sign.source}")
    print(f"{looked_up} signs looked up, {wrong} not found; of {elsewhere} no release is at hand or none is named")
    return bool(wrong)


def named(sign):
    return [found.groupdict() for part in sign.source.split("; ") if (found := SOURCE.match(part))]


def is_there(one, packages):
    return (one["name"], one["version"]) in packages


def found_in(folders):
    """Name and version of each package, with its wheel or folder."""
    found = {}
    for folder in folders:
        for path in folder.iterdir():
            name, _, rest = path.name.removesuffix(".dist-info").partition("-")
            if path.suffix == ".whl":
                found.setdefault((name.replace("_", "-"), rest.partition("-")[0]), path)
            elif path.name.endswith(".dist-info"):
                found[name.replace("_", "-"), rest] = folder
            elif path.is_dir() and (unpacked := re.fullmatch(r"([a-z][\w-]*)-(\d[\w.]*)", path.name)):
                found.setdefault((unpacked[1].replace("_", "-"), unpacked[2]), path)
    return found


@functools.cache
def text(package, path):
    """The bytes of a file; none where there is no such file."""
    if package.is_dir():
        file = package / path
        return file.read_bytes() if file.is_file() else b""
    with zipfile.ZipFile(package) as wheel:
        return wheel.read(path) if path in wheel.namelist() else b""


@functools.cache
def joined(written):
    return NUMBER.sub(b"8", SEAM.sub(b"", written)).replace(rb"\"", b'"').replace(rb"\'", b"'")


def has(written, path, literal):
    if written and (literal.strip(".") in path or f"def {literal.removeprefix('in ')}(".encode() in written):
        return True
    said = literal.encode()
    return said in written or said in SEAM.sub(b"", written) or said in joined(written)


if __name__ == "__main__":
    sys.exit(main())
