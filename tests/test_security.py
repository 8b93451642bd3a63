"""SECURITY.md promises nothing without a test, and what is fetched from elsewhere in CI is pinned."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)))
PROMISED = TEXT.partition("## What is promised")[2].partition("## What is not promised")[0]


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_of_a_promise_is_there(file, name):
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("promise", re.split(r"^- ", PROMISED, flags=re.MULTILINE)[1:])
def test_every_promise_names_its_test(promise):
    assert re.search(r"`tests/[\w/]+\.py::test_\w+`", promise)


def test_actions_are_pinned_by_their_commit():
    files = [path for folder in ("deploy", ".github") for path in (ROOT / folder).rglob("*.y*ml")]
    used = [word for path in files for word in re.findall(r"\buses:\s*(\S+)", path.read_text(encoding="utf-8"))]
    assert used
    unpinned = [word for word in used if not re.search(r"@[0-9a-f]{40}$", word) and not word.startswith("./")]
    assert unpinned == ["OWNER/fi-doctor/deploy/github@COMMIT"]  # what a user fills in
