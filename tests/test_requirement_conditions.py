"""Requirements hold by the markers of the examined interpreter, whatever Python runs fi-doctor."""

from __future__ import annotations

import factory as make
import pytest
from msgspec.structs import replace

from fi_doctor.conditions.requirements import applicable, not_installed


def _facts(version="3.10.14", implementation="cpython", machine="aarch64", **changes):
    facts = make.facts(**changes)
    interpreter = replace(facts.interpreter, version=version, implementation=implementation)
    return replace(facts, interpreter=interpreter, system=replace(facts.system, machine=machine))


@pytest.mark.parametrize(
    "marker",
    [
        'python_version < "3.11"',
        'python_full_version >= "3.10.4"',
        'platform_machine == "aarch64" and sys_platform == "linux"',
        'platform_system != "Windows"',
        'platform_python_implementation == "CPython"',
        'implementation_name == "cpython"',
    ],
)
def test_a_line_for_the_examined_interpreter_applies(marker):
    assert applicable(f"tomli>=2; {marker}", _facts()) is not None


@pytest.mark.parametrize(
    "marker",
    [
        'python_version >= "3.11"',
        'platform_machine == "x86_64"',
        'sys_platform == "win32"',
        'platform_python_implementation == "PyPy"',
        'extra == "cu13"',
    ],
)
def test_a_line_for_another_interpreter_does_not_apply(marker):
    assert applicable(f"tomli>=2; {marker}", _facts()) is None


def test_a_python_between_releases_has_the_markers_of_its_version():
    assert applicable('x; python_version == "3.13"', _facts(version="3.13.0rc1+")) is not None


def test_pypy_is_told_from_cpython():
    assert applicable('x; platform_python_implementation == "PyPy"', _facts(implementation="pypy")) is not None


@pytest.mark.parametrize("line", ["torch>={0}", "torch!={0}", "torch>=1!{0}", "torch=={0}.*"])
def test_a_line_with_a_number_without_end_cannot_be_read(line):
    assert applicable(line.format("9" * 5001), _facts()) is None
    assert applicable(line.format("2"), _facts()) is not None


def test_a_marker_with_a_number_without_end_holds_nowhere():
    assert applicable(f'torch; python_version >= "{"9" * 5001}"', _facts()) is None


def test_what_only_another_python_needs_does_not_lack():
    lines = ('cuda-tile>=1.0; python_version >= "3.12"', 'cuda_python>=12; python_version < "3.12"')
    absent = {"cuda-tile": make.missing("not installed"), "cuda-python": make.missing("not installed")}
    flashinfer = make.package("flashinfer-python", "0.7.2.post1", requires=lines)
    facts = _facts(packages={"flashinfer-python": flashinfer, **absent})
    assert not_installed(facts) == (lines[1],)
    assert not_installed(_facts(version="3.12.1", packages=facts.packages)) == (lines[0],)
