"""The pictures of the README are drawn from a recorded machine; python benchmarks/pictures.py draws them."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import pictures

    yield pictures
    del sys.modules["pictures"]


def test_they_are_as_they_would_be_drawn(pictures):
    drawn = pictures.drawings(pictures.report())
    assert [name for name, text in drawn.items() if (FOLDER / name).read_text() != text] == [], (
        "python benchmarks/pictures.py"
    )
    shown = set(re.findall(r"docs/pictures/([\w.-]+)", (ROOT / "README.md").read_text()))
    assert {path.name for path in FOLDER.iterdir()} == shown | {pictures.DIGEST}
    assert shown == {*drawn, *(f"page-{scheme}.png" for scheme in pictures.SCHEMES)} - {pictures.DIGEST}


def test_they_are_small_and_load_nothing():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 256 << 10
    for path in FOLDER.glob("*.svg"):
        assert set(re.findall(r"https?://[^\"]+|url\([^#]", path.read_text())) == {"http://www.w3.org/2000/svg"}


def test_a_changed_report_is_another_picture(pictures):
    text = "\x1b[1;31mbroken\x1b[0m <b>&"
    assert "&lt;b&gt;&amp;" in pictures.drawn(text, 80, "title")
    assert pictures.drawn(text, 80, "title") != pictures.drawn(text.replace("31", "32"), 80, "title")
