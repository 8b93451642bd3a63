"""For which GPUs a kernel's C++ goes on: what its file says of the GPU's number, read and never compiled."""

from __future__ import annotations

import re
from pathlib import Path

from fi_doctor.facts.admissions import CAPABILITIES
from fi_doctor.facts.files import read_text
from fi_doctor.model import Admission, Missing

ENDING = ".cuh"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# FLASHINFER_CHECK(mSM == kSM_100 || mSM == kSM_103, "..."): one number against constants that are called after theirs.
_CHECK = re.compile(
    r"^\s*FLASHINFER_CHECK\(\s*(?P<name>\w+)\s*==\s*kSM_\d+\s*(?:\|\|\s*(?P=name)\s*==\s*kSM_\d+\s*)*,", re.MULTILINE
)
# Of 1000 for SM100: nothing of the function is compiled for other GPUs.
_GUARD = re.compile(r"#if defined\(__CUDA_ARCH__\) && \(__CUDA_ARCH__ >= (\d+)0\)\n")
_NUMBER = re.compile(r"kSM_(\d+)")


def read_runner(root: Path, name: str) -> tuple[Admission, ...]:
    """What the only such check of a file, "data/include/flashinfer/x.cuh" below the package folder, lets through.

    Nothing where there is no such file, no such check or more than one, or where what it asks is not the GPU's number.
    "x.cuh:function" is a device function: for which GPUs its body is compiled at all.
    """
    file, _, function = name.partition(":")
    text = read_text(root / file)
    if isinstance(text, Missing):
        return ()
    code = _COMMENT.sub(_blank, text)
    if function:
        return _read_guard(file, function, code)
    checks = list(_CHECK.finditer(code))
    if len(checks) != 1 or not re.search(rf"\b{checks[0]['name']}\s*[({{=]\s*getSMVersion\(\)", code):
        return ()
    numbers = {int(number) for number in _NUMBER.findall(checks[0][0])}
    return (_admission(file, code, checks[0].start("name"), numbers),)


def _read_guard(file: str, function: str, code: str) -> tuple[Admission, ...]:
    """What the guard around the whole body says; nothing where the function is defined twice or begins otherwise."""
    found = list(re.finditer(rf"\b{re.escape(function)}\s*\([^;{{}}]*\)\s*\{{\s*", code))
    guard = _GUARD.match(code, found[0].end()) if len(found) == 1 else None
    if guard is None:
        return ()
    numbers = {sm for sm in CAPABILITIES if sm >= int(guard[1])}
    return (_admission(file, code, guard.start(), numbers),)


def _admission(file: str, code: str, at: int, numbers: set[int]) -> Admission:
    line = code.count("\n", 0, at) + 1
    refuses = tuple(sm for sm in CAPABILITIES if sm not in numbers)
    return Admission(source=f"{file}:{line}", admits=tuple(sorted(numbers)), refuses=refuses)


def _blank(comment: re.Match[str]) -> str:
    return "\n" * comment[0].count("\n")
