"""Links between pages lead somewhere, files of deploy/ that pages name are there, and examples of Python run."""

from __future__ import annotations

import pathlib
import re
import shutil

import pytest

import fi_doctor

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(?ms)^```.*?^```\n?|`[^`\n]*`")


def anchors(text):
    """The ids that stand there, and those that are made of headings."""
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return {*re.findall(r'<a id="([^"]+)">', text), *slugs}


def broken(page, text, read=pathlib.Path.read_text):
    """The links of a page that lead nowhere."""
    found = []
    for link in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = page if not path else page.parent / path
        if not target.exists() or (anchor and anchor not in anchors(read(target))):
            found.append(link)
    return found


def test_links_lead_somewhere():
    known = {page: page.read_text() for page in PAGES}
    sets = {page: anchors(text) for page, text in known.items()}
    assert sum(map(len, sets.values())) > 500
    for page, text in known.items():
        assert broken(page, text, lambda target: known.get(target.resolve(), "")) == [], page


def test_a_link_that_leads_nowhere_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('# A b: c\n<a id="x"></a>')
    text = "[1](#x) [2](#a-b-c) [3](#y) [4](none.md) [5](page.md#x) [6](https://none.example) `[7](none)` \\[8\\](none)"
    assert broken(page, text) == ["#y", "none.md"]


def test_files_of_deploy_that_pages_name_are_there():
    named = {name for page in PAGES for name in re.findall(r"`(deploy/[\w./-]+)`", page.read_text())}
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The first block of Python of the page about programs, of which nothing looks at this machine."""
    machine = ROOT / "tests" / "machines" / "h200-cuda13.0-flashinfer0.7.2.post1" / "cold.json"
    shutil.copy(machine, tmp_path / "report.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = fi_doctor.diagnose

    def diagnose(*, from_="report.json", depth=None, **asked):
        assert depth in (None, "static")
        return real(from_=from_, **asked)

    monkeypatch.setattr(fi_doctor, "diagnose", diagnose, raising=False)
    return re.search(r"(?ms)^```python\n(.*?)^```", (ROOT / "docs" / "api.md").read_text())[1]


def test_the_example_of_python_runs(example):
    names = {}
    exec(compile(example, "docs/api.md", "exec"), names)
    assert names["report"].gate.code == 0
    assert {row.feature.partition(".")[0] for row in names["report"].features} == {"moe", "attention"}
    assert names["old"].schema != names["new"].schema
    assert names["new"].gate.code == 1  # some of moe.* is for other GPUs
