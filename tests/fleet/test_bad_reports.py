"""What lies in folders of reports: broken, old, doubled, hostile; the rest is told all the same."""

import copy
import json
import os

import pytest
import simulated
from test_grouping import BASE, nodes

from fi_doctor.errors import CannotTellError, UsageError
from fi_doctor.fleet import rendering, sources
from fi_doctor.fleet.reading import NodeReport
from fi_doctor.reports import document, files

ONE, TWO, THREE = nodes(None, None, None)


def test_what_cannot_be_read_is_named_and_the_rest_is_told(merged, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_BYTES", 4_000_000)
    broken = {
        "cut": ONE.found[:5000],
        "empty": b"",
        "huge": b" " * 4_000_001,
        "list": b"[1]",
        "newer": ONE.found.replace(b"fi-doctor.report/1.6", b"fi-doctor.report/9.0"),
        "other": json.dumps({"schema": "fi-doctor.report/1.6", "facts": []}).encode(),
        "twice": ONE.found.replace(b'"os": "Ubuntu', b'"os": "x", "os": "Ubuntu'),
        "yaml": b"a: [",
    }
    found = merged([ONE, *(NodeReport(name, data, f"{name}.json") for name, data in broken.items()), TWO]).document
    assert [one.name for one in found.nodes] == ["node-0", "node-1"]
    assert [one.name for one in found.unread] == sorted(broken)
    assert all(one.what and one.why and one.todo for one in found.unread)
    assert found.gate.code == 3
    assert "8 not read" in found.gate.reason


def test_without_any_report_that_can_be_read_nothing_can_be_told(merged):
    found = merged([NodeReport("a", b"")])
    assert found.document.gate.code == 3
    assert all(rendering.render(found, form) for form in rendering.FORMATS)


def test_reports_of_older_schemas_are_compared_by_what_they_tell(merged):
    """What an old report had no field for is no drift."""
    old = json.loads(TWO.found)
    old["schema"] = "fi-doctor.report/1.2"
    for group in ("binaries", "site", "host_limits", "machine", "triton_ptxas", "ray_copies", "calls", "installed_on"):
        del old["facts"][group]
    for field in ("memory_left_mib", "own_ipc_namespace", "own_pid_namespace", "hostname"):
        old["facts"]["system"].pop(field, None)
    for gpu in old["facts"]["gpus"]["gpus"]:
        for field in ("nvlinks", "acs_bridges", "iommu", "compute_mode", "compute_processes"):
            del gpu[field]
    del old["facts"]["gpus"]["links"], old["facts"]["packages"]["cuda-tile"], old["facts"]["packages"]["vllm"]["claims"]
    found = merged([ONE, TWO._replace(found=json.dumps(old).encode()), THREE]).document
    assert [(len(group.nodes), group.is_odd) for group in found.groups] == [(3, False)]
    simulated.libc(old["facts"])
    found = merged([ONE, TWO._replace(found=json.dumps(old).encode()), THREE]).document
    assert [drift.fact for group in found.groups for drift in group.drifts] == ["system.libc"]


def test_yaml_and_reports_made_here_are_taken_too(merged):
    report = document.read(ONE.found, "one")
    told = [ONE, TWO._replace(found=document.to_yaml(document.read(TWO.found, "two")).encode())]
    other = copy.deepcopy(json.loads(THREE.found))
    found = merged([*told, THREE._replace(found=document.read(json.dumps(other).encode(), "three"))]).document
    assert report.facts
    assert [(len(group.nodes), group.is_odd) for group in found.groups] == [(3, False)]


def test_of_one_node_the_newest_report_counts_and_it_is_said(merged):
    old = json.loads(ONE.found)
    old["created"] = "2020-01-01T00:00:00+00:00"
    simulated.driver(old["facts"])
    doubled = NodeReport("node-0-old", json.dumps(old).encode(), "node-0-old.json")
    found = merged([doubled, ONE, TWO]).document
    assert [one.name for one in found.nodes] == ["node-0", "node-1"]
    assert not any(group.is_odd for group in found.groups)
    assert found.notes[0].startswith("node-0: its newest report counts")
    assert "node-0-old.json of 2020-01-01" in found.notes[0]


@pytest.mark.parametrize(
    ("real", "other", "why"),
    [
        ("2025-11-28T13:52:39+00:00", "2025-11-28T23:52:39+14:00", ""),
        ("2025-11-28T13:52:39", "2025-11-28T14:00:00+01:00", ""),
        ("2025-11-28T13:52:39Z", "zzz", ", which is no time"),
        ("2025-11-28T13:52:39+00:00", "2999-01-01T00:00:00+00:00", ", which is to come"),
    ],
)
def test_the_newest_is_so_by_its_instant_and_what_is_no_time_or_to_come_is_none(merged, real, other, why):
    one = json.loads(ONE.found) | {"created": real}
    again = NodeReport("again", json.dumps(one | {"created": other}).encode(), "zz.json")
    found = merged([again, ONE._replace(found=json.dumps(one).encode()), TWO]).document
    assert [one.name for one in found.nodes] == ["node-0", "node-1"]
    assert found.notes == (f"node-0: its newest report counts, of {real}; left out: zz.json of {other}{why}",)


def test_reports_of_one_node_without_a_time_are_taken_by_name_and_it_is_said(merged):
    one = json.dumps(json.loads(ONE.found) | {"created": "zzz"}).encode()
    found = merged([NodeReport("b", one, "b.json"), NodeReport("a", one, "a.json")]).document
    assert [node.name for node in found.nodes] == ["b"]
    (said,) = found.notes
    assert said.startswith("b: none of its reports tells when it was made; the last by name counts, b.json of zzz")
    assert said.endswith("; left out: a.json of zzz, which is no time")


def test_a_report_that_tells_of_a_row_twice_is_not_read(merged):
    twice = json.loads(TWO.found)
    row, *rest = twice["features"]
    twice["features"] = [row, *rest, row | {"verdict": "broken"}]
    found = merged([ONE, TWO._replace(found=json.dumps(twice).encode()), THREE]).document
    assert [(one.name, one.why) for one in found.unread] == [("node-1", "it has the row 'comm.all2all' on SM90 twice")]
    twice["features"][-1]["sm"] = 100
    assert merged([TWO._replace(found=json.dumps(twice).encode())]).document.unread == ()


def test_two_machines_of_one_name_are_told_apart(merged):
    one, two = nodes(None, None, names=["gpu-1", "gpu-1"])
    found = merged([one._replace(source="a/gpu-1.json"), two._replace(source="b/gpu-1.json")]).document
    assert [node.name for node in found.nodes] == ["gpu-1 (a/gpu-1.json)", "gpu-1 (b/gpu-1.json)"]
    assert any("gpu-1 is the name of 2 machines with other GPUs" in note for note in found.notes)


def test_machines_that_nobody_gave_a_name_are_not_taken_for_one(merged):
    def unnamed(facts):
        facts["gpus"].update(gpus=[], cuda_order=[], links=[])
        facts["system"]["hostname"] = "ubuntu"

    assert len(merged(nodes(unnamed, unnamed)).document.nodes) == 2


def test_two_interpreters_of_one_node_are_two(merged):
    other = json.loads(ONE.found)
    other["facts"]["interpreter"]["executable"] = "/other/bin/python"
    found = merged([ONE, NodeReport("node-0", json.dumps(other).encode(), "other.json")]).document
    assert len(found.nodes) == 2
    assert "node-0 (/other/bin/python)" in {node.name for node in found.nodes}


@pytest.mark.parametrize("form", rendering.FORMATS)
def test_names_obey_nobody_and_keep_secrets(merged, form):
    name = "node\x1b[31m\u202e<script>|`hf_abcdefghijklmnopqrstuvwx"
    found = merged([NodeReport(name, ONE.found, f"{name}.json"), TWO, NodeReport(name, b"")])
    text = rendering.render(found, form)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "hf_abcdefghijklmnop" not in text
    assert "<script>" not in text or form in ("console", "json", "yaml", "prometheus")


@pytest.mark.parametrize("form", rendering.FORMATS)
def test_names_that_are_not_unicode_are_written_in_every_format(merged, form):
    name = os.fsdecode(b"node-\xff")
    text = rendering.render(merged([NodeReport(name, ONE.found, f"{name}.json"), NodeReport(f"{name}2", b"")]), form)
    assert b"node-" in text.encode("utf-8", "strict" if form in {"json", "yaml"} else "backslashreplace")


def test_files_are_found_and_named_by_what_tells_them_apart(tmp_path):
    for node in ("node-1", "node-2"):
        folder = tmp_path / "all" / node / "tmp"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text("{}")
        (folder / "notes.txt").write_text("")
        (folder / ".hidden.json").write_text("{}")
    (tmp_path / "all" / "link.json").symlink_to(tmp_path / "all" / "node-1" / "tmp" / "report.json")
    (tmp_path / "all" / "loop").symlink_to(tmp_path / "all")
    (tmp_path / "all" / "gone.yaml").symlink_to(tmp_path / "nowhere")
    found = sources.paths([str(tmp_path / "all"), str(tmp_path / "all" / "node-*" / "tmp" / "*.json")])
    assert [path.removeprefix(f"{tmp_path}/all/") for path in found] == [
        "gone.yaml",
        "node-1/tmp/report.json",
        "node-2/tmp/report.json",
    ]
    link = str(tmp_path / "all" / "link.json")
    assert sources.paths([link]) == [link]
    assert sources.names(found[2:]) == ["report"]
    assert sources.names(["x/node-1/tmp/r.json", "x/node-2/tmp/r.json"]) == ["node-1", "node-2"]
    assert sources.names(["r/node-1.json", "r/node-2.yaml"]) == ["node-1", "node-2"]
    (gone, *_) = sources.reports(found, [])
    assert "No such file" in gone.found.why


def test_what_a_fleet_wrote_beside_the_reports_is_no_node(merged, tmp_path):
    found = merged([ONE, TWO])
    for form in ("json", "yaml"):
        (tmp_path / f"fleet.{form}").write_text(rendering.render(found, form))
    (tmp_path / "node-1.json").write_bytes(ONE.found)
    notes = []
    again = merged(sources.reports(sources.paths([str(tmp_path)]), notes), notes=notes).document
    assert [node.name for node in again.nodes] == ["node-1"]
    assert again.unread == ()
    assert [note.rpartition("/")[2].partition(" ")[0] for note in again.notes] == ["fleet.json", "fleet.yaml"]


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path, monkeypatch):
    (tmp_path / "node-1.json").write_bytes(ONE.found)
    (tmp_path / "node-2").mkdir()
    listed = sources.os.scandir

    def refused(path):
        if str(path).endswith("node-2"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(sources.os, "scandir", refused)
    found = sources.paths([str(tmp_path)])
    assert found == [str(tmp_path / "node-1.json"), str(tmp_path / "node-2")]


def test_folders_without_reports_say_what_to_do(tmp_path):
    with pytest.raises(CannotTellError, match="no report in") as empty:
        sources.paths([str(tmp_path)])
    assert empty.value.exit_code == 3
    assert "fi-doctor report --json" in empty.value.todo
    with pytest.raises(UsageError, match="there is no"):
        sources.paths([str(tmp_path / "nowhere")])


def test_the_base_of_these_tests_is_a_recorded_machine():
    assert BASE["schema"] == "fi-doctor.report/1.6"
