"""The pages below docs/ are what `fi-doctor explain` prints; python benchmarks/pages.py writes them."""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_the_pages_are_as_they_would_be_written(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import pages

    written = pages.pages()
    there = {path.relative_to(pages.DOCS).as_posix(): path for path in pages.DOCS.rglob("*.md")}
    assert there.keys() == {*written, *pages.WRITTEN_BY_HAND}, "python benchmarks/pages.py"
    assert [name for name, text in written.items() if there[name].read_text() != text] == [], (
        "python benchmarks/pages.py"
    )
    assert '<a id="nvcc-not-found"></a>' in written["rules/toolkit.md"]
    del sys.modules["pages"]
