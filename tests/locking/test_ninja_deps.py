"""What a module was compiled from, by the log of a real ninja."""

from __future__ import annotations

import os
import subprocess

import pytest
from installation import write
from ninja_samples import write_deps

from fi_doctor.facts.ninja_deps import Times, read, sources

BUILD = """
rule compile
  command = c++ -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
build {output}: compile {source}
"""


def build(folder, output, source):
    """One object, compiled by ninja with the log in `folder`."""
    write(source.parent / "first.h", '#include "second.h"\n')
    write(source.parent / "second.h", "\n")
    write(source, '#include "first.h"\nint answer() { return 42; }\n')
    write(folder / "build.ninja", BUILD.format(output=output, source=source))
    subprocess.run(["ninja", "-C", str(folder)], check=True, capture_output=True)


def test_the_log_of_ninja_is_read_as_ninja_reads_it(tmp_path):
    ops = tmp_path / "cached_ops"
    source = tmp_path / "csrc" / "norm.cpp"
    build(ops / "norm", "norm.o", source)
    said = subprocess.run(["ninja", "-C", str(ops / "norm"), "-t", "deps"], check=True, capture_output=True, text=True)
    listed = {line.strip() for line in said.stdout.splitlines() if line.startswith("    ")}
    assert {str(source), f"{source.parent}/first.h", f"{source.parent}/second.h"} <= listed
    assert set(read(ops / "norm" / ".ninja_deps")["norm.o"]) == listed
    assert set(sources(ops, "norm")) == listed


def test_a_header_that_is_no_longer_included_is_not_in_it(tmp_path):
    ops = tmp_path / "cached_ops"
    source = tmp_path / "csrc" / "norm.cpp"
    build(ops / "norm", "norm.o", source)
    write(source, "int answer() { return 42; }\n")
    subprocess.run(["ninja", "-C", str(ops / "norm")], check=True, capture_output=True)
    assert not [path for path in sources(ops, "norm") if path.endswith("first.h")]


def test_one_log_for_all_modules_is_parted_by_their_folders(tmp_path):
    ops = tmp_path / "cached_ops"
    build(ops, "norm/norm.o", tmp_path / "csrc" / "norm.cpp")
    assert [path for path in sources(ops, "norm") if path.endswith("norm.cpp")]
    assert sources(ops, "page") == ()


def test_what_tests_write_is_what_ninja_reads(tmp_path):
    write_deps(tmp_path / "norm", "norm", [tmp_path / "a.cu", tmp_path / "b.h"])
    write(tmp_path / "norm" / "build.ninja", "rule none\n  command = true\n  deps = gcc\nbuild norm/norm.o: none\n")
    said = subprocess.run(
        ["ninja", "-C", str(tmp_path / "norm"), "-t", "deps", "norm/norm.o"], check=True, capture_output=True, text=True
    )
    assert f"{tmp_path}/a.cu" in said.stdout
    assert sources(tmp_path, "norm") == (f"{tmp_path}/a.cu", f"{tmp_path}/b.h")


@pytest.mark.parametrize("cut", [0, 5, 14, 20, 40, -4, -1])
def test_a_log_that_is_cut_off_is_read_as_far_as_it_goes(tmp_path, cut):
    write_deps(tmp_path / "norm", "norm", [tmp_path / "a.cu"])
    path = tmp_path / "norm" / ".ninja_deps"
    path.write_bytes(path.read_bytes()[:cut])
    assert read(path) == {}
    assert sources(tmp_path, "norm") == ()


def test_what_is_no_log_is_none(tmp_path):
    path = tmp_path / ".ninja_deps"
    path.write_bytes(b"# ninjadeps\n\x04\0\0\0" + b"\xff" * 64)
    assert read(path) == {}
    path.write_bytes(b"something else")
    assert read(path) == {}


def _plans(folder):
    """Whether ninja would compile something."""
    said = subprocess.run(["ninja", "-C", str(folder), "-n"], check=True, capture_output=True, text=True)
    return "no work to do" not in said.stdout


def test_a_header_that_is_younger_or_gone_is_told_as_ninja_takes_it(tmp_path):
    folder = tmp_path / "cached_ops" / "norm"
    header = tmp_path / "csrc" / "second.h"
    build(folder, "norm.o", tmp_path / "csrc" / "norm.cpp")
    assert (Times().outdated(folder), _plans(folder)) == (((), ()), False)
    later = (folder / "norm.o").stat().st_mtime_ns + 1
    os.utime(header, ns=(later, later))
    assert (Times().outdated(folder), _plans(folder)) == (((str(header),), ()), True)
    header.unlink()
    assert (Times().outdated(folder), _plans(folder)) == (((), (str(header),)), True)
    (folder / "norm.o").unlink()
    assert Times().outdated(folder) == ((), ())
