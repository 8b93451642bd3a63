"""For which GPUs a kernel's C++ runner goes on: the check of the GPU's number in its file, read and never compiled."""

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
_NUMBER = re.compile(r"kSM_(\d+)")


def read_runner(root: Path, name: str) -> tuple[Admission, ...]:
    """What the only such check of a file, "data/include/flashinfer/x.cuh" below the package folder, lets through.

    Nothing where there is no such file, no such check or more than one, or where what it asks is not the GPU's number.
    """
    text = read_text(root / name)
    if isinstance(text, Missing):
        return ()
    code = _COMMENT.sub(_blank, text)
    checks = list(_CHECK.finditer(code))
    if len(checks) != 1 or not re.search(rf"\b{checks[0]['name']}\s*[({{=]\s*getSMVersion\(\)", code):
        return ()
    numbers = {int(number) for number in _NUMBER.findall(checks[0][0])}
    line = code.count("\n", 0, checks[0].start("name")) + 1
    return (
        Admission(
            source=f"{name}:{line}",
            admits=tuple(sorted(numbers)),
            refuses=tuple(sm for sm in CAPABILITIES if sm not in numbers),
        ),
    )


def _blank(comment: re.Match[str]) -> str:
    return "\n" * comment[0].count("\n")
