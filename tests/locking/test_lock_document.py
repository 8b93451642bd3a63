"""A lock that cannot be read says what is wrong with it, and is never half believed."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from installation import CREATED, Installation

from fi_doctor.errors import DataError
from fi_doctor.locking import document


@pytest.fixture
def text(tmp_path):
    return document.to_json(Installation(tmp_path).lock())


def changed(text, **changes):
    return json.dumps({**json.loads(text), **changes}).encode()


BAD = {
    "empty": (lambda _: b"", "it is empty"),
    "half": (lambda text: text.encode()[: len(text) // 2], "damaged or not written to its end"),
    "all-but-the-end": (lambda text: text.encode()[:-3], "damaged or not written to its end"),
    "not-text": (lambda _: b"\xff\xfe\x00", "damaged"),
    "deep": (lambda _: b"[" * 100_000, "damaged"),
    "a-list": (lambda _: b"[]", 'it has no "schema"'),
    "a-report": (lambda text: changed(text, schema="fi-doctor.report/1.3"), "fi-doctor.report/1.3"),
    "a-number": (lambda text: changed(text, schema=1), 'its "schema" is 1'),
    "rows-of-words": (lambda text: changed(text, rows=["norm"]), "$.rows[0]"),
    "inputs-of-numbers": (lambda text: changed(text, inputs={"driver": 1}), "$.inputs"),
    "without-rows": (
        lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "rows"}).encode(),
        "rows",
    ),
    "two-rows-alike": (lambda text: changed(text, rows=json.loads(text)["rows"] * 2), "it has two rows"),
}


@pytest.mark.parametrize(("made", "words"), BAD.values(), ids=BAD)
def test_what_is_no_lock_says_why(text, made, words):
    with pytest.raises(DataError) as error:
        document.read(made(text), "fi-doctor.lock")
    assert words in error.value.why
    assert '"fi-doctor.lock" is not a lock' in error.value.what
    assert error.value.exit_code == 2


@pytest.mark.parametrize(("major", "words"), [(2, "a newer"), (0, "an older")])
def test_another_major_version_is_not_read(text, major, words):
    with pytest.raises(DataError, match=f"{words} fi-doctor"):
        document.read(changed(text, schema=f"fi-doctor.lock/{major}.0"), "fi-doctor.lock")


def edited(text, change):
    document_ = json.loads(text)
    change(document_)
    return json.dumps(document_).encode()


def row_of(lock, feature="norm.rmsnorm"):
    return next(row for row in lock["rows"] if row["feature"] == feature)


def outcome_of(lock, feature="norm.rmsnorm"):
    return next(one for one in lock["outcomes"] if one["feature"] == feature)


IMPOSSIBLE = {
    "a-row-on-nothing": (lambda lock: row_of(lock).update(inputs=[]), "row norm.rmsnorm on SM90: it rests on nothing"),
    "an-empty-group": (
        lambda lock: lock["groups"].update({"python:import.flashinfer": []}),
        "the group python:import.flashinfer is empty",
    ),
    "nothing-loaded": (lambda lock: lock["loads"].update({"torch:numpy": []}), "nothing under torch:numpy"),
    "less-than-was-loaded": (
        lambda lock: lock["groups"]["loads:torch"].remove("loads:torch:numpy"),
        "the group loads:torch does not name loads:torch:numpy",
    ),
    "no-day": (lambda lock: row_of(lock).update(measured=""), "is no day"),
    "a-word-for-a-day": (lambda lock: row_of(lock).update(measured="banana"), '"banana", which is no day'),
    "the-thirtieth-of-february": (lambda lock: row_of(lock).update(measured="2026-02-30"), "is no day"),
    "the-future": (lambda lock: row_of(lock).update(measured="2999-01-01"), "2999-01-01, which is in the future"),
    "an-ending-of-no-cell": (
        lambda lock: outcome_of(lock).update(ending="timed-out"),
        "outcome of norm.rmsnorm: it says timed-out, its cells returned",
    ),
    "a-good-end-of-a-bad-cell": (
        lambda lock: outcome_of(lock)["cells"][0].update(ending="raised"),
        "it says returned, its cells raised",
    ),
    "a-stage-of-no-cell": (lambda lock: outcome_of(lock).update(stage="none"), "it says none, its cells verified"),
    "no-cells": (lambda lock: outcome_of(lock).update(cells=[]), "it has no cells"),
    "two-cells-alike": (
        lambda lock: outcome_of(lock).update(cells=outcome_of(lock)["cells"] * 2),
        "it has two cells",
    ),
    "two-outcomes-alike": (
        lambda lock: lock["outcomes"].append(outcome_of(lock)),
        "it has two outcomes of norm.rmsnorm",
    ),
    "two-outcomes-that-differ": (
        lambda lock: lock["outcomes"].append({**outcome_of(lock), "detail": "another"}),
        "it has two outcomes of norm.rmsnorm",
    ),
}


@pytest.mark.parametrize(("change", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_lock_that_no_fi_doctor_wrote_is_refused_and_says_why(text, change, words):
    day = dt.date.fromisoformat(CREATED[:10])
    assert document.read(text.encode(), "fi-doctor.lock", today=day)
    with pytest.raises(DataError) as error:
        document.read(edited(text, change), "fi-doctor.lock", today=day)
    assert words in error.value.why
    assert error.value.exit_code == 2


def test_all_that_is_wrong_is_said_at_once(text):
    def change(lock):
        row_of(lock).update(measured="", inputs=[])
        lock["groups"]["module:norm"] = []

    with pytest.raises(DataError) as error:
        document.read(edited(text, change), "fi-doctor.lock")
    assert [word for word in ("is empty", "is no day", "on nothing") if word not in error.value.why] == []


@pytest.mark.parametrize("measured", ["2026-11-28", "2026-11-28T10:11:12+00:00", "2026-11-28T10:11:12Z"])
def test_a_day_and_a_time_are_both_when_it_was_measured(text, measured):
    data = edited(text, lambda lock: [row.update(measured=measured) for row in lock["rows"]])
    assert document.read(data, "fi-doctor.lock", today=dt.date(2026, 11, 27)).rows


def test_fields_of_a_newer_minor_version_are_ignored(text):
    data = changed(text, schema="fi-doctor.lock/1.7", weather="fine")
    assert document.read(data, "fi-doctor.lock").rows == document.read(text.encode(), "fi-doctor.lock").rows


def test_a_verdict_of_the_future_is_unknown(text):
    rows = json.loads(text)["rows"]
    rows[0]["verdict"] = "sparkles"
    assert document.read(changed(text, rows=rows), "fi-doctor.lock").rows[0].verdict == "unknown"


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing"])
def test_what_is_no_file_is_not_waited_for(tmp_path, kind):
    path = tmp_path / "fi-doctor.lock"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        import os

        os.mkfifo(path)
    with pytest.raises(DataError, match="cannot read the lock"):
        document.read_file(path)
