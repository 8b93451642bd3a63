"""--from FILE: what cannot be read is said with a reason and a way out."""

from __future__ import annotations

import json

import pytest
from cli_command import in_three_parts

BOMB = "a: &a [x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
UNREADABLE = {
    "empty": (b"", "it is empty"),
    "binary": (bytes(range(256)) * 16, "cannot be read"),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(64), "cannot be read"),
    "compressed": (b"\x1f\x8b\x08\x00" + bytes(32), "gzip"),
    "text": (b"the GPU is broken, please help\n", "expected a mapping"),
    "a-list": (b"[1, 2, 3]", "expected a mapping"),
    "no-report": (b'{"hello": "world"}', 'it has no "schema"'),
    "yaml-no-report": (b"version: 3\nservices: {}\n", 'it has no "schema"'),
    "newer": (b'{"schema": "fi-doctor.report/2.0"}', "this one reads 1.x"),
    "not-whole": (b'{"schema": "fi-doctor.report/1.0"}', "missing required field"),
    "bomb": (BOMB.encode(), "alias"),
    "deep": (b"[" * 100_000, "nest"),
    "deep-json": (b'{"a":' * 100_000, "nested"),
    "tag": (b"a: !!python/object/apply:os.system [id]\n", "tag"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_report_is_2_with_a_reason(doctor, tmp_path, name):
    data, why = UNREADABLE[name]
    path = tmp_path / "given.yaml"
    path.write_bytes(data)
    done = doctor("check", "--from", path)
    refused(done, why)
    assert "given.yaml" in in_three_parts(done.stderr)["error"]


@pytest.mark.parametrize("command", ["check", "report"])
def test_a_report_that_is_cut_is_2_wherever_it_is_cut(doctor, command):
    data = doctor.report().read_bytes()
    path = doctor.folder / "cut.json"
    for length in (1, len(data) // 3, len(data) - 3):
        path.write_bytes(data[:length])
        refused(doctor(command, "--from", path), "JSON")


def test_a_newer_report_says_to_upgrade(doctor):
    path = doctor.report()
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("fi-doctor.report/1.", "fi-doctor.report/2."), encoding="utf-8")
    done = doctor("check", "--from", path)
    refused(done, "2.")
    assert "newer" in in_three_parts(done.stderr)["error"]
    assert "install a newer fi-doctor, from where this one came" in in_three_parts(done.stderr)["try"]


def test_a_missing_file_and_a_folder_are_2(doctor, tmp_path):
    refused(doctor("check", "--from", tmp_path / "none.yaml"), "No such file")
    refused(doctor("check", "--from", tmp_path), "directory")
    refused(doctor("check", "--from", ""), "directory")


def test_an_empty_stdin_is_2(doctor):
    done = doctor("check", "--from", "-")
    refused(done, "it is empty")
    assert "stdin" in in_three_parts(done.stderr)["error"]


def test_a_closed_stdin_is_2(doctor):
    done = doctor(argv=["sh", "-c", 'exec "$@" <&-', "sh", *doctor.argv("check", "--from", "-")])
    refused(done, "it is empty")


def refused(done, why):
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    said = in_three_parts(done.stderr)
    assert said["error"]
    assert why in said["why"]
    assert "Traceback" not in done.stderr


def test_a_recording_of_some_rows_is_judged_on_these(doctor):
    rows = {
        row["feature"]
        for row in json.loads(doctor("check", "--example", "h200-nvcc-12.6", "-f", "json").stdout)["features"]
    }
    assert {"moe.fp8_block", "kv.append_paged"} <= rows
    assert not {row for row in rows if row.startswith(("attention.", "norm.", "sampling."))}


def test_findings_of_a_recording_about_rows_that_are_not_selected_are_not_told(doctor):
    words = ("check", "--example", "h200-flashinfer-0.5.3", "-f", "json", "--feature", "import.*", "--no-config")
    for options in ((), ("--as-recorded",)):
        told = json.loads(doctor(*words, *options).stdout)["findings"]
        assert [one["id"] for one in told if one["features"]] == []
