"""For which architectures a release of FlashInfer compiles on a GPU, and with whose CUDA C++ headers (CCCL).

Written by benchmarks/contexts.py from flashinfer/compilation_context.py and data/cccl of each release; of an installed
one the files themselves are read.
"""

from __future__ import annotations

import functools
import lzma
from pathlib import Path

import msgspec
from packaging.version import Version

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Data, Missing
from fi_doctor.model.numbers import whole

PATH = Path(__file__).with_name("contexts.json.xz")
_LAST_LITERAL = Version("0.6.6")


# Release of the toolkit -> its CCCL. Source: cub/version.cuh of nvidia-cuda-cccl-cu12 12.3.101, 12.4.127, 12.6.77,
# 12.8.90 and 12.9.27, and of nvidia-cuda-cccl 13.0.85, 13.1.115 and 13.2.75.
CCCL = {
    "12.3": "2.2.0",
    "12.4": "2.3.2",
    "12.6": "2.5.0",
    "12.8": "2.7.0",
    "12.9": "2.8.2",
    "13.0": "3.0.1",
    "13.1": "3.1.4",
    "13.2": "3.2.0",
}


class Answer(Data, frozen=True):
    """What it says from one release of the toolkit on."""

    since: str  # "12.8"
    tags: tuple[str, ...]  # "90a"; none: it compiles nothing
    why: str  # then


class Context(Data, frozen=True):
    """One release of FlashInfer."""

    sms: dict[str, tuple[Answer, ...]]  # SM -> answers, by release of the toolkit
    cccl: str | Missing  # that it brings; absent: it takes the toolkit's


@functools.cache
def load() -> dict[str, Context]:
    """By release of FlashInfer."""
    return msgspec.json.decode(lzma.decompress(PATH.read_bytes()), type=dict[str, Context])


def tags(flashinfer: str, sm: int, cuda: str) -> tuple[str, ...] | Missing:
    """The architectures, "90a". cuda: what FlashInfer's gates read, "12.8".

    Missing says why there are none, or that nothing is known of that release.
    """
    known = load().get(flashinfer)
    answers = known.sms.get(str(sm), ()) if known is not None else ()
    held = [one for one in answers if _key(one.since) <= _key(cuda)]
    if not held:
        return Missing(reason=f"flashinfer-python {flashinfer} with CUDA {cuda} is not in the shipped data")
    return held[-1].tags or Missing(reason=held[-1].why)


def takes_numbers_as_they_are(flashinfer: str) -> bool:
    """Whether a release gives an entry of FLASHINFER_CUDA_ARCH_LIST without a letter, "9.0", none of its own.

    Source: flashinfer/compilation_context.py of the releases to 0.6.6, and from 0.6.7.post3 on.
    """
    parsed = parse_version(flashinfer)
    return parsed is not None and parsed <= _LAST_LITERAL


def cccl(flashinfer: str) -> str | Missing:
    """The CCCL that a release of FlashInfer brings; absent where it brings none."""
    known = load().get(flashinfer)
    return Missing(reason=f"flashinfer-python {flashinfer} is not in the shipped data") if known is None else known.cccl


def _key(release: str) -> tuple[int, ...]:
    return tuple(number for part in release.split(".")[:2] if (number := whole(part)) is not None)
