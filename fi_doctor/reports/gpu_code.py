"""The GPU code of binaries in words: of packages how many load how, of named files everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from fi_doctor.model import Binary, Facts, Gpu, Loads, Missing, loads
from fi_doctor.reports.text import amount, clean, names

_NAMED = "--binary"
_WORDS = {Loads.NATIVE: "for", Loads.PTX: "by PTX JIT on", Loads.NOT: "not for"}


def of_package(facts: Facts, gpus: list[Gpu], package: str) -> str:
    """How its binaries load on these GPUs: "vllm's GPU code: 7 files for SM90, 2 not for SM90"; "" without any."""
    files = [one for one in _known(facts).values() if one.package == package and one.code]
    sms = sorted({gpu.sm for gpu in gpus if not isinstance(gpu.sm, Missing)})
    told = []
    for sm in sms:
        counts = Counter(loads(one.code, sm) for one in files)
        told += [f"{amount(counts[how], 'file')} {said} SM{sm}" for how, said in _WORDS.items() if counts[how]]
    return f"{package}'s GPU code: {', '.join(told)}" if told else ""


def named(facts: Facts, gpus: list[Gpu]) -> Iterator[str]:
    """A line for each file that somebody asked about: its architectures, how they load here, what is not found."""
    sms = sorted({gpu.sm for gpu in gpus if not isinstance(gpu.sm, Missing)})
    for path, binary in sorted(facts.binaries.items()):
        if isinstance(binary, Binary) and binary.package == _NAMED:
            yield f"{clean(path)}: {'; '.join(_told(binary, sms))}"


def _told(binary: Binary, sms: list[int]) -> Iterator[str]:
    if not binary.code:
        yield str(Loads.HOST.value)
    else:
        yield ", ".join(f"{clean(name, 20)}" for name in binary.code)
        yield from (f"on SM{sm} {loads(binary.code, sm).value}" for sm in sms)
    if isinstance(binary.not_found, Missing):
        yield f"what it needs is not known: {clean(binary.not_found.reason, 100)}"
    elif binary.not_found:
        yield f"not found: {names(clean(PurePosixPath(name).name, 60) for name in binary.not_found)}"
    elif binary.needs:
        yield f"linked with {names(clean(name, 60) for name in binary.needs)}, all found"


def _known(facts: Facts) -> dict[str, Binary]:
    return {path: one for path, one in facts.binaries.items() if isinstance(one, Binary)}
