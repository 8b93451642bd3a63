"""Recorded machines with something else installed, judged again, for tests of what an upgrade would mend."""

from __future__ import annotations

import functools
import pathlib

from msgspec.structs import replace

from fi_doctor import knowledge, pipeline
from fi_doctor.knowledge import pins
from fi_doctor.model import Driver, Missing, Package
from fi_doctor.probing import catalog
from fi_doctor.reports import document

MACHINES = pathlib.Path(__file__).parent / "machines"
TWO_H200 = "2xh200-cuda13.0-flashinfer0.5.3/warm.json"
H200 = "h200-cuda13.0-flashinfer0.5.3/warm.json"
ABSENT = Missing(reason="not installed", absent=True)


@functools.cache
def shipped():
    return knowledge.load(), catalog.discover()


@functools.cache
def recorded(name):
    return document.read_file(MACHINES / name)


def judged(name, packages=None, *, environment=None, cuda=None):
    """A recording's report with other packages (None: not installed, else the version), variables or driver."""
    return _judged(name, tuple((packages or {}).items()), tuple((environment or {}).items()), cuda)


def judged_anew(name):
    """As it is, for a test that changes what a judgement reads."""
    return _judged.__wrapped__(name, (), (), None)


@functools.cache
def _judged(name, packages, environment, cuda):
    report = recorded(name)
    facts = report.facts
    put = {of: package(facts, of, version) for of, version in packages}
    facts = replace(facts, packages={**facts.packages, **put}, environment={**facts.environment, **dict(environment)})
    if put.get("vllm") is ABSENT:
        facts = replace(facts, vllm=ABSENT, calls=ABSENT)
    if cuda:
        facts = replace(facts, gpus=replace(facts.gpus, driver=Driver(version="535.1", cuda=cuda)))
    kb, specs = shipped()
    return pipeline.rejudge(replace(report, facts=facts), report.request, kb=kb, specs=specs)


def package(facts, name, version):
    """An installed distribution, which requires what this release of it does."""
    if version is None:
        return ABSENT
    beside = facts.packages["flashinfer-python"]
    lines = pins.load().get(name, {}).get(version.partition("+")[0], ())
    known = facts.packages.get(name)
    base = known if isinstance(known, Package) else replace(beside, name=name)
    return replace(base, version=version, requires=lines)
