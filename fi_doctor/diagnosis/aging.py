"""Whether what is installed is newer than every release that the knowledge was checked on; pure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping

from fi_doctor.conditions.ranges import parse_version
from fi_doctor.model import Facts, Finding, KnowledgeBase, Package, Severity

OLDER = "knowledge-older-than-packages"
_CALLED = {"vllm": "vLLM", "flashinfer-python": "FlashInfer", "sglang": "SGLang"}
# The day that setuptools-scm writes in a build of a changed source tree: 0.34.0.dev1+g12ab34c.d20270115
_BUILT = re.compile(r"\.d(20\d\d)(\d\d)(\d\d)$")
_FIX = "fi-doctor check --knowledge FILE takes newer knowledge; a newer fi-doctor brings its own"


def find(kb: KnowledgeBase, facts: Facts) -> tuple[Finding, ...]:
    """A finding where vLLM, FlashInfer or SGLang is newer; it is for information, and changes no verdict."""
    versions = [
        (name, package.version)
        for name, package in facts.packages.items()
        if isinstance(package, Package) and isinstance(package.version, str)
    ]
    return tuple(
        Finding(
            id=OLDER,
            cause="knowledge-too-old",
            severity=Severity.INFO,
            title=said + _days(kb.version, version, facts.installed_on.get(name, "")),
            why=f"What is known need not hold of it; what is measured counts as ever.{_day_of(version)}",
            fix=(_FIX,),
            features=(),
            source=f"knowledge {kb.version}: kb.yaml: newest",
        )
        for name, version, said in _newer(kb.version, kb.newest, versions)
    )


def lines(knowledge: str, newest: Mapping[str, str], versions: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The same in a line each, for versions that a log tells: nothing there says when they were built or installed."""
    said = dict.fromkeys(said for _, _, said in _newer(knowledge, newest, versions))
    return tuple(f"{one}; newer knowledge may know more: --knowledge FILE" for one in said)


def _newer(
    knowledge: str, newest: Mapping[str, str], versions: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    for name, version in versions:
        found, known = parse_version(version.partition("+")[0]), parse_version(newest.get(name, ""))
        if found is None or known is None or found <= known:
            continue
        called = f"{_CALLED.get(name, name)} {version}"
        yield (
            name,
            version,
            f"{called} is newer than {known}, the newest release that knowledge {knowledge} was checked on",
        )


def _days(knowledge: str, version: str, installed: str) -> str:
    """By how many days the knowledge is older than that build or else its installation; "" where that is not told."""
    built = _BUILT.search(version)
    try:
        day = dt.date.fromisoformat("-".join(built.groups()) if built else installed)
        days = (day - dt.date(*map(int, knowledge.split(".")[:3]))).days
    except (ValueError, TypeError):
        return ""
    what = f"the day of its build, {day}" if built else f"the day of its installation here, {day}"
    return f"; that is {days} day{'' if days == 1 else 's'} older than {what}" if days > 0 else ""


def _day_of(version: str) -> str:
    if _BUILT.search(version):
        return ""
    return " The day is that of the times of its metadata; a wheel does not say when it was built."
