"""Every recorded machine is judged again from its facts and outcomes, and looks as it did; none was touched."""

from __future__ import annotations

import hashlib
import pathlib
import re

import msgspec
import pytest

from fi_doctor import knowledge, pipeline
from fi_doctor.knowledge import examples
from fi_doctor.model import Request, Verdict
from fi_doctor.probing import catalog
from fi_doctor.reports import FORMATS, document, render

MACHINES = pathlib.Path(__file__).parent / "machines"
FOLDERS = sorted(path for path in MACHINES.iterdir() if path.is_dir())
RECORDINGS = sorted(MACHINES.glob("*/*.json"))
EXAMPLES = {
    "h200": "h200-cuda13.0-flashinfer0.7.2.post1/cold.json",
    "h200-flashinfer-0.5.3": "h200-cuda13.0-flashinfer0.5.3/cold.json",
}

named = pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: f"{path.parent.name}-{path.stem}")


def recorded(path):
    return document.read(path.read_bytes(), path.name)


def judged(path):
    report = recorded(path)
    request = msgspec.structs.replace(report.request, features=())
    # Who judged differs with every release; what was judged does not.
    done = pipeline.rejudge(report, request, kb=knowledge.load(), specs=catalog.discover())
    return msgspec.structs.replace(done, doctor=report.doctor)


def test_both_flashinfer_versions_are_recorded_cold_and_warm():
    versions = {(recorded(path).facts.flashinfer.version, path.stem) for path in RECORDINGS}
    assert versions >= {(version, state) for version in ("0.5.3", "0.7.2.post1") for state in ("cold", "warm")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_raw_output_is_what_the_origin_says(folder):
    origin = (folder / "ORIGIN.md").read_text()
    said = dict(re.findall(r"`([0-9a-f]{64})`\s+`(\w+\.json)`", origin))
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path.name for path in folder.glob("*.json")}
    assert found == said
    assert re.search(r"commit [0-9a-f]{7,40}", origin)


@named
@pytest.mark.parametrize("format_", FORMATS)
def test_a_recording_looks_as_its_golden_file_says(path, format_, golden):
    golden(f"machines/{path.parent.name}-{path.stem}.{format_}", render(judged(path), format_))


@named
def test_every_row_whose_probes_were_run_there_was_measured_on_the_gpu_and_none_of_them_is_unknown(path):
    rows = judged(path).features
    assert {row.feature for row in rows} == {feature.id for feature in knowledge.load().features}
    run = {outcome.feature for outcome in recorded(path).outcomes}
    assert run
    measured = [row for row in rows if row.feature in run]
    assert {row.feature for row in measured} == run
    assert [row.feature for row in measured if row.verdict is Verdict.UNKNOWN] == []
    assert [row.feature for row in rows if row.needs_gpu and row.sm != 90] == []


@named
def test_of_a_row_whose_probe_is_not_in_the_recording_nothing_is_said_to_work_or_to_fail(path):
    run = {outcome.feature for outcome in recorded(path).outcomes}
    others = [row for row in judged(path).features if row.feature not in run]
    assert {row.verdict for row in others} <= {Verdict.UNKNOWN, Verdict.UNSUPPORTED}


@named
def test_nothing_is_left_unexplained(path):
    assert [finding.title for finding in judged(path).findings if finding.id == "unexplained-failure"] == []


@named
def test_a_warm_check_compiled_nothing(path):
    built = {outcome.probe: outcome.cached for outcome in recorded(path).outcomes if "built" in outcome.seconds}
    assert built
    if path.stem == "warm":
        assert [probe for probe, cached in built.items() if not cached] == []
        assert [o.probe for o in recorded(path).outcomes if o.seconds.get("built", 0) > 2] == []


@pytest.mark.parametrize(("name", "recording"), EXAMPLES.items(), ids=EXAMPLES)
def test_an_example_is_a_recording_byte_for_byte(name, recording):
    assert examples.data(name) == (MACHINES / recording).read_bytes()


def test_every_example_is_one_of_the_recordings():
    assert set(examples.names()) == set(EXAMPLES)


def test_another_request_selects_rows_of_a_recording():
    report = recorded(RECORDINGS[0])
    request = Request(depth=report.request.depth, features=("norm.*",))
    rows = pipeline.rejudge(report, request, kb=knowledge.load(), specs=catalog.discover()).features
    assert {row.feature for row in rows} == {"norm.rmsnorm", "norm.fused_add_rmsnorm"}
