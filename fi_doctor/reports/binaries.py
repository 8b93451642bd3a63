"""What the shared objects hold for the GPUs of a report, a line for each package; machine formats have the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fi_doctor.model import Binary, Facts, Missing
from fi_doctor.model.gpu_code import Reach, architectures, of_file
from fi_doctor.reports.text import amount, names

TITLE = "GPU code of binaries"
_NAMED = "--binary"
_ORDER = ("vllm", "torch", "flashinfer-jit-cache", "flashinfer cache", _NAMED)
_WORDS = {
    Reach.NATIVE: "natively",
    Reach.JIT: "by PTX JIT",
    Reach.REFUSED: "only as PTX that the driver refuses",
    Reach.NOT: "not at all",
    Reach.UNSURE: "not known",
}
_MOST = 4  # files of one kind that are named


def lines(facts: Facts) -> list[str]:
    """Owner by owner how many files load how, for each kind of GPU; nothing where nothing with GPU code was read."""
    binaries = facts.binaries
    if isinstance(binaries, Missing):
        return []
    sms = _sms(facts)
    found: list[str] = []
    for owner in _ORDER:
        files = [one for one in binaries.files if one.owner == owner and one.units]
        if owner == _NAMED:
            # One that belongs to a package is counted there, too.
            asked = [one for one in binaries.files if one.owner == owner or one.path in binaries.named]
            found += [_of_named(one, sms, facts) for one in asked]
        elif files and sms:
            found += [f"{owner} on SM{sm}: {'; '.join(_of_owner(files, sm, facts))}" for sm in sms]
        elif files:
            found.append(f"{owner}: {amount(len(files), 'file')} for {_archs(files)}")
    return [*found, *(f"not read: {path}: {why}" for path, why in binaries.unread.items())]


def _of_owner(files: list[Binary], sm: int, facts: Facts) -> Iterator[str]:
    """How many load how, those that do not natively by name."""
    for reach, words in _WORDS.items():
        those = [one for one in files if of_file(one, sm, _driver_cuda(facts)) is reach]
        if not those:
            continue
        said = f"{amount(len(those), 'file')} {words}"
        if reach is not Reach.NATIVE:
            said += f" ({names((f'{PurePosixPath(one.path).name} {_archs([one])}' for one in those), _MOST)})"
        yield said


def _of_named(one: Binary, sms: list[int], facts: Facts) -> str:
    if not one.units:
        return f"{one.path}: no GPU code"
    reached = [f"SM{sm} {_WORDS[reach]}" for sm in sms if (reach := of_file(one, sm, _driver_cuda(facts))) is not None]
    return f"{one.path}: {', '.join(reached)} ({_archs([one])})" if reached else f"{one.path}: {_archs([one])}"


def _archs(files: list[Binary]) -> str:
    return " ".join(architectures(unit for one in files for unit in one.units))


def _driver_cuda(facts: Facts) -> str | Missing:
    driver = facts.gpus.driver
    return driver if isinstance(driver, Missing) else driver.cuda


def _sms(facts: Facts) -> list[int]:
    gpus = facts.gpus.gpus
    return [] if isinstance(gpus, Missing) else sorted({gpu.sm for gpu in gpus if isinstance(gpu.sm, int)})
