"""What runs on a machine with a GPU, as far as it goes without one: its probes, and what it complains about."""

import functools
import importlib.util
import itertools
import pathlib

import factory as make
import pytest

from fi_doctor import knowledge, pipeline
from fi_doctor.diagnosis import cells
from fi_doctor.model import Ending, Evidence, Stage, Verdict
from fi_doctor.probing import catalog
from fi_doctor.reports import document

FOLDER = pathlib.Path(__file__).parent / "gpu"
PROBES = sorted(FOLDER.glob("gpu_*.py"))
RECORDED = sorted(FOLDER.glob("*/*.json"))


@pytest.fixture
def record():
    spec = importlib.util.spec_from_file_location("chaos_gpu_record", FOLDER / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.GOING_S = 0.1
    return module


def test_each_fault_has_a_probe(record):
    parsed = [catalog.parse(path.read_text(), str(path), "tests") for path in PROBES]
    assert {one.feature for one in parsed} == set(record.FAULTS)
    assert {name for one in parsed for name in one.variants} >= set(record.GOOD)


def report(verdict, why, *, sound="works", near="works"):
    cells = [{"variant": "far", "verdict": "broken"}, {"variant": "near", "verdict": near}]
    rows = [{"feature": name, "verdict": sound} for name in ("norm.rmsnorm", "activation.silu_and_mul")]
    own = {"feature": "gpu.illegal_access", "verdict": verdict, "why": why, "cells": cells}
    return {"features": [*rows, own], "seconds": 1.0}


@pytest.mark.parametrize(
    ("given", "used", "complaints"),
    [
        (report("broken", "CUDA error: an illegal memory access was encountered"), [100], 0),
        (report("works", ""), [100], 1),
        (report("broken", "illegal memory access", sound="broken"), [100], 2),
        (report("broken", "illegal memory access", near="broken"), [100], 1),
        (report("broken", "illegal memory access"), [100, 900], 1),
    ],
    ids=["survived", "not seen", "others broken", "variant broken", "memory left"],
)
def test_what_is_not_as_it_should_be_is_a_complaint(record, tmp_path, given, used, complaints):
    left = itertools.chain(used, itertools.repeat(used[-1]))
    record.used_mib = lambda: next(left)
    record.check = lambda *_: given
    sound = dict.fromkeys(record.SOUND, "works")
    assert len(record.tried("gpu.illegal_access", tmp_path, tmp_path, sound, tmp_path)) == complaints


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_was_recorded_is_judged_so_today(record, path):
    rows = rejudged(path)
    usual = rejudged(path.with_name("without.json"))
    assert {name: rows[name].verdict for name in record.SOUND} == {name: usual[name].verdict for name in record.SOUND}
    if path.stem in record.FAULTS:
        verdict, words = record.FAULTS[path.stem]
        assert rows[path.stem].verdict == verdict
        assert words in rows[path.stem].why
        assert rows[path.stem].evidence == ("none" if verdict == "unknown" else "ran")


def test_each_fault_is_recorded_with_both_releases(record):
    names = {path.parent.name for path in RECORDED}
    assert {name.rpartition("flashinfer")[2] for name in names} == {"0.5.3", "0.7.2.post1"}
    assert {(path.parent.name, path.stem) for path in RECORDED} == {
        (name, stem) for name in names for stem in ("without", *record.FAULTS)
    }


@functools.cache
def rejudged(path):
    report = document.read(path.read_bytes(), path.name)
    own = tuple(catalog.parse(probe.read_text(), str(probe), "tests") for probe in PROBES)
    found = pipeline.rejudge(report, report.request, kb=knowledge.load(), specs=(*catalog.discover(), *own))
    return {row.feature: row for row in found.features}


@pytest.mark.parametrize("said", ["an illegal memory access was encountered", "device-side assert triggered"])
def test_a_kernel_that_was_running_is_to_blame_whoever_compiled_it(said):
    """Triton compiles at its first call, so that its kernels fail before anything is said to be built."""
    happened = make.cell(Ending.RAISED, Stage.IMPORTED, "far", detail=f"CUDA error: {said}", error="AcceleratorError")
    judged = cells.judge_outcome(happened, builds=True, rest="", has_gpu=True)
    assert (judged.verdict, judged.evidence) == (Verdict.BROKEN, Evidence.RAN)
    assert said in judged.why
    assert not judged.why.startswith("compiling or loading fails")
