"""A lock that cannot be read says what is wrong with it, and is never half believed."""

from __future__ import annotations

import json

import pytest
from installation import Installation

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
